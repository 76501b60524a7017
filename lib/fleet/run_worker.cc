#include "fleet/run_worker.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/register_worker.h"
#include "http/client.h"
#include "json/object.h"
#include "loop/backoff.h"
#include "loop/children.h"
#include "loop/daemon.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "net/line_buffer.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/process/process.h"
#include "os/process/process_tree.h"
#include "os/process/signals.h"

namespace fo::fleet {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;

constexpr Duration kFirstAttemptPause = std::chrono::milliseconds(50);
constexpr Duration kMaxAttemptPause = std::chrono::seconds(1);
// The timeout of one query of the worker.
constexpr Duration kQueryTimeout = std::chrono::seconds(2);
constexpr base::ByteCount kMaxAnswer = 64 * base::kKiB;
constexpr std::size_t kMaxEvent = 64 * 1024;

bool is_shadow(const std::string& program) {
  return program.substr(program.rfind('/') + 1) == "fo-shadow";
}

class WorkerRun {
 public:
  WorkerRun(Registry& registry, const RunOptions& options)
      : registry_(registry),
        options_(options),
        daemon_(loop::Daemon::for_children()),
        changed_(io_.get_executor()),
        children_(io_),
        card_(options.card),
        life_(*life_of(options.record.text)) {}

  int run() {
    start(daemon_.run([this](loop::Stop how) {
      stop_ = how;
      changed_.notify();
    }));
    loop::spawn(io_, live(), [this](std::exception_ptr error) {
      if (error) failure_ = std::move(error);
      io_.stop();
    });
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
    return *status_;
  }

 private:
  awaitable<void> live() {
    co_await register_first();
    try {
      start_command();
      start(publish());
      start(is_shadow(options_.command.front()) ? follow_events() : await_ready());
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
    while (!status_ && !stop_ && !failure_) co_await changed_.wait();
    set(Life::kDraining);
    if (!status_ && !failure_) co_await drain();
    const Deadline kill_at =
        Deadline::after(stop_ == loop::Stop::kNow ? Duration::zero() : options_.grace);
    start(kill_when_hurried());
    // Only the command gets the first signal: fo-shadow, or an engine, ends its own processes in
    // order.
    if (pid_) children_.signal(*pid_, SIGTERM);
    while (pid_ && !status_ && !kill_at.expired()) co_await changed_.wait(kill_at);
    co_await children_.end_all(kill_at);
    has_ended_ = true;
    if (registered_) co_await deregister_or_log(*registered_, options_.timeout);
  }

  // --- The record.

  // Throws permanent errors. After a transient one, publish() tries again.
  awaitable<void> register_first() {
    try {
      co_await enter(options_.record);
      published_ = life_;
    } catch (const KeyInUse&) {
      throw;
    } catch (const Error& error) {
      if (!loop::is_transient(error)) throw;
      os::log(os::LogLevel::kWarning, "{}: the worker starts without its record", error.what());
    }
  }

  // Writes the card and the record, and keeps the record.
  awaitable<void> enter(Record record) {
    if (card_) {
      const Deadline deadline = Deadline::after(options_.timeout);
      co_await registry_.put(*card_, deadline);
      card_.reset();
    }
    const Deadline deadline = Deadline::after(options_.timeout);
    registered_ = co_await registry_.register_record(std::move(record), deadline);
    start(registered_->maintain());
  }

  void set(Life life) {
    life_ = life;
    published_.reset();
    changed_.notify();
  }

  [[nodiscard]] std::string with_state(const std::string& text) const {
    const std::string changed = with_life(text, life_);
    return generation_ ? with_generation(changed, *generation_) : changed;
  }

  // Writes each state of the worker into the registry, and retries until that succeeds.
  awaitable<void> publish() {
    os::LogLimit log_limit;
    loop::Backoff backoff(kFirstAttemptPause, kMaxAttemptPause);
    for (;;) {
      Deadline again_at = Deadline::never();
      if (!published_) {
        try {
          co_await publish_once();
          backoff.reset();
          // The state may have changed meanwhile.
          if (!published_) continue;
        } catch (const Error& error) {
          log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
          again_at = Deadline::after(backoff.next());
        }
      }
      co_await changed_.wait(again_at);
      while (!again_at.is_never() && !again_at.expired()) co_await changed_.wait(again_at);
    }
  }

  awaitable<void> publish_once() {
    const Life life = life_;
    if (registered_) {
      const Deadline deadline = Deadline::after(options_.timeout);
      const Edit edit = [this](const std::string& text) { return with_state(text); };
      co_await registered_->edit(edit, deadline);
    } else {
      Record record = options_.record;
      record.text = with_state(record.text);
      co_await enter(std::move(record));
    }
    if (life == life_) published_ = life;
  }

  // --- The worker.

  void start_command() {
    os::SpawnOptions spawn;
    if (is_shadow(options_.command.front())) {
      spawn.keep_fds = {events_.writer.get()};
      spawn.environment = {{"FO_SHADOW_STATUS_FD", std::to_string(events_.writer.get())}};
    }
    pid_ = children_.start(options_.command, spawn, [this](os::WaitStatus status) {
      status_ = status;
      changed_.notify();
    });
    events_.writer.reset();
  }

  awaitable<void> await_ready() {
    std::string reason;
    if (!options_.ready_url.empty()) {
      const Deadline ready_by = Deadline::after(options_.ready_timeout);
      reason = co_await until_200(options_.ready_url, ready_by);
    }
    // If the worker has ended, its exit status is the result, not a timeout.
    if (stop_ || status_) co_return;
    if (!reason.empty()) {
      throw Error(ExitStatus::kUnavailable, "the worker was not ready within " +
                                                base::format_duration(options_.ready_timeout) +
                                                ": " + reason);
    }
    set(Life::kReady);
  }

  // Follows the events that fo-shadow writes.
  awaitable<void> follow_events() {
    net::LineBuffer lines(kMaxEvent);
    std::array<char, 4096> bytes;
    const Deadline never = Deadline::never();
    for (;;) {
      co_await loop::until_ready(events_.reader.get(), POLLIN, never);
      const ssize_t count = ::read(events_.reader.get(), bytes.data(), bytes.size());
      // A wait may end without anything to read.
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) co_return;
      lines.append({bytes.data(), static_cast<std::size_t>(count)});
      while (const std::optional<std::string> line = lines.take_line()) handle(*line);
    }
  }

  void handle(const std::string& line) {
    const auto event = fo::json::find_object(line, kMaxEvent);
    if (!event || stop_ || status_) return;
    const nlohmann::json* const generation = fo::json::find(*event, "generation");
    if (generation != nullptr && generation->is_number_unsigned()) {
      generation_ = generation->get<std::uint64_t>();
    }
    // The active engine drains during a switchover; "undrained" says that the switchover was
    // undone.
    const nlohmann::json* const name = fo::json::find(*event, "event");
    if (name != nullptr && *name == "draining") set(Life::kDraining);
    if (name != nullptr && *name == "undrained") set(Life::kReady);
    const nlohmann::json* const state = fo::json::find(*event, "state");
    if (state == nullptr || !state->is_string()) return;
    if (*state == "standby" || *state == "waking") set(Life::kSpare);
    if (*state == "active") set(Life::kReady);
    if (*state == "dead") set(Life::kDraining);
  }

  awaitable<void> drain() {
    if (options_.drain_url.empty()) co_return;
    const Deadline drain_by = Deadline::after(options_.drain_timeout);
    const std::string reason = co_await until_200(options_.drain_url, drain_by);
    if (!reason.empty()) {
      os::log(os::LogLevel::kWarning, "drain: requests may be aborted: {}", reason);
    }
  }

  // After a second signal, kills the remaining processes until all have ended.
  awaitable<void> kill_when_hurried() {
    while (stop_ != loop::Stop::kNow) co_await changed_.wait();
    while (!has_ended_) {
      os::signal_left(SIGKILL);
      co_await loop::pause_for(os::kAgainAfter);
    }
  }

  // Queries `url` until it answers 200, the worker has ended, or it must end at once. Returns the
  // reason of the last failed query; empty for success.
  awaitable<std::string> until_200(std::string url, Deadline deadline) {
    loop::Backoff backoff(kFirstAttemptPause, kMaxAttemptPause);
    std::string reason = "it has ended";
    while (!status_ && !failure_ && stop_ != loop::Stop::kNow) {
      try {
        const http::FetchOptions fetch{.response_limit = kMaxAnswer};
        const Deadline query_by = Deadline::after(kQueryTimeout).sooner(deadline);
        const http::Response answer = co_await http::async_fetch("GET", url, query_by, fetch);
        if (answer.status == 200) co_return std::string();
        reason = url + " answers " + std::to_string(answer.status);
      } catch (const Error& error) {
        reason = error.what();
      }
      if (deadline.expired()) break;
      const Deadline again_at = Deadline::after(backoff.next()).sooner(deadline);
      co_await changed_.wait(again_at);
    }
    co_return reason;
  }

  void start(awaitable<void> task) {
    loop::spawn(io_, std::move(task), [this](std::exception_ptr error) {
      if (!error || failure_) return;
      failure_ = std::move(error);
      changed_.notify();
    });
  }

  Registry& registry_;
  const RunOptions& options_;
  loop::Daemon daemon_;
  asio::io_context io_{1};
  loop::Event changed_;
  loop::Children children_;
  os::Pipe events_;
  // The card until it is written.
  std::optional<Record> card_;
  std::unique_ptr<RegisteredRecord> registered_;
  // The life that the record should have, and the one that it has as far as that is known.
  Life life_;
  std::optional<std::uint64_t> generation_;
  std::optional<Life> published_;
  std::optional<loop::Stop> stop_;
  // The command, once it is started.
  std::optional<pid_t> pid_;
  std::optional<os::WaitStatus> status_;
  // The command's processes have ended.
  bool has_ended_ = false;
  std::exception_ptr failure_;
};

}  // namespace

int run_worker(Registry& registry, const RunOptions& options) {
  return WorkerRun(registry, options).run();
}

}  // namespace fo::fleet
