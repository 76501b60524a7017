#include "os/socket/fd_passing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "support.h"
#include "support/fds.h"

namespace fo::os::test {
namespace {

using base::UniqueFd;
using Bytes = std::array<std::byte, 4>;

constexpr Bytes kBytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

struct SocketPair {
  UniqueFd left;
  UniqueFd right;
  SocketPair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    left.reset(ends[0]);
    right.reset(ends[1]);
  }
};

ino_t inode_of(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_ino;
}

class FdPassing : public fo::test::FdCounting {
 protected:
  SocketPair sockets_;
  std::vector<UniqueFd> fds_;
  Bytes buffer_{};
};

TEST_F(FdPassing, ADescriptorArrivesWithTheBytesAndIsCloexec) {
  const Pipe pipe;
  const std::array<int, 1> sent{pipe.reader.get()};
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, sent), 4);
  ASSERT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 4);
  EXPECT_EQ(buffer_, kBytes);
  ASSERT_EQ(fds_.size(), 1U);
  EXPECT_EQ(inode_of(fds_[0].get()), inode_of(pipe.reader.get()));
  EXPECT_EQ(::fcntl(fds_[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(FdPassing, BytesTravelWithoutDescriptors) {
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, {}), 4);
  ASSERT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 4);
  EXPECT_TRUE(fds_.empty());
}

TEST_F(FdPassing, TheMostThatTheKernelAllowsArrive) {
  const std::vector<int> many(kMaxFdsPerMessage, sockets_.left.get());
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, many), 4);
  ASSERT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 4);
  EXPECT_EQ(fds_.size(), kMaxFdsPerMessage);
}

TEST_F(FdPassing, OneMoreIsRefused) {
  const std::vector<int> many(kMaxFdsPerMessage + 1, sockets_.left.get());
  EXPECT_EQ(send_with_fds(sockets_.left.get(), kBytes, many), -EINVAL);
}

TEST_F(FdPassing, DescriptorsNeverTravelWithoutBytes) {
  const std::array<int, 1> sent{sockets_.left.get()};
  EXPECT_EQ(send_with_fds(sockets_.left.get(), {}, sent), -EINVAL);
}

TEST_F(FdPassing, TwoWhereOneWasExpectedAreBothOwned) {
  const std::array<int, 2> sent{sockets_.left.get(), sockets_.right.get()};
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, sent), 4);
  ASSERT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 4);
  EXPECT_EQ(fds_.size(), 2U);
}

TEST_F(FdPassing, DescriptorsOfDifferentMessagesDoNotMix) {
  const std::array<int, 1> sent{sockets_.left.get()};
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, sent), 4);
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, sent), 4);
  std::array<std::byte, 64> large{};
  EXPECT_EQ(receive_with_fds(sockets_.right.get(), large, fds_), 4);
  EXPECT_EQ(fds_.size(), 1U);
  EXPECT_EQ(receive_with_fds(sockets_.right.get(), large, fds_), 4);
  EXPECT_EQ(fds_.size(), 2U);
}

TEST_F(FdPassing, SeveralControlMessagesOfOneSendAreAllOwned) {
  iovec part{const_cast<std::byte*>(kBytes.data()), kBytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, 2 * CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = sockets_.left.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ASSERT_EQ(::sendmsg(sockets_.left.get(), &message, 0), 4);
  ASSERT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 4);
  EXPECT_EQ(fds_.size(), 2U);
}

TEST_F(FdPassing, AFullDescriptorTableIsAnErrorThatLeaksNothing) {
  const std::vector<int> many(8, sockets_.left.get());
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, many), 4);
  const fo::test::FewDescriptors few(3);
  EXPECT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), -EMSGSIZE);
  EXPECT_LE(fds_.size(), 3U);
}

TEST_F(FdPassing, AClosedPeerIsTheEndAndNoSignal) {
  sockets_.left.reset();
  EXPECT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), 0);
  EXPECT_EQ(send_with_fds(sockets_.right.get(), kBytes, {}), -EPIPE);
}

TEST_F(FdPassing, UnreadDescriptorsAreGoneWithTheSocket) {
  Pipe pipe;
  const std::array<int, 1> sent{pipe.writer.get()};
  ASSERT_EQ(send_with_fds(sockets_.left.get(), kBytes, sent), 4);
  sockets_.left.reset();
  sockets_.right.reset();
  pipe.writer.reset();
  EXPECT_EQ(read_to_end(pipe.reader.get()), "");
}

TEST_F(FdPassing, AnEmptyNonBlockingSocketIsEagain) {
  ASSERT_EQ(::fcntl(sockets_.right.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(receive_with_fds(sockets_.right.get(), buffer_, fds_), -EAGAIN);
}

}  // namespace
}  // namespace fo::os::test
