// A child process of a test that sends numbers to it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/unique_fd.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/await.h"

namespace fo::test {

/// A child that runs `body`, which reports through the descriptor; it is killed and reaped at the
/// latest by the destructor.
class Forked {
 public:
  explicit Forked(const std::function<int(int ready_fd)>& body) {
    os::Pipe ready;
    ready_ = std::move(ready.reader);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    child_ = std::make_unique<os::Child>(
        os::fork_child([&] { return body(ready.writer.get()); }, options));
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    if (child_) kill();
  }

  /// The child's next number; nullopt if it has ended.
  std::optional<std::uint64_t> read() {
    std::uint64_t value = 0;
    if (::read(ready_.get(), &value, sizeof value) != sizeof value) return std::nullopt;
    return value;
  }
  [[nodiscard]] pid_t pid() const { return child_->pid(); }
  void kill() {
    child_->signal(SIGKILL);
    static_cast<void>(wait());
  }
  int wait() {
    const int status = child_->wait(base::Deadline::after(kLong)).value_or(-1);
    child_.reset();
    return status;
  }

 private:
  base::UniqueFd ready_;
  std::unique_ptr<os::Child> child_;
};

/// For a body that runs until the child is killed.
[[noreturn]] inline int pause_for_ever() {
  for (;;) ::pause();
}

inline void say(int fd, std::uint64_t value) {
  ASSERT_EQ(::write(fd, &value, sizeof value), static_cast<ssize_t>(sizeof value));
}

}  // namespace fo::test
