#include "lock/lease_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

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
#include <csignal>
#include <utility>

#include "base/error.h"
#include "os/log.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::BootClock;
using base::Deadline;
using base::Error;
using base::ExitStatus;

constexpr base::Duration kReleaseTime = std::chrono::seconds(2);
// Between tries to renew; it doubles up to a tenth of the lease.
constexpr base::Duration kFirstPause = std::chrono::milliseconds(50);

base::Duration until(BootClock::time_point time) {
  return std::chrono::duration_cast<base::Duration>(time - BootClock::now());
}

// Sets the flag when `fd`, which stays its owner's, becomes readable.
asio::posix::stream_descriptor watch_for(asio::io_context& loop, int fd,
                                         const std::shared_ptr<bool>& came) {
  asio::posix::stream_descriptor descriptor(loop);
  if (fd < 0) return descriptor;
  base::UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!own) base::throw_errno(errno, "wait for an interruption");
  descriptor.assign(own.get());
  static_cast<void>(own.release());
  descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                        [came](const boost::system::error_code& ec) { *came = *came || !ec; });
  return descriptor;
}

// Signals are for the thread that holds the lock.
std::thread start_deaf_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

LeaseLock::LeaseLock(std::string path, std::string id, std::unique_ptr<LeaseClient> client)
    : FailoverLock(std::move(path), std::move(id)),
      client_(std::move(client)),
      timer_fd_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_fd_) base::throw_errno(errno, "create a timer");
}

LeaseLock::~LeaseLock() {
  if (!is_held_) return;
  try {
    release();
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kWarning, "{}", error.what());
  }
}

std::optional<Lease> LeaseLock::wait(const Deadline& deadline, int interrupt_fd,
                                     const os::Reminder& reminder, bool& interrupted) {
  std::optional<Lease> lease;
  std::exception_ptr failure;
  bool done = false;
  const auto came = std::make_shared<bool>(false);
  const auto next_reminder = [&] {
    const bool reminds = reminder.every > base::Duration::zero();
    return reminds ? Deadline::after(reminder.every) : Deadline::never();
  };
  Deadline remind_at = next_reminder();
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
        remind_at = next_reminder();
      }
    }
  }
  const bool in_time = done;
  if (!done) cancel_.emit(asio::cancellation_type::terminal);
  while (!done) loop_.run_one();
  // What the cancelled wait threw says no more than that it was cancelled.
  if (in_time && failure) std::rethrow_exception(failure);
  interrupted = *came;
  return interrupted ? std::nullopt : lease;
}

FailoverLock::Result LeaseLock::acquire(const Deadline& deadline, int interrupt_fd,
                                        const os::Reminder& reminder) {
  const auto begin = Deadline::Clock::now();
  for (;;) {
    bool interrupted = false;
    const std::optional<Lease> lease = wait(deadline, interrupt_fd, reminder, interrupted);
    // A process that was stopped with its grant in hand may have had it for too long.
    if (lease && until(LeaseTimes(lease->renewed).lose_at()) > base::Duration::zero()) {
      start_renewing(lease->renewed);
      const Grant grant{id(), lease->generation, lease->granted_at, Deadline::Clock::now() - begin};
      return {os::LockWait::kLocked, grant};
    }
    try {
      tell_release();
    } catch (const Error&) {  // it ends by itself
    }
    if (!lease) return {interrupted ? os::LockWait::kInterrupted : os::LockWait::kDeadline, {}};
  }
}

void LeaseLock::start_renewing(const Renewal& first) {
  times_ = LeaseTimes(first);
  trouble_.clear();
  ended_.reset();
  loss_.reset();
  wake_at(times_->lose_at());
  loop_.restart();
  asio::co_spawn(loop_, keep_renewing(),
                 asio::bind_cancellation_slot(cancel_.slot(), [this](std::exception_ptr error) {
                   if (!error) return;
                   try {
                     std::rethrow_exception(error);
                   } catch (const std::exception& reason) {
                     const std::scoped_lock guard(mutex_);
                     ended_ = LeaseEnded{ExitStatus::kSoftware, reason.what()};
                     wake_at(BootClock::now());
                   }
                 }));
  thread_ = start_deaf_thread([this] { loop_.run(); });
  is_held_ = true;
}

void LeaseLock::stop_renewing() {
  if (!thread_.joinable()) return;
  asio::post(loop_, [this] { cancel_.emit(asio::cancellation_type::terminal); });
  thread_.join();
}

awaitable<void> LeaseLock::keep_renewing() {
  asio::steady_timer timer(loop_);
  base::Duration pause = kFirstPause;
  bool is_troubled = false;
  for (;;) {
    // Nobody else writes it while this runs.
    const LeaseTimes times = *times_;
    timer.expires_after(is_troubled ? pause : until(times.renew_at()));
    // Here it ends as a rule, and others wait for that: the first exception of a static program
    // takes milliseconds.
    co_await asio::this_coro::throw_if_cancelled(false);
    boost::system::error_code ec;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return;
    co_await asio::this_coro::throw_if_cancelled(true);
    const base::Duration left = until(times.end());
    if (left <= base::Duration::zero()) co_return;
    std::variant<Renewal, LeaseEnded> answer;
    std::string trouble;
    try {
      answer = co_await client_->renew(Deadline::after(times.ttl() / 6));
    } catch (const Error& error) {
      trouble = error.what();
    }
    if (trouble.empty()) {
      pause = kFirstPause;
    } else {
      pause = std::min(pause * 2, times.ttl() / 10);
    }
    const bool over = trouble.empty() && std::holds_alternative<LeaseEnded>(answer);
    const std::scoped_lock guard(mutex_);
    if (over) {
      ended_ = std::get<LeaseEnded>(answer);
    } else if (trouble.empty()) {
      times_ = LeaseTimes(std::get<Renewal>(answer));
    }
    // Whoever waits for it to be confirmed looks again.
    if (over || trouble.empty() != trouble_.empty()) wake_at(BootClock::now());
    trouble_ = trouble;
    is_troubled = !trouble.empty();
    if (over) co_return;
  }
}

void LeaseLock::wake_at(BootClock::time_point time) const {
  const auto since = std::max(time.time_since_epoch(), std::chrono::nanoseconds(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  itimerspec at{};
  at.it_value.tv_sec = seconds.count();
  at.it_value.tv_nsec = (since - seconds).count();
  ::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

FailoverLock::Watch LeaseLock::watch() {
  if (loss_ || !is_held_) return {};
  return {timer_fd_.get(), POLLIN, Deadline::never()};
}

std::optional<Loss> LeaseLock::check() {
  if (is_held_ && !loss_) loss_ = look();
  return loss_;
}

std::optional<Loss> LeaseLock::look() {
  const std::scoped_lock guard(mutex_);
  const BootClock::time_point now = BootClock::now();
  Loss loss;
  if (ended_) {
    loss.status = ended_->status;
    loss.reason = ended_->reason;
    loss.end_by = Deadline::after(base::Duration::zero());
  } else if (now >= times_->lose_at()) {
    loss.status = ExitStatus::kTryAgain;
    loss.reason = "the lease could not be renewed: " +
                  (trouble_.empty() ? "this process did not run" : trouble_);
    loss.end_by = Deadline::after(until(times_->end_by()));
  } else {
    // After a renewal it is later than it was.
    wake_at(times_->lose_at());
    return std::nullopt;
  }
  loss.overlap = std::max(base::Duration::zero(), -until(times_->end()));
  if (loss.overlap > base::Duration::zero()) {
    loss.reason += fmt::format("; it ended {:.3f}s ago, and another may have been active since",
                               std::chrono::duration<double>(loss.overlap).count());
  }
  return loss;
}

bool LeaseLock::is_confirmed() const {
  const std::scoped_lock guard(mutex_);
  return is_held_ && trouble_.empty() && !ended_ && BootClock::now() < times_->lose_at();
}

void LeaseLock::release() {
  stop_renewing();
  is_held_ = false;
  try {
    tell_release();
  } catch (const Error& error) {
    throw Error(ExitStatus::kUnavailable,
                "give lock " + base::quoted(path()) + " up: " + error.what());
  }
}

void LeaseLock::tell_release() {
  std::exception_ptr failure;
  loop_.restart();
  asio::co_spawn(loop_, client_->release(Deadline::after(kReleaseTime)),
                 [&](std::exception_ptr error) { failure = std::move(error); });
  loop_.run();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::lock
