#include "lock/acquire.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lock/support.h"
#include "support/environment.h"

namespace fo::lock {
namespace {

using test::Forked;
using test::slurp;
using test::TempDir;

TEST(Acquire, EnvironmentIsLastAndOnce) {
  const test::ScopedVariable generation("FAILOVER_GENERATION", "outer");
  const test::ScopedVariable fd("FAILOVER_LOCK_FD", "999");
  const TempDir dir;
  const std::string out = dir.path("environment");
  for (const bool exec : {false, true}) {
    AcquireOptions options;
    options.locks = {{LockUri::Kind::kFlock, dir.path("lock")}};
    options.id = "engine-0";
    options.exec = exec;
    options.command = {"cp", "/proc/self/environ", out};
    // It blocks signals and reaps every child.
    Forked process([&](int) { return acquire(options, [](const Grant&) {}).status; });
    EXPECT_EQ(process.wait(), 0);
    std::string text = slurp(out);
    std::replace(text.begin(), text.end(), '\0', '\n');
    const std::string tail = "\nFAILOVER_GENERATION=" + std::to_string(exec ? 2 : 1) +
                             "\nFAILOVER_LOCK_ID=engine-0\nFAILOVER_LOCK_FD=";
    EXPECT_NE(text.find(tail), std::string::npos) << text;
    EXPECT_EQ(text.find("FAILOVER_LOCK_FD="), text.rfind("FAILOVER_LOCK_FD="));
    EXPECT_EQ(text.find("FAILOVER_GENERATION=outer"), std::string::npos);
    EXPECT_EQ(text.find('\n', text.find("FAILOVER_LOCK_FD=")), text.size() - 1);
  }
}

TEST(Acquire, GrantAsJsonAndText) {
  const Grant grant{"engine-1", 3, std::chrono::system_clock::time_point{},
                    std::chrono::milliseconds(1500)};
  const auto object = nlohmann::json::parse(to_json(grant));
  EXPECT_EQ(object, (nlohmann::json{{"id", "engine-1"},
                                    {"generation", 3},
                                    {"granted_at", "1970-01-01T00:00:00.000Z"},
                                    {"waited", 1.5}}));
  EXPECT_EQ(to_text(grant),
            "id: engine-1\ngeneration: 3\ngranted_at: 1970-01-01T00:00:00.000Z\nwaited: 1500ms\n");
}

}  // namespace
}  // namespace fo::lock
