// One client of gms-lockd: its connection, over a Unix socket or TCP, with lines in and answers
// out; the pipe that may come with a line; and how long the client has been silent. The server
// interprets the lines, and stores some data of the client here.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
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
#include "loop/alarm.h"
#include "net/line_buffer.h"
#include "net/line_stream.h"
#include "net/tls.h"

namespace fo::lock {

/// Runs on the server's loop, and always in a shared_ptr.
class LockdSession : public std::enable_shared_from_this<LockdSession> {
 public:
  using Pointer = std::shared_ptr<LockdSession>;
  /// Starts a coroutine of the session.
  using Start = std::function<void(boost::asio::awaitable<void>)>;
  /// `late` is the time from the limit to the call.
  using OnSilence = std::function<void(const Pointer&, base::Duration late)>;

  /// For a Unix socket. Throws Error(kOsError), as below.
  LockdSession(const boost::asio::any_io_executor& executor, base::UniqueFd connected);
  /// For TCP. Also throws what ServerTls::context() throws.
  LockdSession(const boost::asio::any_io_executor& executor, base::UniqueFd connected,
               net::ServerTls& tls, Start start);

  [[nodiscard]] bool is_tcp() const { return stream_.has_value(); }
  [[nodiscard]] bool is_open() const { return stream_ ? stream_->is_open() : socket_.is_open(); }
  void close();
  /// Closes the session: the server is full, or the client sent nothing in time.
  void drop();
  [[nodiscard]] bool was_dropped() const { return dropped_; }

  /// Call it first. Throws what LineStream::handshake throws.
  boost::asio::awaitable<void> handshake();
  /// The next line without its newline; nullopt if either side closed the connection. Throws
  /// Error(kProtocol) for an invalid line, for more than one descriptor, and for anything but lines
  /// after a request for the lock.
  boost::asio::awaitable<std::optional<std::string>> next_line();

  /// A client that does not read its answers is disconnected. A refusal is the last answer.
  void send(const LockdAnswer& answer);
  /// The queued answers are the last ones.
  void send_no_more() { is_closing_ = true; }
  [[nodiscard]] bool is_closing() const { return is_closing_; }
  /// For a closing TCP session: calls `on_end` when everything was sent and read, or timed out.
  void finish(std::function<void()> on_end);

  /// Calls `on_silence` after `limit`; replaces an earlier callback.
  void watch_silence(base::Duration limit, OnSilence on_silence);
  void ignore_silence() { silence_.cancel(); }

  /// A descriptor came with the line and was not taken yet.
  [[nodiscard]] bool has_descriptor() const { return !descriptors_.empty(); }
  /// Takes that descriptor as the lifeline, if any. Throws Error(kProtocol) if it is not the read
  /// end of a pipe.
  void take_lifeline();
  /// Open while a process has the other end.
  [[nodiscard]] bool has_lifeline() const { return lifeline_ && lifeline_->is_open(); }
  void close_lifeline();
  /// True, and closed, when no process has the other end; false if it was closed here.
  boost::asio::awaitable<bool> lifeline_ended();

  /// For a local process: it has closed the connection, even if that was not read yet.
  [[nodiscard]] bool is_closed_by_peer();
  /// True if is_closed_by_peer() is, and no process has the other end of its lifeline.
  [[nodiscard]] bool is_gone();

  // The server's data of this client.
  ConnectionId id = 0;
  /// The name in log lines.
  std::string name;
  /// The address of a TCP peer, without its port.
  std::string host;
  std::optional<RecordedProcess> process;
  enum class Talk { kNothingYet, kStatus, kAcquire } talk = Talk::kNothingYet;
  bool ended = false;

  // Over TCP.
  std::string engine_id;
  /// It was granted the lock, or claimed its grant.
  bool has_grant = false;
  /// It expired while the server was suspended, and got a little more time.
  bool has_more_time = false;

 private:
  // False if the client has disconnected.
  bool receive();
  void queue(std::string line, const LockdAnswer& answer);
  void send_queue();
  static boost::asio::awaitable<void> write_queue(Pointer self);

  const Start start_;
  // Only one of the two is used.
  boost::asio::posix::stream_descriptor socket_;
  std::optional<net::LineStream> stream_;
  std::optional<boost::asio::posix::stream_descriptor> lifeline_;
  loop::Alarm silence_;
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
