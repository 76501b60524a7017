#include "lock/lockd/lockd_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lock/support.h"
#include "os/process/process.h"
#include "support/failure.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::Forked;
using test::slurp;
using test::spill;
using test::TempDir;

LockdState sample_state() {
  return {.holder = "engine-\"0\"",
          .granted_at = *text::parse_time("2026-11-21T05:33:00.123Z"),
          .generation = 7,
          .last_generation = 9,
          .connections = 3,
          .processes = {{12, 1234, 4026531836}, {13, 18446744073709551615U, 1}}};
}

TEST(LockdState, ComesBackAsItWas) {
  EXPECT_EQ(decode_state(encode_state(sample_state())), sample_state());
  LockdState nobody;
  nobody.generation = nobody.last_generation = 7;
  EXPECT_EQ(decode_state(encode_state(nobody)), nobody);
  nobody.last_holder = "a";
  nobody.granted_at = sample_state().granted_at;
  EXPECT_EQ(decode_state(encode_state(nobody)), nobody);
  LockdState uncounted = sample_state();
  uncounted.connections.reset();
  EXPECT_EQ(decode_state(encode_state(uncounted)), uncounted);
  LockdState leased = sample_state();
  leased.expiry = std::chrono::milliseconds(10000);
  leased.token = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(decode_state(encode_state(leased)), leased);
  nobody.token = leased.token;
  EXPECT_EQ(decode_state(encode_state(nobody)), nobody);
  EXPECT_EQ(decode_state(encode_state({})), LockdState{});
}

TEST(LockdState, ReadsTheFileOfTheSpecification) {
  const auto state =
      decode_state(R"({"holder": "engine-a", "granted_at": "2026-02-17T10:05:30Z"})");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->holder, "engine-a");
  EXPECT_EQ(state->granted_at, text::parse_time("2026-02-17T10:05:30.000Z"));
  EXPECT_EQ(state->generation, 0U);
  EXPECT_EQ(state->connections, std::nullopt);
  EXPECT_EQ(decode_state(encode_state(sample_state()))->connections, 3U);
  EXPECT_EQ(decode_state(R"({"holder": null, "granted_at": null})"), LockdState{});
}

TEST(LockdState, EveryTruncationIsDamage) {
  std::string bytes = encode_state(sample_state());
  bytes.pop_back();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_state(bytes.substr(0, size)), std::nullopt) << size;
  }
}

TEST(LockdState, WhatDoesNotFitIsDamage) {
  for (
      const char* bytes :
      {"null",
       "[]",
       R"({"generation":1})",
       R"({"holder":null,"last_holder":"e","granted_at":null})",
       R"({"holder":null,"last_holder":"e","granted_at":null,"generation":7})",
       R"({"holder":null,"last_holder":7,"granted_at":"2026-02-17T10:05:30.000Z","generation":7})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:3Z","generation":7})",
       R"({"holder":"e","granted_at":"2026-02-30T10:05:30Z","generation":7})",
       R"({"holder":7,"granted_at":"2026-02-17T10:05:30.000Z","generation":7})",
       R"({"holder":"","granted_at":"2026-02-17T10:05:30.000Z","generation":7})",
       R"({"holder":"e","granted_at":null,"generation":7})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":0})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":-7})",
       R"({"holder":null,"generation":9007199254740993})",
       R"({"holder":null,"generation":9007199254740992})",
       R"({"holder":null,"generation":7,"last_generation":9007199254740990})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":7,"token":""})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":7,"token":7})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":7,"processes":{"a":1}})",
       R"({"holder":"e","granted_at":"2026-02-17T10:05:30.000Z","generation":7,"processes":[{"pid":4294967296,"start_time":1,"pid_ns":1}]})"}) {
    EXPECT_EQ(decode_state(bytes), std::nullopt) << bytes;
  }
}

TEST(LockdState, NoFileIsNoHolder) {
  const TempDir dir;
  EXPECT_EQ(load_state(dir.path("none")).kind, LoadedState::Kind::kNone);
}

TEST(LockdState, EmptyGarbageAndHugeFilesAreDamaged) {
  const TempDir dir;
  for (const std::string& bytes :
       {std::string(), std::string("{"), std::string(100, '\0'), std::string((1 << 20) + 1, ' ')}) {
    spill(dir.path("state"), bytes);
    EXPECT_EQ(load_state(dir.path("state")).kind, LoadedState::Kind::kDamaged) << bytes.size();
  }
  spill(dir.path("state"), encode_state(sample_state()));
  const LoadedState loaded = load_state(dir.path("state"));
  EXPECT_EQ(loaded.kind, LoadedState::Kind::kState);
  EXPECT_EQ(loaded.state, sample_state());
}

TEST(LockdState, AFileThatCannotBeReadIsAnError) {
  const TempDir dir;
  ASSERT_EQ(::mkdir(dir.path("state").c_str(), 0700), 0);
  EXPECT_EQ(failure_of([&] { load_state(dir.path("state")); }).status, ExitStatus::kCannotCreate);
}

TEST(LockdState, IsWrittenBackAsItWasRead) {
  const TempDir dir;
  for (const std::string& bytes :
       {std::string(R"({"holder": "engine-a", "granted_at": "2026-02-17T10:05:30Z"})"),
        encode_state(sample_state()), std::string("{\"holder\":"), std::string()}) {
    spill(dir.path("state"), bytes);
    const LoadedState loaded = load_state(dir.path("state"));
    prepare_state(dir.path("state"), loaded);
    EXPECT_EQ(slurp(dir.path("state")), bytes);
    EXPECT_EQ(load_state(dir.path("state")).kind, loaded.kind);
  }
  prepare_state(dir.path("new"), load_state(dir.path("new")));
  EXPECT_EQ(load_state(dir.path("new")).kind, LoadedState::Kind::kState);
  EXPECT_EQ(load_state(dir.path("new")).state, LockdState{});
  EXPECT_EQ(failure_of([&] { prepare_state(dir.path("none/state"), {}); }).status,
            ExitStatus::kCannotCreate);
}

// The file contains a token.
TEST(LockdState, IsForItsOwnersEyes) {
  const TempDir dir;
  spill(dir.path("state"), encode_state(sample_state()));
  ASSERT_EQ(::chmod(dir.path("state").c_str(), 0644), 0);
  prepare_state(dir.path("state"), load_state(dir.path("state")));
  struct stat info {};
  ASSERT_EQ(::stat(dir.path("state").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST(LockdState, TemporariesOfAKilledServerAreRemovedAndNothingElse) {
  const TempDir dir;
  for (const char* name : {"state.Ab3xYz", "state.00000a", "state.ABCDEF"}) {
    spill(dir.path(name), "x");
  }
  const std::vector<std::string> others{"state.backup",  "state.202611", "state.Ab3xY",
                                        "state.Ab3xYzz", "state.Ab3-Yz", "xstate.Ab3xYz",
                                        "stateXAb3xYz",  "state.lock"};
  for (const std::string& name : others) spill(dir.path(name), "x");
  ASSERT_EQ(::mkdir(dir.path("state.Dir001").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("state.backup", dir.path("state.Link01").c_str()), 0);
  prepare_state(dir.path("state"), {});
  std::vector<std::string> left;
  for (const auto& each : std::filesystem::directory_iterator(dir.path(""))) {
    left.push_back(each.path().filename());
  }
  std::vector<std::string> expected = others;
  expected.insert(expected.end(), {"state", "state.Dir001", "state.Link01"});
  EXPECT_THAT(left, testing::UnorderedElementsAreArray(expected));
}

TEST(RecordedProcesses, ARunningOneIsKnownFromOthersWithItsPid) {
  Forked child([](int) { return test::pause_for_ever(); });
  const auto process = describe_process(child.pid());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid_ns, os::own_pid_namespace());
  EXPECT_TRUE(open_running(*process));
  RecordedProcess other = *process;
  ++other.start_time;
  EXPECT_FALSE(open_running(other));
  RecordedProcess elsewhere = *process;
  ++elsewhere.pid_ns;
  EXPECT_FALSE(open_running(elsewhere));
  child.kill();
  EXPECT_FALSE(open_running(*process));
  EXPECT_FALSE(describe_process(process->pid));
  EXPECT_FALSE(describe_process(0));
}

TEST(RecordedProcesses, AZombieHasEnded) {
  Forked child([](int) { return test::pause_for_ever(); });
  const auto process = describe_process(child.pid());
  ASSERT_TRUE(process);
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(describe_process(child.pid()));
  EXPECT_FALSE(open_running(*process));
}

}  // namespace
}  // namespace fo::lock
