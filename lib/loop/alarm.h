// Calls a function at a deadline unless it is cancelled, for example to close the socket of a slow
// operation.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <utility>

#include "base/deadline.h"

namespace fo::loop {

class Alarm {
 public:
  explicit Alarm(const boost::asio::any_io_executor& executor)
      : state_(std::make_shared<State>(executor)) {}

  /// Calls `ring` on the loop when the deadline passes, unless set() or cancel() is called or this
  /// object is destroyed before. `ring` may do any of these.
  template <typename Ring>
  void set(const base::Deadline& deadline, Ring ring) {
    cancel();
    if (deadline.is_never()) return;
    state_->timer.expires_at(*deadline.at());
    // A queued handler cannot be cancelled, so it checks whether it is outdated.
    state_->timer.async_wait([weak = std::weak_ptr(state_), setting = state_->setting,
                              ring = std::move(ring)](const boost::system::error_code&) mutable {
      const std::shared_ptr<State> state = weak.lock();
      if (state && state->setting == setting) ring();
    });
  }
  /// Prevents a call of the function that set() was given.
  void cancel() {
    ++state_->setting;
    state_->timer.cancel();
  }

 private:
  struct State {
    explicit State(const boost::asio::any_io_executor& executor) : timer(executor) {}
    boost::asio::steady_timer timer;
    unsigned setting = 0;
  };
  std::shared_ptr<State> state_;
};

}  // namespace fo::loop
