// Whether a fo-shadow is ending, and how fast. Its parts share one Course; the flow asks it after
// each wait.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <cerrno>
#include <cstdint>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/event.h"

namespace fo::engine {

/// Thrown to unwind the flow after the end has begun.
struct Ended {};

/// How fast a fo-shadow ends; it only increases.
enum class Urgency {
  kNone,      // no end was requested
  kGraceful,  // the end was requested: requests in flight may finish
  kFailed,    // a failure ends the engine: it gets SIGTERM first
  kKill,      // nothing is waited for any more
};

class Course {
 public:
  /// Throws Error(kOsError).
  explicit Course(const boost::asio::any_io_executor& executor)
      : changed_(executor), interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) base::throw_errno(errno, "create an eventfd");
  }

  [[nodiscard]] Urgency urgency() const { return urgency_; }
  [[nodiscard]] bool is_ending() const { return urgency_ != Urgency::kNone; }
  [[nodiscard]] bool is_graceful() const { return urgency_ == Urgency::kGraceful; }
  /// Throws Ended once the end has begun.
  void check() const {
    if (is_ending()) throw Ended{};
  }

  /// Wakes all that wait for changed() or on interrupt_fd().
  void raise(Urgency urgency) {
    urgency_ = std::max(urgency_, urgency);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(interrupt_.get(), &one, sizeof one);
    changed_.notify();
  }

  /// Notified whenever the state of a part has changed.
  loop::Event& changed() { return changed_; }
  /// Readable once the end has begun; for blocking calls on threads.
  [[nodiscard]] int interrupt_fd() const { return interrupt_.get(); }

 private:
  Urgency urgency_ = Urgency::kNone;
  loop::Event changed_;
  base::UniqueFd interrupt_;
};

}  // namespace fo::engine
