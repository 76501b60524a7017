// Ends the waits on a socket of a loop at a deadline.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <memory>

#include "base/deadline.h"

namespace fo::loop {

/// Closes `socket` when the deadline passes, unless this object is destroyed before. The socket
/// must outlive it.
template <typename Socket>
class Alarm {
 public:
  Alarm(Socket& socket, const base::Deadline& deadline)
      : timer_(socket.get_executor()), state_(std::make_shared<State>(State{socket})) {
    if (!deadline.at()) return;
    timer_.expires_at(*deadline.at());
    timer_.async_wait(
        [weak = std::weak_ptr<State>(state_)](const boost::system::error_code& error) {
          const std::shared_ptr<State> state = weak.lock();
          if (error || !state) return;
          state->has_rung = true;
          boost::system::error_code ignored;
          state->socket.close(ignored);
        });
  }
  [[nodiscard]] bool has_rung() const { return state_->has_rung; }

 private:
  struct State {
    Socket& socket;
    bool has_rung = false;
  };
  boost::asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

}  // namespace fo::loop
