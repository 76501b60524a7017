// Accepts the clients of a listening socket, one after the other, and waits while there is no
// descriptor, memory or place for the next one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "loop/event.h"
#include "os/log_limit.h"

namespace fo::loop {

class Acceptor {
 public:
  /// `listener` becomes non-blocking; other processes may accept from it, too. `what` begins the
  /// lines of the log: "accept a client". Throws Error(kOsError).
  Acceptor(const boost::asio::any_io_executor& executor, base::UniqueFd listener, std::string what);

  /// The next client, CLOEXEC and non-blocking; an invalid descriptor once this is closed. Accepts
  /// none while `is_full` is true. If the system has no descriptor or memory for another one,
  /// next() calls `make_room`, which returns true if it released some. If it did not, next() logs
  /// the reason, and tries again when notify_room() is called, or after 250 ms. Yields to the
  /// loop's other work after every few clients. One call at a time.
  boost::asio::awaitable<base::UniqueFd> next(const std::function<bool()>& is_full,
                                              const std::function<bool()>& make_room = {});

  /// To be called when a client has disconnected, so that there may be room for another one.
  void notify_room() { room_.notify(); }

  /// Ends the wait of next().
  void close() { release(); }

  /// Ends the wait of next(), and returns the listener; an invalid descriptor after that.
  base::UniqueFd release();

  /// The listener; -1 after release().
  [[nodiscard]] int fd() { return listener_.is_open() ? listener_.native_handle() : -1; }

 private:
  boost::asio::posix::stream_descriptor listener_;
  Event room_;
  std::string what_;
  os::LogLimit log_limit_;
  unsigned accepted_ = 0;
};

}  // namespace fo::loop
