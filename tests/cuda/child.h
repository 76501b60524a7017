// For tests: a forked child with a channel of numbers and file descriptors to and from its parent.
// What EXPECT and ASSERT find in a child is printed there and seen by the parent as exit status 1.
// Fork children before the parent holds device memory: what they inherit they hold too.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"

namespace fo::cuda {

class Channel {
 public:
  struct Message {
    std::uint64_t value = 0;
    base::UniqueFd fd;
  };

  explicit Channel(base::UniqueFd socket) : socket_(std::move(socket)) {}

  void send(std::uint64_t value, int fd = -1) const {
    iovec data{&value, sizeof value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) fail("sendmsg");
  }

  /// Throws when the other side has ended.
  [[nodiscard]] Message receive() const {
    Message received;
    iovec data{&received.value, sizeof received.value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) fail("recvmsg");
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      received.fd.reset(fd);
    }
    if (got == 0) throw std::runtime_error("the other side of the channel has ended");
    return received;
  }
  void expect(std::uint64_t value) const { EXPECT_EQ(receive().value, value); }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }
  base::UniqueFd socket_;
};

class Child {
 public:
  /// `body(Channel&)` runs in the child; what it throws is a failure.
  template <typename Body>
  explicit Child(Body body) : Child(std::pair<int, int>(make_pair()), std::move(body)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  [[nodiscard]] Channel& channel() { return channel_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// The status of its end: what it exits with, or 128 + signal.
  int wait() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// SIGKILL, and waits.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }

 private:
  template <typename Body>
  Child(std::pair<int, int> sockets, Body body)
      : channel_(base::UniqueFd(sockets.first)), pid_(flush_and_fork()) {
    base::UniqueFd other(sockets.second);
    if (pid_ != 0) return;
    channel_ = Channel(std::move(other));
    int status = 1;
    try {
      body(channel_);
      status = ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child %d: %s\n", ::getpid(), error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  /// What is buffered would be printed by both.
  static pid_t flush_and_fork() {
    std::fflush(nullptr);
    return ::fork();
  }
  static std::pair<int, int> make_pair() {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
      throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    return {sockets[0], sockets[1]};
  }

  Channel channel_;
  pid_t pid_;
};

/// Returns when thread `tid`, which is on the way to sleep for good, is there.
inline void wait_until_asleep(pid_t tid) {
  for (std::string ignored, state; state != "S"; ::sched_yield()) {
    std::ifstream("/proc/" + std::to_string(tid) + "/stat") >> ignored >> ignored >> state;
  }
}

/// Runs `body` in a child; its exit status.
template <typename Body>
int in_child(Body body) {
  Child child([&](Channel&) { body(); });
  return child.wait();
}

}  // namespace fo::cuda
