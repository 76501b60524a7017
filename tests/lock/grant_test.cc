#include "lock/grant.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "lock/support.h"
#include "support/environment.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using ContentKind = GrantContent::Kind;

GrantRecord sample() {
  return {.holder = "engine-1",
          .generation = 7,
          .pid = 42,
          .pid_ns = 4026531836,
          .start_time = 123456,
          .inode = 99,
          .granted_at = "2026-11-21T05:33:00.123Z",
          .host = "node"};
}

GrantRecord self() {
  GrantRecord record = sample();
  record.pid = ::getpid();
  record.pid_ns = os::own_pid_namespace();
  record.start_time = os::process_start_time(::getpid()).value();
  return record;
}

TEST(Grant, ComesBackFromAFileOfFixedSize) {
  const std::string bytes = encode_grant(sample());
  EXPECT_EQ(bytes.size(), 1024U);
  EXPECT_EQ(bytes.back(), '\n');
  const GrantContent content = decode_grant(bytes);
  EXPECT_EQ(content.kind, ContentKind::kRecord);
  EXPECT_EQ(content.record, sample());
}

TEST(Grant, HoldsTheLongestIdThatGrowsInJson) {
  GrantRecord record = sample();
  record.holder = std::string(kMaxIdBytes, '"');
  record.generation = 1ULL << 53;
  record.pid = std::numeric_limits<pid_t>::max();
  record.pid_ns = record.start_time = record.inode = std::numeric_limits<std::uint64_t>::max();
  record.host = std::string(64, 'h');
  EXPECT_NO_THROW(check_lock_id(record.holder));
  EXPECT_EQ(decode_grant(encode_grant(record)).record, record);
}

TEST(Grant, ALockFileIsEmptyOrNamesAHolder) {
  const GrantContent none;
  GrantContent record{ContentKind::kRecord, sample()};
  for (const std::string& text :
       {std::string(), std::string(7, '\0'), std::string("engine-0\n"), std::string("engine-0"),
        std::string("4711\n"), std::string("Motor N\xc2\xba 1\n"), std::string(255, 'x') + "\n"}) {
    EXPECT_TRUE(can_be_lock_file(text, none)) << text;
  }
  for (const std::string& text : {std::string("{}"), std::string("[1]\n"), std::string("a\nb"),
                                  std::string("a\n\n"), std::string("\xff"), std::string("a\tb"),
                                  std::string(256, 'x'), std::string(256, 'x') + "\n"}) {
    EXPECT_FALSE(can_be_lock_file(text, none)) << text;
    EXPECT_FALSE(can_be_lock_file(text, record)) << text;
  }
  EXPECT_TRUE(can_be_lock_file("engine-1\nlonger\n", record));
  EXPECT_FALSE(can_be_lock_file("engine-1longer\nx", record));
  record.record.holder = "{}";
  EXPECT_TRUE(can_be_lock_file("{}\n", record));
}

TEST(Grant, IsNeverReadFromATruncatedRecord) {
  const std::string bytes = encode_grant(sample());
  const std::size_t end = bytes.find('}');
  EXPECT_EQ(decode_grant("").kind, ContentKind::kBlank);
  for (std::size_t length = 1; length <= end; ++length) {
    EXPECT_EQ(decode_grant(bytes.substr(0, length)).kind, ContentKind::kDamaged) << length;
  }
}

TEST(Grant, OfAFileMadeReadyIsBlank) {
  EXPECT_EQ(decode_grant(std::string(kGrantFileSize, '\0')).kind, ContentKind::kBlank);
  EXPECT_EQ(decode_grant(" \n").kind, ContentKind::kBlank);
}

TEST(Grant, WithAnythingOddIsDamaged) {
  const std::string good = encode_grant(sample());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    text.resize(kGrantFileSize, ' ');
    return text;
  };
  for (const std::string& bytes :
       {replaced("\"generation\":7", "\"generation\":0"),
        replaced("\"generation\":7", "\"generation\":-7"),
        replaced("\"generation\":7", "\"generation\":7.5"),
        replaced("\"generation\":7", "\"generation\":\"7\""),
        replaced("\"generation\":7", "\"generation\":9007199254740993"),
        replaced("\"generation\"", "\"Generation\""), replaced("\"pid\":42", "\"pid\":4294967296"),
        replaced("\"engine-1\"", "null"), replaced("{", "["), good + " ", std::string("junk"),
        std::string(kGrantFileSize, '['), std::string("[]"), std::string("7")}) {
    const GrantContent content = decode_grant(bytes);
    EXPECT_EQ(content.kind, ContentKind::kDamaged) << bytes;
  }
}

TEST(Generation, GoesUpByOne) {
  EXPECT_EQ(next_generation({ContentKind::kRecord, sample()}, false, {}), 8U);
  EXPECT_EQ(next_generation({ContentKind::kRecord, sample()}, true, {}), 8U);
}

TEST(Generation, StartsAtOneOnlyWhereNobodyEverHeldTheLock) {
  const std::chrono::system_clock::time_point now{std::chrono::milliseconds(1'800'000'000'123)};
  EXPECT_EQ(next_generation({ContentKind::kBlank, {}}, true, now), 1U);
  EXPECT_EQ(next_generation({ContentKind::kBlank, {}}, false, now), 1'800'000'000'123U);
  EXPECT_EQ(next_generation({ContentKind::kDamaged, {}}, true, now), 1'800'000'000'123U);
  EXPECT_EQ(next_generation({ContentKind::kDamaged, {}}, false, now), 1'800'000'000'123U);
}

TEST(LockId, IsPrintableAndShort) {
  EXPECT_NO_THROW(check_lock_id("engine-0"));
  EXPECT_NO_THROW(check_lock_id("Größe 1"));
  EXPECT_NO_THROW(check_lock_id(std::string(kMaxIdBytes, 'x')));
  for (const std::string& id : {std::string(), std::string(kMaxIdBytes + 1, 'x'),
                                std::string("a\nb"), std::string("a\0b", 3), std::string("a\tb"),
                                std::string("a\x7f"), std::string("\xff\xfe")}) {
    EXPECT_EQ(test::status_of([&] { check_lock_id(id); }), ExitStatus::kConfig) << id;
  }
}

TEST(LockId, FollowsTheEngineId) {
  test::Environment environment{"ENGINE_ID"};
  EXPECT_EQ(lock_id_from_environment(), "engine-0");
  environment.set("ENGINE_ID", "17");
  EXPECT_EQ(lock_id_from_environment(), "engine-17");
  for (const char* text : {"", "x", "-1", "1 ", "1.0", "99999999999999999999999"}) {
    environment.set("ENGINE_ID", text);
    EXPECT_EQ(test::status_of([] { lock_id_from_environment(); }), ExitStatus::kConfig) << text;
  }
}

TEST(LockFileId, IsTheFirstLineWithoutControls) {
  EXPECT_EQ(id_of_lock_file("engine-0\n"), "engine-0");
  EXPECT_EQ(id_of_lock_file("engine-0"), "engine-0");
  EXPECT_EQ(id_of_lock_file("a\nb\n"), "a");
  EXPECT_EQ(id_of_lock_file("a\x1b[2Jb"), "a[2Jb");
  EXPECT_EQ(id_of_lock_file(""), "");
  EXPECT_EQ(id_of_lock_file(std::string(1000, 'x')).size(), kMaxIdBytes);
}

HolderState state_now(const GrantRecord& record) {
  return holder_state(record, base::Deadline::after(base::Duration::zero()));
}

TEST(HolderState, KnowsALivingProcess) { EXPECT_EQ(state_now(self()), HolderState::kRunning); }

TEST(HolderState, IsNotTakenInByAPidUsedAgain) {
  GrantRecord record = self();
  ++record.start_time;
  EXPECT_EQ(state_now(record), HolderState::kEnded);
}

TEST(HolderState, SaysNothingAboutAnotherPidNamespace) {
  GrantRecord record = self();
  ++record.pid_ns;
  EXPECT_EQ(state_now(record), HolderState::kNotVisible);
}

TEST(HolderState, WaitsForAProcessThatIsDying) {
  test::Forked process([](int ready) {
    test::say(ready, 1);
    return test::pause_for_ever();
  });
  ASSERT_EQ(process.read(), 1U);
  GrantRecord record = self();
  record.pid = process.pid();
  record.start_time = os::process_start_time(process.pid()).value();
  EXPECT_EQ(state_now(record), HolderState::kRunning);
  ASSERT_EQ(::kill(process.pid(), SIGKILL), 0);
  EXPECT_EQ(holder_state(record, base::Deadline::after(test::kLong)), HolderState::kEnded);
}

TEST(HolderState, TakesAZombieForDead) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  GrantRecord record = self();
  record.pid = pid;
  record.start_time = os::process_start_time(pid).value();
  EXPECT_EQ(state_now(record), HolderState::kEnded);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace fo::lock
