// For tests: a forked child with a channel of numbers and file descriptors to its parent. Failures
// of EXPECT and ASSERT in a child are printed there and seen by the parent as exit status 1. Fork
// children before the parent holds device memory, because they inherit it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "os/process/process.h"
#include "os/socket/fd_passing.h"
#include "support/await.h"

namespace fo::cuda {

class Channel {
 public:
  struct Message {
    std::uint64_t value = 0;
    base::UniqueFd fd;
  };

  Channel() = default;
  explicit Channel(base::UniqueFd socket) : socket_(std::move(socket)) {}

  void send(std::uint64_t value, int fd = -1) const {
    const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
    const auto sent = os::send_with_fds(socket_.get(), std::as_bytes(std::span(&value, 1)), fds);
    if (sent < 0) base::throw_errno(static_cast<int>(-sent), "send to the other process");
  }

  /// Throws if the peer has ended.
  [[nodiscard]] Message receive() const {
    Message received;
    std::vector<base::UniqueFd> fds;
    const auto got = os::receive_with_fds(
        socket_.get(), std::as_writable_bytes(std::span(&received.value, 1)), fds);
    if (got < 0) base::throw_errno(static_cast<int>(-got), "hear from the other process");
    if (got == 0) throw std::runtime_error("the other side of the channel has ended");
    if (!fds.empty()) received.fd = std::move(fds.front());
    return received;
  }
  void expect(std::uint64_t value) const { EXPECT_EQ(receive().value, value); }

 private:
  base::UniqueFd socket_;
};

class Child {
 public:
  /// Runs `body(Channel&)` in the child; an exception is a failure.
  template <typename Body>
  explicit Child(Body body) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
      base::throw_errno(errno, "create a pair of sockets");
    }
    channel_ = Channel(base::UniqueFd(sockets[0]));
    Channel other{base::UniqueFd(sockets[1])};
    // Otherwise both processes would print the buffered output.
    std::fflush(nullptr);
    process_ = std::make_unique<os::Child>(os::fork_child([&] {
      const Flush flush;
      channel_ = std::move(other);
      body(channel_);
      return ::testing::Test::HasFailure() ? 1 : 0;
    }));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  [[nodiscard]] Channel& channel() { return channel_; }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }

  /// Its exit status, or 128 + signal.
  int wait() {
    const auto status = process_->wait(base::Deadline::never());
    process_.reset();
    return *status;
  }
  /// Sends SIGKILL, and waits.
  void kill() {
    if (!process_) return;
    process_->signal(SIGKILL);
    wait();
  }

 private:
  struct Flush {
    ~Flush() { std::fflush(nullptr); }
  };

  Channel channel_;
  std::unique_ptr<os::Child> process_;
};

/// Returns when thread `tid`, which is about to sleep for ever, sleeps.
inline void wait_until_asleep(pid_t tid) {
  for (std::string ignored, state; state != "S"; test::pause_between_looks()) {
    std::ifstream("/proc/" + std::to_string(tid) + "/stat") >> ignored >> ignored >> state;
  }
}

/// Runs `body` in a child; returns its exit status.
template <typename Body>
int in_child(Body body) {
  Child child([&](Channel&) { body(); });
  return child.wait();
}
template <typename Body>
void expect_in_child(Body body) {
  EXPECT_EQ(in_child(body), 0);
}

}  // namespace fo::cuda
