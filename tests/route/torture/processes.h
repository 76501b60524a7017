// The processes of the torture: engines that are killed and started again at the same address, and
// the router before them.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "net/line_buffer.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/ports.h"
#include "support/soon.h"

namespace fo::torture {

class Engine {
 public:
  /// `argv` without the port. `on_line` gets each line of its standard error. Starts it.
  Engine(boost::asio::any_io_executor executor, std::vector<std::string> argv,
         std::function<void(Engine&, const std::string&)> on_line)
      : executor_(std::move(executor)),
        argv_(std::move(argv)),
        on_line_(std::move(on_line)),
        ended_(executor_) {
    argv_.insert(argv_.end(), {"--port", std::to_string(port_.number())});
    start();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() {
    if (!runs_) return;
    child_->signal(SIGKILL);
    static_cast<void>(child_->wait(base::Deadline::never()));
  }

  void start() {
    const base::UniqueFd null = os::open_file("/dev/null", O_RDWR);
    os::Pipe pipe;
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdin_fd = options.stdout_fd = null.get();
    options.stderr_fd = pipe.writer.get();
    child_.emplace(os::spawn(argv_, options));
    runs_ = true;
    loop::spawn(executor_, follow(std::move(pipe.reader)));
  }
  void signal(int signal) { child_->signal(signal); }
  /// Until it has ended, and all its lines were read; or until `deadline`.
  boost::asio::awaitable<void> until_ended(base::Deadline deadline) {
    while (runs_ && !deadline.expired()) co_await ended_.wait(deadline);
  }
  [[nodiscard]] bool runs() const { return runs_; }
  /// Of its last end.
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::uint16_t port() const { return port_.number(); }
  [[nodiscard]] std::string url(const std::string& path = "") const { return port_.url() + path; }

  /// It has been told to fail in a way that must not meet another such failure.
  bool is_armed = false;

 private:
  boost::asio::awaitable<void> follow(base::UniqueFd output) {
    net::LineBuffer lines(std::size_t{64} * 1024);
    std::array<char, 4096> space;
    for (;;) {
      co_await loop::until_ready(output.get(), POLLIN, base::Deadline::never());
      const ssize_t count = ::read(output.get(), space.data(), space.size());
      // A wait may end early, and makes the pipe non-blocking.
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) break;
      lines.append({space.data(), static_cast<std::size_t>(count)});
      while (const auto line = lines.take_line()) on_line_(*this, *line);
    }
    status_ = child_->wait(base::Deadline::never()).value_or(-1);
    runs_ = false;
    ended_.notify();
  }

  boost::asio::any_io_executor executor_;
  std::vector<std::string> argv_;
  std::function<void(Engine&, const std::string&)> on_line_;
  test::ReservedPort port_;
  std::optional<os::Child> child_;
  bool runs_ = false;
  int status_ = 0;
  loop::Event ended_;
};

/// fo-route, which serves when the constructor returns. No wait of a request that a busy machine
/// prolongs is limited, except that for the next token of a stream.
class Router {
 public:
  Router(const std::vector<std::string>& workers, const std::string& folder)
      : log_(folder + "/router.log"), child_(start(workers, folder)) {}
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;
  ~Router() {
    if (!runs_) return;
    child_.signal(SIGKILL);
    static_cast<void>(child_.wait(base::Deadline::never()));
  }

  /// Ends it; returns its status, or nullopt if it does not end.
  std::optional<int> stop() {
    child_.signal(SIGTERM);
    const std::optional<int> status = child_.wait(test::soon());
    runs_ = !status;
    return status;
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string metrics_url() const { return metrics_.url() + "/metrics"; }
  [[nodiscard]] const std::string& log() const { return log_; }
  [[nodiscard]] pid_t pid() const { return child_.pid(); }

 private:
  os::Child start(const std::vector<std::string>& workers, const std::string& folder) {
    os::Pipe ready;
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-route",
                                  "serve",
                                  "--listen",
                                  "127.0.0.1:0",
                                  "--ready-fd",
                                  std::to_string(ready.writer.get()),
                                  "--admin",
                                  folder + "/admin/route.sock",
                                  "--metrics",
                                  "127.0.0.1:" + std::to_string(metrics_.number()),
                                  "--slots",
                                  "16",
                                  "--slo-rate",
                                  "1",
                                  "--stream-timeout",
                                  "2s",
                                  "--lame-duck",
                                  "0s",
                                  "--log-format",
                                  "text"};
    for (const char* wait :
         {"--queue-timeout", "--resume-wait", "--first-token-timeout", "--client-timeout"}) {
      argv.insert(argv.end(), {wait, "1h"});
    }
    for (const std::string& worker : workers) argv.insert(argv.end(), {"--worker", worker});
    const base::UniqueFd log = os::open_file(log_, O_WRONLY | O_CREAT | O_APPEND);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.keep_fds = {ready.writer.get()};
    options.stderr_fd = log.get();
    os::Child child = os::spawn(argv, options);
    ready.writer.reset();
    std::string address;
    std::array<char, 64> space;
    while (address.empty() || address.back() != '\n') {
      const ssize_t count = ::read(ready.reader.get(), space.data(), space.size());
      if (count <= 0) {
        throw base::Error(base::ExitStatus::kSoftware, "start fo-route: it is not ready");
      }
      address.append(space.data(), static_cast<std::size_t>(count));
    }
    const std::string_view number(address.data() + address.rfind(':') + 1);
    port_ = static_cast<std::uint16_t>(
        base::parse_uint(number.substr(0, number.size() - 1)).value_or(0));
    return child;
  }

  std::string log_;
  test::ReservedPort metrics_;
  std::uint16_t port_ = 0;
  bool runs_ = true;
  os::Child child_;
};

}  // namespace fo::torture
