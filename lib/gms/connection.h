// One client's socket on the server's event loop: frames in, frames and descriptors out, and
// whether the client is still there. Knows nothing of what the frames say.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"

namespace fo::gms {

class Connection {
 public:
  /// Takes a connected, non-blocking socket.
  Connection(boost::asio::io_context& io, base::UniqueFd socket);

  /// The next frame's body, valid until the next call. nullopt when the client is gone, broke off
  /// inside a frame, or sent nothing whole within `timeout`. Throws Error(kProtocol) for a frame of
  /// over kMaxRequestFrame. Descriptors that come along are closed.
  boost::asio::awaitable<std::optional<std::string_view>> read_frame(
      std::optional<base::Duration> timeout);

  /// Sends a whole frame, `fds` with its first byte. False when the client is gone or did not take
  /// it within `timeout`.
  boost::asio::awaitable<bool> write_frame(std::string_view frame, std::vector<base::UniqueFd> fds,
                                           base::Duration timeout);

  /// Returns when the client is gone or `stop` is called; reads ahead what comes meanwhile (a
  /// client may pipeline), at most one frame's worth: one that sends more counts as gone. Not
  /// while read_frame runs.
  boost::asio::awaitable<void> watch_hangup();
  void stop_watching();

  /// Whether the client has hung up, now and without waiting: asked of the kernel, since a hang-up
  /// may lie behind bytes that nobody has read.
  [[nodiscard]] bool is_alive() const;

  /// Ends every wait of this connection; the reads and writes under way report a client that is
  /// gone.
  void close();

 private:
  enum class Fill { kData, kEmpty, kGone };
  Fill fill();
  /// Closes the connection after `timeout`, unless disarmed before.
  void arm(base::Duration timeout);
  void disarm();
  boost::asio::awaitable<bool> wait(boost::asio::posix::descriptor_base::wait_type type);

  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  /// Which arming of the timer counts. Shared, to tell also that the connection is no more.
  std::shared_ptr<unsigned> arming_ = std::make_shared<unsigned>(0);
  std::string buffer_;
  std::size_t consumed_ = 0;
  bool gone_ = false;
  bool watching_ = false;
};

}  // namespace fo::gms
