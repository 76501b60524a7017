#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "cli/app.h"
#include "gms-lock/options.h"
#include "support/environment.h"

namespace fo::gms_lock {
namespace {

using cli::ParseResult;

struct Parsed {
  Options options;
  ParseResult result;
};

Parsed parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  const cli::Tool tool{.name = "gms-lock", .summary = "s", .version = "1", .takes_command = true};
  parsed.result = cli::parse(
      tool, parsed.options.common, [&](CLI::App& app) { declare(app, parsed.options); }, arguments);
  return parsed;
}

TEST(GmsLockOptions, DefaultsAreTheDocumentedOnes) {
  const test::Environment without{"FAILOVER_LOCK_PATH"};
  const Parsed parsed = parse({"acquire", "--exec", "--", "true", "--", "x"});
  EXPECT_EQ(parsed.result.kind, ParseResult::Kind::kRun) << parsed.result.text;
  EXPECT_EQ(parsed.options.place().locks, std::vector<std::string>{"/shared/failover.lock"});
  EXPECT_EQ(parsed.options.acquire.busy_status, 75);
  EXPECT_EQ(parsed.options.acquire.grace, std::chrono::seconds(5));
  EXPECT_FALSE(parsed.options.acquire.timeout);
  EXPECT_TRUE(parsed.options.acquire.exec);
  EXPECT_EQ(parsed.options.common.command, (std::vector<std::string>{"true", "--", "x"}));
}

TEST(GmsLockOptions, FlagBeatsTheEnvironment) {
  const test::ScopedVariable path("FAILOVER_LOCK_PATH", "/from/env");
  EXPECT_EQ(parse({"owner"}).options.place().locks, std::vector<std::string>{"/from/env"});
  for (const char* command : {"acquire", "owner", "status"}) {
    EXPECT_EQ(parse({command, "--lock", "flock:/flag"}).options.place().locks,
              std::vector<std::string>{"flock:/flag"});
  }
}

TEST(GmsLockOptions, RefusesWhatMakesNoSense) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"steal"},
                                                    {"acquire", "-E", "256"},
                                                    {"acquire", "-E", "-1"},
                                                    {"acquire", "--timeout", "5x"},
                                                    {"acquire", "-w", "-1"},
                                                    {"acquire", "-n", "-w", "1"},
                                                    {"acquire", "--nonblock", "--timeout", "5s"},
                                                    {"acquire", "--fd", "x"},
                                                    {"acquire", "true"},
                                                    {"acquire", "--"},
                                                    {"owner", "--id", "x"},
                                                    {"acquire", "--gpu-free", "1XB"},
                                                    {"acquire", "--device", "0"},
                                                    {"acquire", "--status-fd", "-2"}}) {
    EXPECT_EQ(parse(arguments).result.kind, ParseResult::Kind::kUsageError);
  }
}

TEST(GmsLockOptions, TakesWhatFlockTakes) {
  using std::chrono::milliseconds;
  const auto timeout = [](const std::vector<std::string>& arguments) {
    return parse(arguments).options.acquire.timeout;
  };
  EXPECT_EQ(timeout({"acquire", "-w", "5"}), milliseconds(5000));
  EXPECT_EQ(timeout({"acquire", "-w", "0.25"}), milliseconds(250));
  EXPECT_EQ(timeout({"acquire", "-w0"}), milliseconds(0));
  EXPECT_EQ(timeout({"acquire", "--timeout", "3"}), milliseconds(3000));
  EXPECT_EQ(timeout({"acquire", "--timeout", "3ms"}), milliseconds(3));
  EXPECT_TRUE(parse({"acquire", "-n", "-E", "1"}).options.nonblock);
}

TEST(GmsLockOptions, ExecNeedsACommand) {
  EXPECT_THROW(check(parse({"acquire", "--exec"}).options), base::Error);
  EXPECT_NO_THROW(check(parse({"acquire"}).options));
}

}  // namespace
}  // namespace fo::gms_lock
