// A lock server for tests: the real program, on a socket in a temporary folder.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "lock/support.h"
#include "os/process.h"

namespace fo::test {

class Lockd {
 public:
  explicit Lockd(std::string socket, std::string window = "500ms")
      : socket_(std::move(socket)), window_(std::move(window)) {
    start();
  }
  Lockd(const Lockd&) = delete;
  Lockd& operator=(const Lockd&) = delete;
  ~Lockd() {
    if (child_) signal(SIGKILL);
  }

  /// Returns when it answers.
  void start() {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const base::UniqueFd reader(ends[0]);
    base::UniqueFd writer(ends[1]);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.keep_fds = {writer.get()};
    child_ = std::make_unique<os::Child>(
        os::spawn({FO_BUILD_DIR "/bin/gms-lockd", "-q", "--socket", socket_, "--reconnect-window",
                   window_, "--ready-fd", std::to_string(writer.get())},
                  options));
    writer.reset();
    char newline = 0;
    ASSERT_EQ(::read(reader.get(), &newline, 1), 1) << "gms-lockd did not get ready";
  }
  /// Ends it by `signal`, or stops it for SIGSTOP; returns its status.
  int signal(int signal) {
    child_->signal(signal);
    if (signal == SIGSTOP || signal == SIGCONT) return 0;
    const int status = child_->wait(base::Deadline::after(kLong)).value_or(-1);
    child_.reset();
    return status;
  }
  void restart() {
    EXPECT_EQ(signal(SIGTERM), 0);
    start();
  }
  [[nodiscard]] pid_t pid() const { return child_->pid(); }

 private:
  std::string socket_;
  std::string window_;
  std::unique_ptr<os::Child> child_;
};

}  // namespace fo::test
