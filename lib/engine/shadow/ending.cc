#include "engine/shadow/ending.h"

#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "json/object.h"
#include "lock/status_events.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "os/process/process_tree.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;

// Time in which an engine that does not answer is found to be dead.
constexpr base::Duration kDeathTimeout = std::chrono::seconds(1);
// Time limit for a thread that waits for the lock to return after its interruption.
constexpr base::Duration kReturnTimeout = std::chrono::seconds(5);

}  // namespace

void Ending::request() {
  os::log(os::LogLevel::kInfo, "received a signal: ending");
  if (parts_.course.is_ending()) return kill_all();
  begin(Urgency::kGraceful, {});
}

void Ending::fail(Error error) {
  const int status = base::to_int(error.status());
  begin(Urgency::kFailed, {status, std::move(error)});
}

void Ending::fail(const std::exception_ptr& error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const Ended&) {
  } catch (const Error& known) {
    fail(known);
  } catch (const std::exception& other) {
    fail(Error(ExitStatus::kSoftware, other.what()));
  }
}

void Ending::engine_ended(os::WaitStatus status) {
  os::log(os::LogLevel::kError, "the engine ended with status {}, while {}", status,
          state_name(parts_.life.state()));
  // No process is left that would end the engine's other processes properly.
  begin(Urgency::kFailed, {status, std::nullopt, Deadline::after(base::Duration::zero())});
}

awaitable<void> Ending::fail_after_death(Error error) {
  const Deadline dead_by = Deadline::after(kDeathTimeout);
  while (error.status() == ExitStatus::kUnavailable && parts_.engine.is_running() &&
         !parts_.course.is_ending() && !dead_by.expired()) {
    co_await parts_.course.changed().wait(dead_by);
  }
  fail(std::move(error));
}

void Ending::lose(const lock::Loss& loss) {
  // The engine is killed before anything else, because another one may be active already.
  if (loss.end_by.expired()) parts_.engine.kill();
  // It may turn out later for how long another engine was active.
  const bool is_first = !overlap_;
  if (!is_first && loss.overlap <= *overlap_) return;
  overlap_ = loss.overlap;
  events_.write("lost", R"("reason":)" + fo::json::dump(loss.reason) + R"(,"overlap":)" +
                            lock::overlap_json(loss));
  if (!is_first) return;
  if (parts_.course.is_ending()) return kill_all();
  Error error(loss.status, "hold lock " + base::quoted(parts_.lock->path()) + ": " + loss.reason);
  begin(Urgency::kFailed, {base::to_int(loss.status), std::move(error), loss.end_by});
}

int Ending::result() {
  if (reason_->failure) throw *std::move(reason_->failure);
  return reason_->status;
}

void Ending::begin(Urgency urgency, Reason reason) {
  if (parts_.course.is_ending()) return;
  reason_ = std::move(reason);
  parts_.life.report_stopping();
  parts_.course.raise(urgency);
  loop::spawn(io_, finish(), [this](const std::exception_ptr& error) {
    if (error) abort();
  });
}

void Ending::kill_all() {
  parts_.registration.cut();
  if (parts_.course.urgency() != Urgency::kKill) {
    loop::spawn(io_, keep_killing(), [this](const std::exception_ptr& error) { fail(error); });
  }
  parts_.course.raise(Urgency::kKill);
}

awaitable<void> Ending::keep_killing() {
  for (;;) {
    os::signal_left(SIGKILL);
    co_await loop::pause_for(os::kAgainAfter);
  }
}

// Ends the parts that clients see first, then the engine, and the lock last.
awaitable<void> Ending::finish() {
  if (!parts_.course.is_graceful()) parts_.registration.cut();
  parts_.monitor.cease();
  // If another engine may have the lock, or this one is dead, no command is waited for.
  if (overlap_ || (!parts_.engine.is_running() && !parts_.course.is_graceful()))
    co_await end_engine();
  co_await parts_.registration.close();
  parts_.life.step(LifeEvent::kEnded);
  parts_.server.reset();
  co_await end_engine();
  parts_.gms.release();
  if (parts_.lock) {
    const Deadline return_by = Deadline::after(kReturnTimeout);
    const bool is_closed = co_await parts_.lock->close(return_by);
    if (!is_closed) {
      os::log(os::LogLevel::kError, "the lock's file system does not answer");
      if (reason_->failure) os::log(os::LogLevel::kError, "{}", reason_->failure->what());
      report_end();
      ::_exit(reason_->status);
    }
  }
  report_end();
  io_.stop();
}

awaitable<void> Ending::end_engine() {
  const bool is_killed = parts_.course.urgency() == Urgency::kKill;
  const Deadline grace = Deadline::after(is_killed ? base::Duration::zero() : grace_);
  const Deadline kill_at = reason_->kill_at.sooner(grace);
  co_await parts_.engine.end_all(kill_at);
}

void Ending::report_end() const {
  events_.write("ended", R"("status":)" + std::to_string(reason_->status));
}

void Ending::abort() {
  os::log(os::LogLevel::kError, "killing the engine's remaining processes");
  parts_.registration.cut();
  parts_.engine.kill();
  const Deadline dead_by = Deadline::after(grace_);
  for (os::Reaped dead; !dead.none_left && !dead_by.expired();) {
    os::signal_left(SIGKILL);
    std::this_thread::sleep_for(os::kAgainAfter);
    while ((dead = os::reap_any()).pid != 0) continue;
  }
  ::_exit(base::to_int(ExitStatus::kSoftware));
}

}  // namespace fo::engine
