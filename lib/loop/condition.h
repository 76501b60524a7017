// Something changed: coroutines of one loop wait for it and look again.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fo::loop {

class Condition {
 public:
  explicit Condition(const boost::asio::any_io_executor& executor)
      : timer_(executor, boost::asio::steady_timer::time_point::max()) {}

  boost::asio::awaitable<void> wait() {
    boost::system::error_code cancelled;
    auto token = boost::asio::redirect_error(boost::asio::use_awaitable, cancelled);
    co_await timer_.async_wait(token);
  }
  void notify_all() { timer_.cancel(); }

 private:
  boost::asio::steady_timer timer_;
};

}  // namespace fo::loop
