#include "os/socket/server_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "os/file/pipe.h"
#include "os/process/process.h"
#include "os/socket/unix_socket.h"
#include "support.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/temp_dir.h"

namespace fo::os::test {
namespace {

using base::Deadline;
using base::ExitStatus;
using fo::test::failure_of;

class ServerSocketTest : public fo::test::FdCounting {
 protected:
  const fo::test::TempDir folder_;
  const std::string path_ = folder_.path("s");
};

TEST_F(ServerSocketTest, GoesWithItsOwnerAndLeavesTheLockFile) {
  {
    const ServerSocket socket = open_server_socket(path_);
    EXPECT_TRUE(is_socket_live(path_));
    struct stat info {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(ServerSocketTest, ANameThatAnotherProcessReplacedOrOwnsStays) {
  {
    const ServerSocket socket = open_server_socket(path_);
    const base::UniqueFd next = replace_socket(path_);
    EXPECT_TRUE(is_socket_live(path_));
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
  OwnedPath(path_).release();
  EXPECT_TRUE(std::filesystem::exists(path_));
  { const OwnedPath ours(path_); }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ServerSocketTest, IsServedByOneAtATime) {
  const ServerSocket socket = open_server_socket(path_);
  const auto failure = failure_of([&] { open_server_socket(path_); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "serve socket '" + path_ + "': another server uses it");
  EXPECT_TRUE(is_socket_live(path_));
}

TEST_F(ServerSocketTest, ThatOfAServerWithoutALockIsRespected) {
  const base::UniqueFd other = listen_unix(path_);
  EXPECT_EQ(failure_of([&] { open_server_socket(path_); }).status, ExitStatus::kCannotCreate);
  EXPECT_TRUE(is_socket_live(path_));
}

TEST_F(ServerSocketTest, ADeadOneIsReplacedAndAFileIsNot) {
  listen_unix(path_).reset();
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(open_server_socket(path_).listener.valid());
  std::ofstream(path_) << "precious";
  const auto failure = failure_of([&] { open_server_socket(path_); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "serve socket '" + path_ + "': not a socket");
  EXPECT_EQ(std::filesystem::file_size(path_), 8U);
}

TEST_F(ServerSocketTest, ALinkInPlaceOfTheLockFileIsNotFollowed) {
  std::filesystem::create_symlink(folder_.path("target"), path_ + ".lock");
  EXPECT_EQ(failure_of([&] { open_server_socket(path_); }).message,
            "open lock file '" + path_ + ".lock': a symbolic link, which is not followed");
  EXPECT_FALSE(std::filesystem::exists(folder_.path("target")));
}

TEST_F(ServerSocketTest, WithoutAFolderItCannotBeMade) {
  EXPECT_EQ(failure_of([&] { open_server_socket(folder_.path("none/s")); }).status,
            ExitStatus::kCannotCreate);
  EXPECT_EQ(failure_of([&] { open_server_socket(""); }).status, ExitStatus::kUsage);
}

TEST_F(ServerSocketTest, InAFolderThatIsNotOursItIsNotPermitted) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  ASSERT_EQ(::chmod(folder_.path("").c_str(), 0755), 0);
  const Child other = fork_child([this] {
    if (::setuid(65534) != 0) return 1;
    return base::to_int(failure_of([&] { open_server_socket(path_); }).status);
  });
  EXPECT_EQ(other.wait(base::Deadline::after(std::chrono::seconds(20))), 77);
}

TEST_F(ServerSocketTest, ALockFileIsLockedUntilItIsClosed) {
  auto lock = try_lock_path(path_);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(try_lock_path(path_));
  lock.reset();
  EXPECT_TRUE(try_lock_path(path_));
}

TEST_F(ServerSocketTest, ALockFileIsWaitedForUntilADeadlineOrAnInterruption) {
  auto held = try_lock_path(path_);
  ASSERT_TRUE(held);
  EXPECT_FALSE(lock_path(path_, Deadline::after(std::chrono::milliseconds(1))));
  Pipe pipe;
  ASSERT_EQ(::write(pipe.writer.get(), "x", 1), 1);
  EXPECT_FALSE(lock_path(path_, Deadline::never(), pipe.reader.get()));
  const std::jthread holder([&] { held.reset(); });
  EXPECT_TRUE(lock_path(path_, Deadline::after(std::chrono::seconds(20))));
}

TEST_F(ServerSocketTest, TheLockOfAServerThatEndsIsWaitedFor) {
  auto ending = try_lock_path(path_ + ".lock");
  ASSERT_TRUE(ending);
  const Deadline soon = Deadline::after(std::chrono::milliseconds(1));
  EXPECT_EQ(failure_of([&] { open_server_socket(path_, 0600, soon); }).status,
            ExitStatus::kCannotCreate);
  const std::jthread server([&] { ending.reset(); });
  const Deadline later = Deadline::after(std::chrono::seconds(20));
  EXPECT_TRUE(open_server_socket(path_, 0600, later).listener.valid());
}

}  // namespace
}  // namespace fo::os::test
