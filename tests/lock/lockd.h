// A lock server for tests: the real program, on a socket in a temporary folder, and optionally on a
// port, with leases.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "lock/lockd/lockd_state.h"
#include "lock/support.h"
#include "os/file/pipe.h"
#include "os/process/process.h"

namespace fo::test {

class Lockd {
 public:
  explicit Lockd(std::string socket, std::string window = "500ms")
      : socket_(std::move(socket)), window_(std::move(window)) {
    start();
  }
  /// Also listens on a port, with leases of `expiry`. Its state is a free lock, so that it does not
  /// wait for a holder. `more` are further options.
  static std::unique_ptr<Lockd> over_tcp(const std::string& socket,
                                         const std::string& expiry = "1s",
                                         std::vector<std::string> more = {}) {
    spill(socket + ".state", lock::encode_state({}));
    more.insert(more.end(), {"--expiry", expiry});
    return std::unique_ptr<Lockd>(new Lockd(socket, expiry, "127.0.0.1:0", std::move(more)));
  }
  Lockd(const Lockd&) = delete;
  Lockd& operator=(const Lockd&) = delete;
  ~Lockd() {
    if (child_) signal(SIGKILL);
  }

  /// Returns once it answers.
  void start() {
    os::Pipe pipe;
    const os::SpawnOptions options{.parent_death_signal = SIGKILL, .keep_fds = {pipe.writer.get()}};
    std::vector<std::string> command{
        FO_BUILD_DIR "/bin/gms-lockd", "-q",    "--socket",   socket_,
        "--reconnect-window",          window_, "--ready-fd", std::to_string(pipe.writer.get())};
    if (!address_.empty()) command.insert(command.end(), {"--listen", address_});
    command.insert(command.end(), more_.begin(), more_.end());
    child_ = std::make_unique<os::Child>(os::spawn(command, options));
    pipe.writer.reset();
    std::string ready;
    char next = 0;
    while (next != '\n') {
      ASSERT_EQ(::read(pipe.reader.get(), &next, 1), 1) << "gms-lockd did not get ready";
      if (next != '\n') ready += next;
    }
    // A restarted server gets the same port.
    if (!address_.empty()) address_ = ready;
  }
  /// Ends it by `signal` and returns its status; SIGSTOP and SIGCONT do not wait.
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
  /// "127.0.0.1:4711".
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const std::string& socket() const { return socket_; }

 private:
  Lockd(std::string socket, std::string window, std::string address, std::vector<std::string> more)
      : socket_(std::move(socket)),
        window_(std::move(window)),
        address_(std::move(address)),
        more_(std::move(more)) {
    start();
  }

  std::string socket_;
  std::string window_;
  std::string address_;
  std::vector<std::string> more_;
  std::unique_ptr<os::Child> child_;
};

}  // namespace fo::test
