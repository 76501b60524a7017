// One client of gms-lockd: its connection, over a Unix socket or TCP, with lines in and answers
// out; the pipe that may have come with them; and how long the client has been silent. What it
// says, and what it has of the lock, is the server's business, which keeps some of that here.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"
#include "lock/lockd/lockd_model.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/lockd/lockd_state.h"
#include "net/line_buffer.h"
#include "net/line_stream.h"
#include "net/tls.h"

namespace fo::lock {

/// On the server's loop, and always in a shared_ptr.
class LockdSession : public std::enable_shared_from_this<LockdSession> {
 public:
  using Pointer = std::shared_ptr<LockdSession>;
  /// Runs what a session does by itself.
  using Start = std::function<void(boost::asio::awaitable<void>)>;
  /// Gets how long after the limit it is called.
  using OnSilence = std::function<void(const Pointer&, base::Duration late)>;

  /// Of a Unix socket. Throws Error(kOsError), as below.
  LockdSession(const boost::asio::any_io_executor& executor, base::UniqueFd connected);
  /// Over TCP. Throws what ServerTls::context() throws, too.
  LockdSession(const boost::asio::any_io_executor& executor, base::UniqueFd connected,
               net::ServerTls& tls, Start start);

  [[nodiscard]] bool is_tcp() const { return stream_.has_value(); }
  [[nodiscard]] bool is_open() const { return stream_ ? stream_->is_open() : socket_.is_open(); }
  void close();
  /// Closes, for want of a place or of a word.
  void drop();
  [[nodiscard]] bool was_dropped() const { return dropped_; }

  /// Comes first. Throws what LineStream::handshake throws.
  boost::asio::awaitable<void> handshake();
  /// Without its newline; nullopt when the connection was closed, by either side. Throws
  /// Error(kProtocol) for what is no line, for more than one descriptor beside it, and for
  /// anything but lines after a request for the lock.
  boost::asio::awaitable<std::optional<std::string>> next_line();

  /// Whoever does not read what he is told is dropped: nobody waits for him. A refusal is the last
  /// that is sent.
  void send(const LockdAnswer& answer);
  /// What is queued is the last of it.
  void send_no_more() { is_closing_ = true; }
  [[nodiscard]] bool is_closing() const { return is_closing_; }
  /// Over TCP, of one that is closing: calls `on_end` when all was sent, and read or not in time.
  void finish(std::function<void()> on_end);

  /// Calls `on_silence` after `limit`, instead of what it was to call before.
  void watch_silence(base::Duration limit, OnSilence on_silence);
  void ignore_silence() { silence_.cancel(); }

  /// A descriptor came with the line, and nobody took it.
  [[nodiscard]] bool has_descriptor() const { return !descriptors_.empty(); }
  /// Of that descriptor, if any. Throws Error(kProtocol) for what is no reading end of a pipe.
  void take_lifeline();
  /// Open while somebody has the other end.
  [[nodiscard]] bool has_lifeline() const { return lifeline_ && lifeline_->is_open(); }
  void close_lifeline();
  /// True, and closed, when nobody has the other end any more; false when it was closed here.
  boost::asio::awaitable<bool> lifeline_ended();

  /// Of a process: it has closed the connection, though that was not read yet.
  [[nodiscard]] bool is_closed_by_peer();
  /// That, and nobody has the other end of its lifeline.
  [[nodiscard]] bool is_gone();

  // What the server knows of it.
  ConnectionId id = 0;
  /// For the log.
  std::string name;
  /// The address of a peer over TCP, without its port.
  std::string host;
  std::optional<RecordedProcess> process;
  enum class Talk { kNothingYet, kStatus, kAcquire } talk = Talk::kNothingYet;
  bool ended = false;

  // Over TCP.
  std::string engine_id;
  /// It was granted the lock, or came back with its grant.
  bool has_grant = false;
  /// Its time was over when the server was held up, and it got a little more.
  bool has_more_time = false;

 private:
  // False when the client is gone.
  bool receive();
  void queue(std::string line, const LockdAnswer& answer);
  void send_queue();
  static boost::asio::awaitable<void> write_queue(Pointer self);

  const Start start_;
  // One of the two.
  boost::asio::posix::stream_descriptor socket_;
  std::optional<net::LineStream> stream_;
  std::optional<boost::asio::posix::stream_descriptor> lifeline_;
  boost::asio::steady_timer silence_;
  net::LineBuffer lines_{kMaxRequestBytes};
  std::vector<base::UniqueFd> descriptors_;
  bool dropped_ = false;

  // Over TCP.
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  bool is_sending_ = false;
  bool is_closing_ = false;
  std::function<void()> on_end_;
};

}  // namespace fo::lock
