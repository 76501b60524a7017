#include "lock/lease/lease_lock.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "loop/adopt.h"
#include "loop/backoff.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "os/process/thread.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::BootClock;
using base::Deadline;
using base::ExitStatus;
using base::time_until;

constexpr base::Duration kReleaseTime = std::chrono::seconds(2);

// Sets the flag when `fd`, which the caller owns, becomes readable.
asio::posix::stream_descriptor watch_for(asio::io_context& loop, int fd,
                                         const std::shared_ptr<bool>& came) {
  asio::posix::stream_descriptor descriptor(loop);
  if (fd < 0) return descriptor;
  const std::string what = "wait for an interruption";
  loop::adopt(descriptor, loop::duplicate(fd, what), what);
  descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                        [came](const boost::system::error_code& ec) { *came = *came || !ec; });
  return descriptor;
}

}  // namespace

LeaseLock::LeaseLock(std::string path, std::string id, std::unique_ptr<LeaseClient> client)
    : FailoverLock(std::move(path), std::move(id)),
      client_(std::move(client)),
      timer_fd_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_fd_) base::throw_errno(errno, "create a timer");
}

LeaseLock::~LeaseLock() {
  if (is_held_) release();
}

std::optional<Lease> LeaseLock::wait(const Deadline& deadline, int interrupt_fd,
                                     const os::Reminder& reminder, bool& interrupted) {
  std::optional<Lease> lease;
  std::exception_ptr failure;
  bool done = false;
  const auto came = std::make_shared<bool>(false);
  Deadline remind_at = reminder.next();
  loop_.restart();
  {
    const asio::posix::stream_descriptor interruption = watch_for(loop_, interrupt_fd, came);
    asio::co_spawn(
        loop_, client_->acquire(),
        asio::bind_cancellation_slot(cancel_.slot(), [&](std::exception_ptr error, Lease granted) {
          done = true;
          failure = std::move(error);
          if (!failure) lease = granted;
        }));
    while (!done && !*came && !deadline.expired()) {
      const Deadline next = deadline.sooner(remind_at);
      next.is_never() ? loop_.run_one() : loop_.run_one_until(*next.at());
      if (!done && remind_at.expired()) {
        reminder.remind();
        remind_at = reminder.next();
      }
    }
  }
  const bool in_time = done;
  if (!done) cancel_.emit(asio::cancellation_type::terminal);
  while (!done) loop_.run_one();
  // Runs the handler of an end that was posted before the cancellation.
  loop_.poll();
  // The exception of the cancelled wait reports only the cancellation.
  if (in_time && failure) std::rethrow_exception(failure);
  interrupted = *came;
  return interrupted ? std::nullopt : lease;
}

FailoverLock::Result LeaseLock::acquire(const Deadline& deadline, int interrupt_fd,
                                        const os::Reminder& reminder) {
  const auto begin = Deadline::Clock::now();
  for (;;) {
    bool interrupted = false;
    std::optional<Lease> lease;
    try {
      lease = wait(deadline, interrupt_fd, reminder, interrupted);
      // A process that was stopped after its grant may have held it for too long.
      if (lease && time_until(LeaseTimes(lease->renewed).lose_at()) > base::Duration::zero()) {
        start_renewing(lease->renewed);
        return {os::LockWait::kLocked,
                {id(), lease->generation, lease->granted_at, Deadline::Clock::now() - begin}};
      }
    } catch (...) {
      request_release(os::LogLevel::kDebug);
      throw;
    }
    request_release(os::LogLevel::kDebug);
    if (!lease) return {interrupted ? os::LockWait::kInterrupted : os::LockWait::kDeadline, {}};
  }
}

void LeaseLock::start_renewing(const Renewal& first) {
  times_ = LeaseTimes(first);
  error_text_.clear();
  ended_.reset();
  lost_.reset();
  wake_at(times_->lose_at());
  loop_.restart();
  // The coroutine ends with the lease, or by cancellation; neither is reported. It stops the loop,
  // which may still have a timer of the client's connection: that stays open for the release.
  loop::spawn(
      loop_, keep_renewing(), [this](const std::exception_ptr&) { loop_.stop(); }, cancel_.slot());
  thread_ = os::start_signal_masked_thread([this] { loop_.run(); });
  is_held_ = true;
}

void LeaseLock::stop_renewing() {
  if (!thread_.joinable()) return;
  asio::post(loop_, [this] { cancel_.emit(asio::cancellation_type::terminal); });
  thread_.join();
}

awaitable<void> LeaseLock::keep_renewing() {
  asio::steady_timer timer(loop_);
  // The pauses are at most a tenth of the lease.
  loop::Backoff backoff(kFirstPause, std::clamp(times_->ttl() / 10, kFirstPause, kMaxPause));
  // Set after a failed attempt.
  std::optional<base::Duration> pause;
  for (;;) {
    // No other code writes it while this runs.
    const LeaseTimes times = *times_;
    timer.expires_after(pause.value_or(time_until(times.renew_at())));
    // The coroutine usually ends here, without an exception, because other code waits for that, and
    // a static program's first exception takes milliseconds.
    co_await asio::this_coro::throw_if_cancelled(false);
    const asio::cancellation_state before = co_await asio::this_coro::cancellation_state;
    if (before.cancelled() != asio::cancellation_type::none) co_return;
    boost::system::error_code ec;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return;
    co_await asio::this_coro::throw_if_cancelled(true);
    const base::Duration left = time_until(times.end());
    if (left <= base::Duration::zero()) co_return;
    std::variant<Renewal, LeaseEnded> answer;
    std::string error_text;
    base::Duration postponed{};
    try {
      answer = co_await client_->renew(Deadline::after(times.ttl() / 6));
    } catch (const Postponed& error) {
      error_text = error.what();
      postponed = std::min(error.pause(), times.ttl() / 6);
    } catch (const std::exception& error) {
      error_text = error.what();
    }
    if (error_text.empty()) backoff.reset();
    pause.reset();
    if (!error_text.empty()) pause = std::max(backoff.next(), postponed);
    const bool over = error_text.empty() && std::holds_alternative<LeaseEnded>(answer);
    const std::scoped_lock guard(mutex_);
    if (over) {
      ended_ = std::get<LeaseEnded>(answer);
    } else if (error_text.empty()) {
      times_ = LeaseTimes(std::get<Renewal>(answer));
    }
    // Wakes a caller that waits for the confirmation.
    if (over || error_text.empty() != error_text_.empty()) wake_at(BootClock::now());
    error_text_ = error_text;
    if (over) co_return;
  }
}

void LeaseLock::wake_at(BootClock::time_point time) const {
  const auto since = std::max(time.time_since_epoch(), std::chrono::nanoseconds(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  itimerspec at{};
  at.it_value.tv_sec = seconds.count();
  at.it_value.tv_nsec = (since - seconds).count();
  arm(at);
}

void LeaseLock::cancel_wake() const { arm({}); }

void LeaseLock::arm(const itimerspec& at) const {
  if (::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr) != 0) {
    base::throw_errno(errno, "set a timer");
  }
}

FailoverLock::Watch LeaseLock::watch() {
  if (!is_held_) return {};
  return {timer_fd_.get(), POLLIN, Deadline::never()};
}

std::optional<Loss> LeaseLock::check() {
  if (!is_held_) return std::nullopt;
  const std::scoped_lock guard(mutex_);
  if (!lost_) lost_ = find_loss();
  if (!lost_) {
    // A renewal has moved the time.
    wake_at(times_->lose_at());
    return std::nullopt;
  }
  // Computed for each call: this process may have been stopped, or the machine suspended.
  const BootClock::time_point now = BootClock::now();
  const auto active_since = lost_->is_ended ? lost_->times.sent() : lost_->times.end();
  Loss loss{lost_->status, lost_->reason, Deadline::after(time_until(lost_->end_by)),
            std::max(base::Duration::zero(), -time_until(active_since))};
  // During the lease, only the lock service knows whether an operator has freed the lock.
  loss.is_overlap_known =
      lost_->is_ended || loss.overlap > base::Duration::zero() || !client_->can_be_freed_early();
  if (loss.overlap > base::Duration::zero()) {
    loss.reason += fmt::format("; another may have been active for up to {:.3f}s",
                               base::seconds_of(loss.overlap));
  }
  now < lost_->end_by ? wake_at(lost_->end_by) : cancel_wake();
  return loss;
}

std::optional<LeaseLock::Lost> LeaseLock::find_loss() const {
  const BootClock::time_point now = BootClock::now();
  if (ended_) return Lost{*times_, ended_->status, ended_->reason, now, true};
  if (now < times_->lose_at()) return std::nullopt;
  return Lost{*times_, ExitStatus::kTryAgain,
              "the lease could not be renewed: " +
                  (error_text_.empty() ? "this process was suspended" : error_text_),
              times_->end_by(), false};
}

bool LeaseLock::is_confirmed() const {
  const std::scoped_lock guard(mutex_);
  return is_held_ && error_text_.empty() && !ended_ && BootClock::now() < times_->lose_at();
}

void LeaseLock::release() {
  stop_renewing();
  is_held_ = false;
  request_release(os::LogLevel::kWarning);
}

void LeaseLock::request_release(os::LogLevel level) {
  try {
    loop::run_to_end(loop_, client_->release(Deadline::after(kReleaseTime)));
  } catch (const std::exception& error) {
    os::log(level, "release lock {}, which expires by itself: {}", base::quoted(path()),
            error.what());
  }
}

}  // namespace fo::lock
