#include "loop/children.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <exception>
#include <map>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/adopt.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process_tree.h"
#include "os/process/signals.h"

namespace fo::loop {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::UniqueFd;
using boost::system::error_code;
using Wait = asio::posix::descriptor_base;

constexpr std::size_t kMaxOutput = std::size_t{64} * 1024;

// One output of a program: its pipe, and the bytes read so far.
class Output {
 public:
  explicit Output(asio::io_context& io) : reader_(io) {
    os::Pipe pipe;
    writer_ = std::move(pipe.writer);
    adopt(reader_, std::move(pipe.reader), "watch a pipe");
    reader_.non_blocking(true);
  }
  [[nodiscard]] int writer() const { return writer_.get(); }
  void close_writer() { writer_.reset(); }

  // Reads to the end, so that the program never blocks on a full pipe.
  static awaitable<void> follow(std::shared_ptr<Output> output) {
    error_code error;
    while (!error) {
      co_await output->reader_.async_wait(Wait::wait_read,
                                          asio::redirect_error(asio::use_awaitable, error));
      if (!error) error = output->read_some();
      if (error == asio::error::would_block) error = {};
    }
  }

  // The output when the program has ended. Other processes may still have the pipe open and write
  // to it.
  std::string take() {
    while (text_.size() < kMaxOutput && !read_some()) {
    }
    error_code ignored;
    reader_.close(ignored);
    return std::move(text_);
  }

 private:
  error_code read_some() {
    std::array<char, 4096> chunk;
    error_code error;
    const std::size_t got = reader_.read_some(asio::buffer(chunk), error);
    text_.append(chunk.data(), std::min(kMaxOutput - text_.size(), got));
    return error;
  }

  asio::posix::stream_descriptor reader_;
  UniqueFd writer_;
  std::string text_;
};

// The state that run_captured and the callback at the end of its program share.
struct Ending {
  explicit Ending(asio::io_context& io) : notified(io.get_executor()) {}
  std::optional<os::WaitStatus> status;
  Event notified;
};

// Kills a program that still runs when the caller stops waiting, and its process group. The group's
// number cannot be reused before the program is reaped.
class GroupOwner {
 public:
  GroupOwner(pid_t group, std::shared_ptr<Ending> ending)
      : group_(group), ending_(std::move(ending)) {}
  GroupOwner(const GroupOwner&) = delete;
  GroupOwner& operator=(const GroupOwner&) = delete;
  ~GroupOwner() {
    if (!ending_->status) ::kill(-group_, SIGKILL);
  }

 private:
  pid_t group_;
  std::shared_ptr<Ending> ending_;
};

}  // namespace

struct Children::State {
  explicit State(asio::io_context& loop) : io(loop), signals(loop), reaped(loop.get_executor()) {}

  struct Started {
    os::Child child;
    std::function<void(os::WaitStatus)> on_end;
  };

  // Reaps ended children. False if no child is left, running or ended.
  bool reap() {
    for (;;) {
      const os::Reaped found = os::reap_any();
      if (found.none_left) return false;
      if (found.pid == 0) return true;
      reaped.notify();
      auto entry = started.extract(found.pid);
      if (entry && entry.mapped().on_end) entry.mapped().on_end(found.status);
    }
  }

  pid_t start(const std::vector<std::string>& argv, os::SpawnOptions options,
              std::function<void(os::WaitStatus)> on_end) {
    options.parent_death_signal = SIGKILL;
    os::Child child = os::spawn(argv, options);
    const pid_t pid = child.pid();
    started.emplace(pid, Started{std::move(child), std::move(on_end)});
    return pid;
  }

  static awaitable<void> watch(std::shared_ptr<State> state) {
    while (state->signals.is_open()) {
      while (os::read_signal(state->signals.native_handle()) != 0) {
      }
      state->reap();
      error_code ignored;
      co_await state->signals.async_wait(Wait::wait_read,
                                         asio::redirect_error(asio::use_awaitable, ignored));
    }
  }

  static awaitable<std::optional<os::Captured>> run(
      std::shared_ptr<State> state, std::vector<std::string> argv, Deadline deadline,
      std::vector<std::pair<std::string, std::string>> environment) {
    const UniqueFd nothing = os::open_file("/dev/null", O_RDONLY);
    const auto out = std::make_shared<Output>(state->io);
    const auto err = std::make_shared<Output>(state->io);
    const auto ending = std::make_shared<Ending>(state->io);
    os::SpawnOptions options;
    options.new_process_group = true;
    options.stdin_fd = nothing.get();
    options.stdout_fd = out->writer();
    options.stderr_fd = err->writer();
    options.environment = std::move(environment);
    const pid_t pid = state->start(argv, options, [ending](os::WaitStatus status) {
      ending->status = status;
      ending->notified.notify();
    });
    const GroupOwner owner(pid, ending);
    out->close_writer();
    err->close_writer();
    spawn(state->io, Output::follow(out));
    spawn(state->io, Output::follow(err));
    while (!ending->status && !deadline.expired()) co_await ending->notified.wait(deadline);
    os::Captured captured;
    captured.out = out->take();
    captured.err = err->take();
    if (!ending->status) co_return std::nullopt;
    captured.status = *ending->status;
    co_return captured;
  }

  static awaitable<void> end(std::shared_ptr<State> state, Deadline kill_at) {
    if (!state->reap()) co_return;
    os::signal_left(SIGTERM);
    Deadline kill_next = kill_at;
    while (state->reap()) {
      if (kill_next.expired()) {
        os::signal_left(SIGKILL);
        kill_next = Deadline::after(os::kAgainAfter);
      }
      co_await state->reaped.wait(kill_next);
    }
  }

  asio::io_context& io;
  asio::posix::stream_descriptor signals;
  std::map<pid_t, Started> started;
  Event reaped;
};

Children::Children(asio::io_context& io) : state_(std::make_shared<State>(io)) {
  os::become_subreaper();
  adopt(state_->signals, os::open_signal_fd(os::signal_set({SIGCHLD})), "watch SIGCHLD");
  spawn(io, State::watch(state_), [](const std::exception_ptr& failure) {
    // Throws out of io_context::run: without reaping, the process cannot continue.
    if (failure) std::rethrow_exception(failure);
  });
}

Children::~Children() {
  state_->started.clear();
  error_code ignored;
  state_->signals.close(ignored);
}

pid_t Children::start(const std::vector<std::string>& argv, const os::SpawnOptions& options,
                      std::function<void(os::WaitStatus)> on_end) {
  return state_->start(argv, options, std::move(on_end));
}

bool Children::signal(pid_t pid, int signal) {
  const auto found = state_->started.find(pid);
  return found != state_->started.end() && found->second.child.signal(signal);
}

awaitable<std::optional<os::Captured>> Children::run_captured(
    std::vector<std::string> argv, Deadline deadline,
    std::vector<std::pair<std::string, std::string>> environment) {
  return State::run(state_, std::move(argv), deadline, std::move(environment));
}

awaitable<void> Children::end_all(Deadline kill_at) { return State::end(state_, kill_at); }

}  // namespace fo::loop
