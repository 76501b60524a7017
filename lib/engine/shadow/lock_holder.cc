#include "engine/shadow/lock_holder.h"

#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "loop/blocking.h"
#include "loop/spawn.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;

// The time until the next check of a lock that cannot be watched, because no descriptor is left.
constexpr base::Duration kCheckInterval = std::chrono::milliseconds(20);

}  // namespace

LockHolder::LockHolder(asio::any_io_executor executor, Course& course,
                       std::unique_ptr<lock::FailoverLock> lock, lock::HolderReport report,
                       base::Duration report_interval,
                       std::function<void(const lock::Loss&)> on_loss,
                       std::function<void(const std::exception_ptr&)> on_failure)
    : executor_(std::move(executor)),
      course_(course),
      lock_(std::move(lock)),
      report_(std::move(report)),
      report_interval_(report_interval),
      on_loss_(std::move(on_loss)),
      on_failure_(std::move(on_failure)) {}

void LockHolder::enter(State state) {
  state_ = state;
  course_.changed().notify();
}

awaitable<lock::FailoverLock::Result> LockHolder::acquire() {
  std::function<lock::FailoverLock::Result()> body = [this] {
    const os::Reminder reminder{report_interval_, report_};
    return lock_->acquire(Deadline::never(), course_.interrupt_fd(), reminder);
  };
  enter(State::kAcquiring);
  std::exception_ptr failure;
  lock::FailoverLock::Result result;
  try {
    result = co_await loop::run_blocking<lock::FailoverLock::Result>(std::move(body));
  } catch (...) {
    failure = std::current_exception();
  }
  enter(result.outcome == os::LockWait::kLocked ? State::kHeld : State::kReleased);
  if (failure) std::rethrow_exception(failure);
  co_return result;
}

void LockHolder::watch() {
  enter(State::kWatched);
  loop::spawn(
      executor_, run_watch(),
      [this](const std::exception_ptr& error) {
        enter(State::kHeld);
        if (error) on_failure_(error);
      },
      stop_watch_.slot());
}

awaitable<void> LockHolder::run_watch() {
  for (;;) {
    const std::optional<lock::Loss> loss = lock_->check();
    if (loss) on_loss_(*loss);
    course_.changed().notify();
    lock::FailoverLock::Watch wait;
    try {
      wait = lock_->watch();
    } catch (const base::Error&) {  // no descriptor is left for it
      wait.at = Deadline::after(kCheckInterval);
    }
    // After a loss, the time that is left may only become shorter.
    if (loss && (loss->end_by.expired() || (wait.fd < 0 && wait.at.is_never()))) co_return;
    co_await loop::until_ready(wait.fd, wait.events, wait.at);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
  }
}

awaitable<void> LockHolder::end_watch() {
  stop_watch_.emit(asio::cancellation_type::terminal);
  while (state_ == State::kWatched) co_await course_.changed().wait();
}

awaitable<void> LockHolder::until_confirmed(Deadline deadline) {
  while (!lock_->is_confirmed()) {
    if (deadline.expired()) {
      throw base::Error(base::ExitStatus::kTryAgain, "hold lock " + base::quoted(lock_->path()) +
                                                         ": it could not be confirmed in time");
    }
    co_await course_.changed().wait(deadline);
    course_.check();
  }
}

awaitable<void> LockHolder::release() {
  // The watch ends first, because it calls the lock and waits on its descriptor, which release()
  // may close in another thread.
  co_await end_watch();
  course_.check();
  std::function<void()> body = [this] { lock_->release(); };
  co_await loop::run_blocking<void>(std::move(body));
  state_ = State::kReleased;
}

awaitable<bool> LockHolder::close(Deadline deadline) {
  while (state_ == State::kAcquiring && !deadline.expired()) {
    co_await course_.changed().wait(deadline);
  }
  if (state_ == State::kAcquiring) co_return false;
  co_await end_watch();
  lock_.reset();
  co_return true;
}

}  // namespace fo::engine
