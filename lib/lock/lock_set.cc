#include "lock/lock_set.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/error.h"
#include "os/log.h"

namespace fo::lock {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;

// The interval of checks of the held locks during the wait for the next one.
constexpr base::Duration kLookEvery = std::chrono::milliseconds(200);

const FailoverLock& first_of(const std::vector<std::unique_ptr<FailoverLock>>& locks) {
  if (locks.size() < 2) throw Error(ExitStatus::kSoftware, "hold several locks: fewer than two");
  return *locks.front();
}

void add(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw_errno(errno, "watch a descriptor");
}

base::UniqueFd make_epoll() {
  base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw_errno(errno, "create an epoll descriptor");
  return epoll;
}

}  // namespace

LockSet::LockSet(std::string path, std::vector<std::unique_ptr<FailoverLock>> locks)
    : FailoverLock(std::move(path), first_of(locks).id()), locks_(std::move(locks)) {}

LockSet::~LockSet() {
  while (!locks_.empty()) locks_.pop_back();
}

FailoverLock::Result LockSet::acquire(const Deadline& deadline, int interrupt_fd,
                                      const os::Reminder& reminder) {
  const auto begin = Deadline::Clock::now();
  std::size_t held = 0;
  try {
    Result first;
    for (; held < locks_.size(); ++held) {
      Result result = acquire_next(held, deadline, interrupt_fd, reminder);
      if (result.outcome != os::LockWait::kLocked) {
        release_held(held);
        return result;
      }
      if (held == 0) first = result;
      first.is_new_file = first.is_new_file || result.is_new_file;
    }
    first.grant.waited = Deadline::Clock::now() - begin;
    return first;
  } catch (...) {
    release_held(held);
    throw;
  }
}

FailoverLock::Result LockSet::acquire_next(std::size_t index, const Deadline& deadline,
                                           int interrupt_fd, const os::Reminder& reminder) {
  FailoverLock& next = *locks_[index];
  if (index == 0) return next.acquire(deadline, interrupt_fd, reminder);
  const base::UniqueFd lost(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!lost) throw_errno(errno, "create an event descriptor");
  const base::UniqueFd interrupt = make_epoll();
  add(interrupt.get(), lost.get(), EPOLLIN);
  if (interrupt_fd >= 0) add(interrupt.get(), interrupt_fd, EPOLLIN);
  Deadline remind_at = reminder.next();
  std::optional<Error> loss;
  const auto look_after = [&] {
    try {
      if (!loss) loss = lost_before(index);
    } catch (const Error& error) {
      loss = error;
    }
    if (loss) ::eventfd_write(lost.get(), 1);
    if (!remind_at.expired()) return;
    reminder.remind();
    remind_at = reminder.next();
  };
  const Result result = next.acquire(deadline, interrupt.get(), {kLookEvery, look_after});
  if (!loss) return result;
  if (result.outcome == os::LockWait::kLocked) release_quietly(next);
  throw Error(*loss);
}

std::optional<Error> LockSet::lost_before(std::size_t end) const {
  std::optional<Error> loss;
  for (std::size_t i = 0; i < end; ++i) {
    const std::optional<Loss> one = locks_[i]->check();
    if (one && !loss) {
      loss =
          Error(one->status, "hold lock " + base::quoted(locks_[i]->path()) + ": " + one->reason);
    }
  }
  return loss;
}

void LockSet::release_held(std::size_t held) {
  while (held > 0) release_quietly(*locks_[--held]);
}

void LockSet::release_quietly(FailoverLock& lock) {
  try {
    lock.release();
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "{}", error.what());
  }
}

FailoverLock::Watch LockSet::watch() {
  epoll_ = make_epoll();
  Deadline at = Deadline::never();
  for (const auto& lock : locks_) {
    const Watch one = lock->watch();
    at = at.sooner(one.at);
    if (one.fd >= 0) add(epoll_.get(), one.fd, static_cast<std::uint32_t>(one.events));
  }
  return {epoll_.get(), POLLIN, at};
}

std::optional<Loss> LockSet::check() {
  std::optional<Loss> loss;
  // Each needs its check, because some are kept alive by it.
  for (const auto& lock : locks_) {
    std::optional<Loss> one = lock->check();
    if (!one) continue;
    one->reason = lock->path() + ": " + one->reason;
    if (!loss) loss = one;
    loss->end_by = loss->end_by.sooner(one->end_by);
    loss->overlap = std::max(loss->overlap, one->overlap);
    loss->is_overlap_known = loss->is_overlap_known && one->is_overlap_known;
  }
  return loss;
}

bool LockSet::is_confirmed() const {
  return std::all_of(locks_.begin(), locks_.end(),
                     [](const auto& lock) { return lock->is_confirmed(); });
}

void LockSet::release() {
  std::exception_ptr failure;
  for (std::size_t i = locks_.size(); i-- > 0;) {
    try {
      locks_[i]->release();
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<int> LockSet::fds() const {
  std::vector<int> all;
  for (const auto& lock : locks_) {
    const std::vector<int> fds = lock->fds();
    all.insert(all.end(), fds.begin(), fds.end());
  }
  return all;
}

}  // namespace fo::lock
