#include "lock/acquire.h"

#include <fcntl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lock/flock/flock_lock.h"
#include "lock/lock_status.h"
#include "lock/support.h"
#include "support/environment.h"

namespace fo::lock {
namespace {

using test::Forked;
using test::slurp;
using test::TempDir;

// acquire() blocks signals and reaps every child, so it always runs in a process of its own.
class AcquireTest : public testing::Test {
 protected:
  int run(const AcquireOptions& options) {
    Forked process([&](int) {
      const AcquireEnd end = acquire(options, [](const Grant&) {});
      return end.signal != 0 ? 128 + end.signal : end.status;
    });
    return process.wait();
  }
  AcquireOptions options(const std::string& script) {
    AcquireOptions options;
    options.locks = {{LockUri::Kind::kFlock, path_}};
    options.id = "engine-0";
    options.command = {"sh", "-c", script};
    options.grace = std::chrono::milliseconds(50);
    return options;
  }
  TempDir dir_;
  std::string path_ = dir_.path("lock");
};

TEST_F(AcquireTest, SupervisedStatusBecomesOurs) {
  EXPECT_EQ(run(options("exit 7")), 7);
  EXPECT_EQ(run(options("kill -ABRT $$")), 128 + SIGABRT);
  EXPECT_FALSE(find_owner({LockUri::Kind::kFlock, path_}));
}

TEST_F(AcquireTest, CommandThatCanNotRunGivesTheLockBack) {
  AcquireOptions absent = options("");
  absent.command = {dir_.path("absent")};
  for (const bool exec : {false, true}) {
    absent.exec = exec;
    EXPECT_EQ(run(absent), 127);
    absent.command = {"/"};
    EXPECT_EQ(run(absent), 126);
    absent.command = {dir_.path("absent")};
    EXPECT_FALSE(find_owner({LockUri::Kind::kFlock, path_}));
  }
}

TEST_F(AcquireTest, OrphanThatIgnoresTermGoesWithinTheGrace) {
  const std::string pid = dir_.path("pid");
  EXPECT_EQ(run(options("(trap '' TERM; exec setsid sleep 1000) & echo $! >" + pid + "; exit 3")),
            3);
  EXPECT_FALSE(find_owner({LockUri::Kind::kFlock, path_}));
  EXPECT_FALSE(os::process_start_time(std::stoi(slurp(pid))));
}

TEST_F(AcquireTest, ReplacedFileEndsTheWholeTree) {
  const std::string pid = dir_.path("pid");
  EXPECT_EQ(run(options("trap '' TERM; (trap '' TERM; exec sleep 1000) & echo $! >" + pid +
                        "; rm " + path_ + "; wait")),
            base::to_int(base::ExitStatus::kProtocol));
  EXPECT_FALSE(os::process_start_time(std::stoi(slurp(pid))));
}

TEST_F(AcquireTest, EnvironmentIsLastAndOnce) {
  const test::ScopedVariable generation("FAILOVER_GENERATION", "outer");
  const test::ScopedVariable fd("FAILOVER_LOCK_FD", "999");
  const std::string out = dir_.path("environment");
  for (const bool exec : {false, true}) {
    AcquireOptions wanted = options("");
    wanted.exec = exec;
    wanted.command = {"cp", "/proc/self/environ", out};
    EXPECT_EQ(run(wanted), 0);
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

TEST_F(AcquireTest, RefusesTheLockItInherited) {
  AcquireOptions wanted = options("exit 0");
  Forked process([&](int) {
    FlockLock held(path_, "engine-0");
    held.acquire(base::Deadline::never());
    const test::ScopedVariable fd("FAILOVER_LOCK_FD", std::to_string(held.fds().at(0)));
    return acquire(wanted, [](const Grant&) {}).status;
  });
  EXPECT_EQ(process.wait(), base::to_int(base::ExitStatus::kConfig));
}

TEST_F(AcquireTest, StatusEventsTellTheStory) {
  const std::string story = dir_.path("story");
  AcquireOptions wanted = options("exit 7");
  const base::UniqueFd fd(::open(story.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  wanted.status_fd = fd.get();
  EXPECT_EQ(run(wanted), 7);
  std::ifstream lines(story);
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line).at("event"));
  }
  EXPECT_EQ(events,
            (std::vector<std::string>{"waiting", "granted", "child_started", "child_ended"}));
  wanted.status_fd = 1000;
  EXPECT_EQ(run(wanted), base::to_int(base::ExitStatus::kUsage));
}

TEST_F(AcquireTest, GrantAsJsonAndText) {
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
