#include "os/socket/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <vector>

#include "support.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::os::test {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;

class UnixSocket : public fo::test::FdCounting {
 protected:
  const fo::test::TempDir folder_;
  const std::string path_ = folder_.path("s");
};

TEST_F(UnixSocket, ConnectsAndKnowsThePeer) {
  const UniqueFd listener = listen_unix(path_);
  const UniqueFd client = connect_unix(path_, soon());
  const UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const PeerCredentials peer = peer_credentials(server.get());
  EXPECT_EQ(peer.pid, ::getpid());
  EXPECT_EQ(peer.uid, ::getuid());
  EXPECT_EQ(peer.gid, ::getgid());
  EXPECT_EQ(::fcntl(client.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(client.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(listener.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(UnixSocket, HasTheModeItWasGivenWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const UniqueFd narrow = listen_unix(path_, 0600);
  ::umask(077);
  const UniqueFd wide = listen_unix(path_ + "2", 0666);
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat((path_ + "2").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0666U);
}

TEST_F(UnixSocket, TakesPathsUpToTheLimit) {
  const std::string longest =
      folder_.path(std::string(kMaxSocketPath - folder_.path().size() - 1, 'x'));
  ASSERT_EQ(longest.size(), kMaxSocketPath);
  const UniqueFd listener = listen_unix(longest);
  EXPECT_TRUE(connect_unix(longest, soon()).valid());
  const std::string longer = longest + "x";
  for (const std::string& path : {std::string(), longer}) {
    EXPECT_EQ(failure_of([&] { listen_unix(path); }).status, ExitStatus::kUsage);
    EXPECT_EQ(failure_of([&] { connect_unix(path, soon()); }).status, ExitStatus::kUsage);
    EXPECT_EQ(failure_of([&] { is_socket_live(path); }).status, ExitStatus::kUsage);
  }
}

TEST_F(UnixSocket, APathInUseCannotBeCreated) {
  const UniqueFd listener = listen_unix(path_);
  const Failure failure = failure_of([&] { listen_unix(path_); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "bind socket '" + path_ + "': Address already in use");
}

TEST_F(UnixSocket, NobodyThereIsUnavailable) {
  EXPECT_EQ(failure_of([&] { connect_unix(path_, soon()); }).status, ExitStatus::kUnavailable);
  listen_unix(path_);  // leaves a dead socket behind
  const Failure failure = failure_of([&] { connect_unix(path_, soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "connect to socket '" + path_ + "': Connection refused");
}

TEST_F(UnixSocket, AFullBacklogIsWaitedForUntilTheDeadline) {
  const UniqueFd listener = listen_unix(path_, 0600, 0);
  std::vector<UniqueFd> waiting;
  Failure failure;
  while (failure.status == ExitStatus::kOk) {
    try {
      waiting.push_back(connect_unix(path_, Deadline::after(std::chrono::milliseconds(5))));
    } catch (const base::Error& error) {
      failure = {error.status(), error.what()};
    }
  }
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_TRUE(is_socket_live(path_));
}

TEST_F(UnixSocket, LiveMeansThatSomebodyListens) {
  EXPECT_FALSE(is_socket_live(path_));
  {
    const UniqueFd listener = listen_unix(path_);
    EXPECT_TRUE(is_socket_live(path_));
  }
  EXPECT_FALSE(is_socket_live(path_));
}

TEST_F(UnixSocket, ASocketOfAnotherTypeIsNotTakenForDead) {
  const UniqueFd datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(datagram.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(is_socket_live(path_));
}

}  // namespace
}  // namespace fo::os::test
