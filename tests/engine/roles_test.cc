// Which engine loads the weights, and that an engine of several ranks acts as one. Two engines of
// two ranks each on two devices, with gms-load as the loader of each: engine 0 writes if nothing is
// published, all others wait.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/pair_process.h"

namespace {

using namespace fo;
using base::Deadline;
using test::Pair;
using test::Start;
using test::wait_until;

// Loads both devices' weights, one after the other, and execs the engine.
Start with_loader(const Pair& pair, int engine, const std::string& second_loader_settings = {}) {
  std::string script = "set -e\n";
  for (int device = 0; device < pair.devices(); ++device) {
    if (device == 1) script += second_loader_settings + " ";
    script += FO_BUILD_DIR "/bin/gms-load -q " + pair.model() + " --socket-dir " +
              pair.file("gms") + " --device " + std::to_string(device) + "\n";
  }
  script += "exec";
  for (const std::string& word : pair.engine_command(engine)) script += " " + word;
  Start how;
  how.command = {"sh", "-c", script};
  return how;
}

void wait_for_pair(Pair& pair) {
  wait_until("one active engine and one in standby", [&] {
    for (const int engine : {0, 1}) {
      const auto status = pair.ended(engine);
      if (status)
        throw std::runtime_error("fo-shadow ended with " + std::to_string(*status) + "\n" +
                                 pair.logs());
    }
    const std::string one = pair.state(0);
    const std::string other = pair.state(1);
    return (one == "active" && other == "standby") || (one == "standby" && other == "active");
  });
}

void wait_for_state(const Pair& pair, int engine, const std::string& state) {
  wait_until("engine " + std::to_string(engine) + " to be " + state,
             [&] { return pair.state(engine) == state; });
}

std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class Roles : public testing::Test {
 protected:
  Roles() { test::limit_run(std::chrono::seconds(110)); }
  ~Roles() override { test::limit_run(std::chrono::seconds(0)); }
};

TEST_F(Roles, TwoEnginesThatStartAtOnceNeverDeadlock) {
  for (int i = 0; i < 3; ++i) {
    Pair pair;
    // The engines start before the memory server's first client, in either order.
    pair.start_gms();
    pair.start(i % 2, with_loader(pair, i % 2));
    pair.start(1 - i % 2, with_loader(pair, 1 - i % 2));
    wait_for_pair(pair);
    EXPECT_NE(pair.tokens(), "");
    EXPECT_EQ(all(pair.orphans()), "");
    EXPECT_EQ(all(pair.finish()), "");
  }
}

TEST_F(Roles, AShadowWaitsForALoaderThatCrashesBetweenTheCommits) {
  Pair pair;
  pair.start_gms();
  pair.start(1, with_loader(pair, 1));
  wait_until("engine 1 to start", [&] {
    const auto status = pair.status(1);
    return status && status->engine != 0;
  });
  const pid_t shadow = pair.shadow(1).pid();
  const pid_t waiting = pair.status(1)->engine;
  for (int i = 0; i < 5; ++i) {
    // Then the first device is published, and the writer of the second dies.
    pair.start(0, with_loader(pair, 0, "GMS_SIM_FAULTS=cuMemMap:1=kill"));
    EXPECT_EQ(pair.await_end(0), 128 + SIGKILL);
    const auto status = pair.status(1);
    ASSERT_TRUE(status);
    EXPECT_EQ(status->state, "init");
    EXPECT_EQ(status->engine, waiting);
  }
  pair.start(0, with_loader(pair, 0));
  wait_for_pair(pair);
  EXPECT_EQ(pair.shadow(1).pid(), shadow);
  EXPECT_EQ(pair.status(1)->engine, waiting);
  EXPECT_NE(pair.tokens(), "");
  EXPECT_EQ(all(pair.finish()), "");
}

TEST_F(Roles, AShadowGivesUpOnAPrimaryThatNeverComes) {
  Pair pair;
  pair.start_gms();
  Start how = with_loader(pair, 1);
  how.shadow_options = {{"--start-timeout", "500ms"}};
  pair.start(1, how);
  EXPECT_EQ(pair.await_end(1), base::to_int(base::ExitStatus::kTryAgain));
  EXPECT_EQ(all(pair.finish()), "");
}

TEST_F(Roles, AnEngineGivesUpOnWeightsThatNeverCome) {
  Pair pair;
  pair.start_gms();
  Start how;
  how.command = pair.engine_command(1);
  how.command.insert(how.command.end(), {"--load-timeout", "500ms"});
  pair.start(1, how);
  EXPECT_EQ(pair.await_end(1), base::to_int(base::ExitStatus::kTryAgain));
  EXPECT_EQ(all(pair.finish()), "");
}

TEST_F(Roles, AKilledRankTakesTheWholeEngineDown) {
  Pair pair;
  pair.start_gms();
  for (const int engine : {0, 1}) pair.start(engine, with_loader(pair, engine));
  wait_for_pair(pair);
  const std::string tokens = pair.tokens();
  EXPECT_NE(tokens, "");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const int active = pair.active().value();
    const pid_t engine = pair.status(active)->engine;
    const std::vector<pid_t> ranks = Pair::children_of(engine);
    ASSERT_EQ(ranks.size(), 2U);
    ::kill(ranks[rank], SIGKILL);
    EXPECT_EQ(pair.await_end(active), base::to_int(base::ExitStatus::kSoftware));
    EXPECT_FALSE(os::open_pidfd(engine));
    EXPECT_FALSE(os::open_pidfd(ranks[1 - rank]));
    wait_for_state(pair, 1 - active, "active");
    EXPECT_EQ(pair.tokens(), tokens);
    pair.start(active, with_loader(pair, active));
    wait_for_pair(pair);
  }
  EXPECT_EQ(all(pair.finish()), "");
}

// Each engine has lost half of its weights and cannot continue.
TEST_F(Roles, OneDevicesRestartedServerEndsBothEngines) {
  Pair pair({.gms_per_device = true, .shadow_options = {{"--gms-grace", "500ms"}}});
  for (const int device : {0, 1}) pair.start_gms(device);
  for (const int engine : {0, 1}) pair.start(engine, with_loader(pair, engine));
  wait_for_pair(pair);
  const std::string tokens = pair.tokens();
  const int active = pair.active().value();
  pair.gms(1).signal(SIGKILL);
  ASSERT_EQ(pair.gms(1).wait(Deadline::after(test::kPairTimeout)), 128 + SIGKILL);
  pair.start_gms(1);
  EXPECT_EQ(pair.await_end(active), base::to_int(base::ExitStatus::kUnavailable));
  // Nothing is published there, so no reader gets the lock.
  EXPECT_EQ(pair.await_end(1 - active), base::to_int(base::ExitStatus::kTryAgain));
  EXPECT_FALSE(pair.holder());
  for (const int engine : {0, 1}) pair.start(engine, with_loader(pair, engine));
  wait_for_pair(pair);
  EXPECT_EQ(pair.tokens(), tokens);
  EXPECT_EQ(all(pair.finish()), "");
}

}  // namespace
