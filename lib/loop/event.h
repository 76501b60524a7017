// Ways for coroutines of one event loop to wait for a time, for each other, and for a descriptor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "base/deadline.h"

namespace fo::loop {

/// A change of state: it wakes the coroutines that wait for it, and they check the state again. A
/// notification without a waiter is lost; a wait may end without one.
class Event {
 public:
  explicit Event(const boost::asio::any_io_executor& executor)
      : timer_(std::make_shared<boost::asio::steady_timer>(
            executor, boost::asio::steady_timer::time_point::max())) {}
  void notify() { timer_->cancel(); }
  /// Waits until notify() or `deadline`.
  boost::asio::awaitable<void> wait(base::Deadline deadline = base::Deadline::never());

 private:
  // Shared, because a wait whose deadline passes while this object is destroyed still uses it.
  std::shared_ptr<boost::asio::steady_timer> timer_;
};

/// Waits until `fd` (-1: none) is ready for `events` of poll(2), or until `deadline`. The caller
/// keeps `fd` and leaves it open meanwhile. Needs no other descriptor. One wait for a descriptor at
/// a time. Throws Error(kOsError).
boost::asio::awaitable<void> until_ready(int fd, short events, base::Deadline deadline);

}  // namespace fo::loop
