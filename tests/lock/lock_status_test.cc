#include "lock/lock_status.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lock/support.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "support/must_run.h"

namespace fo::lock {
namespace {

using nlohmann::json;
using test::Forked;
using test::holder;
using test::say;
using test::spill;
using test::TempDir;

// A process that holds the lock without a record, and writes `text`.
std::function<int(int)> foreign_holder(const std::string& path, const std::string& text) {
  return [=](int ready) {
    const base::UniqueFd fd = os::open_file(path, O_RDWR | O_CREAT);
    if (::flock(fd.get(), LOCK_EX) != 0 || ::ftruncate(fd.get(), 0) != 0) return 1;
    os::write_all(fd.get(), text, "write");
    say(ready, 1);
    return test::pause_for_ever();
  };
}

class LockStatusTest : public testing::Test {
 protected:
  TempDir dir_;
  std::string path_ = dir_.path("lock");
  LockUri lock_{LockUri::Kind::kFlock, path_};
};

TEST_F(LockStatusTest, OfAnAbsentFileIsFree) {
  EXPECT_FALSE(find_owner(lock_));
  const LockStatus status = read_lock_status(lock_);
  EXPECT_FALSE(status.held);
  EXPECT_FALSE(status.last_generation);
  EXPECT_EQ(to_text(status), "lock: " + path_ + "\nstate: free\n");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(LockStatusTest, OfAFileWhoseFolderIsAFileIsAnError) {
  spill(path_, "");
  EXPECT_EQ(test::status_of([&] {
              find_owner({LockUri::Kind::kFlock, path_ + "/lock"});
            }),
            base::ExitStatus::kNoInput);
}

TEST_F(LockStatusTest, OfASymbolicLinkIsAnError) {
  spill(dir_.path("secret"), "first line\n");
  std::filesystem::create_symlink(dir_.path("secret"), path_);
  const auto failure = test::failure_of([&] { read_lock_status(lock_); });
  EXPECT_EQ(failure.status, base::ExitStatus::kBadData);
  EXPECT_EQ(failure.message,
            "open lock file '" + path_ + "': a symbolic link, which is not followed");
  EXPECT_EQ(test::status_of([&] { find_owner(lock_); }), base::ExitStatus::kBadData);
}

TEST_F(LockStatusTest, StaleNameInAFreeLockIsNobody) {
  spill(path_, "engine-0\n");
  EXPECT_FALSE(find_owner(lock_));
  EXPECT_EQ(read_lock_status(lock_).holder, "");
}

TEST_F(LockStatusTest, ReleasedLockKeepsItsGeneration) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  first.kill();
  const LockStatus status = read_lock_status(lock_);
  EXPECT_FALSE(status.held);
  EXPECT_FALSE(status.record);
  EXPECT_EQ(status.last_generation, 1U);
  EXPECT_EQ(to_text(status), "lock: " + path_ + "\nstate: free\nlast_generation: 1\n");
}

TEST_F(LockStatusTest, HolderWithoutARecordHasNoGeneration) {
  Forked ours(holder(path_, "engine-0"));
  ASSERT_EQ(ours.read(), 1U);
  ours.kill();
  Forked theirs(foreign_holder(path_, "engine-0"));  // as Dynamo writes it: no newline
  ASSERT_EQ(theirs.read(), 1U);
  EXPECT_EQ(find_owner(lock_), "engine-0");
  const LockStatus status = read_lock_status(lock_);
  EXPECT_EQ(status.holder, "engine-0");
  EXPECT_FALSE(status.record);
  EXPECT_NE(to_text(status).find("generation: unknown\n"), std::string::npos);
  theirs.kill();
  Forked again(holder(path_, "engine-1"));
  EXPECT_EQ(again.read(), 2U);
}

TEST_F(LockStatusTest, HolderWithoutANameIsHeldByNoName) {
  Forked theirs(foreign_holder(path_, ""));
  ASSERT_EQ(theirs.read(), 1U);
  EXPECT_EQ(find_owner(lock_), "");
  EXPECT_NE(to_text(read_lock_status(lock_)).find("holder: (unknown: it records no id)\n"),
            std::string::npos);
}

TEST_F(LockStatusTest, RecordOfAnotherPidNamespaceShowsNoPid) {
  Forked theirs(foreign_holder(path_, "engine-0\n"));
  ASSERT_EQ(theirs.read(), 1U);
  const base::UniqueFd fd = os::open_file(path_, O_RDONLY);
  GrantRecord record{.holder = "engine-0",
                     .generation = 5,
                     .pid = 1,
                     .pid_ns = os::own_pid_namespace() + 1,
                     .start_time = 1,
                     .inode = os::file_key(fd.get()).inode,
                     .granted_at = "then",
                     .host = "there"};
  spill(path_ + ".grant", encode_grant(record));
  const LockStatus status = read_lock_status(lock_);
  EXPECT_EQ(status.holder_state, HolderState::kNotVisible);
  EXPECT_NE(to_text(status).find("generation: 5\n"), std::string::npos);
  EXPECT_NE(to_text(status).find("pid: not visible from here\n"), std::string::npos);
  const json object = json::parse(to_json(status));
  EXPECT_EQ(object["pid"], nullptr);
  EXPECT_EQ(object["pid_visible"], false);
}

TEST_F(LockStatusTest, TextOfOthersCanNotForgeLines) {
  LockStatus status;
  status.path = "/l";
  status.held = true;
  status.holder = "x\nstate: free";
  EXPECT_EQ(to_text(status), "lock: /l\nstate: held\nholder: xstate: free\ngeneration: unknown\n");
}

TEST_F(LockStatusTest, DamagedRecordIsNoRecord) {
  Forked theirs(foreign_holder(path_, "engine-0\n"));
  ASSERT_EQ(theirs.read(), 1U);
  spill(path_ + ".grant", "{");
  const LockStatus status = read_lock_status(lock_);
  EXPECT_TRUE(status.held);
  EXPECT_FALSE(status.record);
  EXPECT_FALSE(status.last_generation);
}

TEST_F(LockStatusTest, IsRefusedWhereTheFileMayNotBeRead) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  spill(path_, "");
  ::chmod(path_.c_str(), 0);
  Forked attempt([&](int) {
    if (::seteuid(65534) != 0) return 99;
    return base::to_int(test::status_of([&] { find_owner(lock_); }));
  });
  EXPECT_EQ(attempt.wait(), base::to_int(base::ExitStatus::kNotPermitted));
}

}  // namespace
}  // namespace fo::lock
