// One client's socket on the server's event loop: it reads frames, writes frames with descriptors,
// detects a disconnected client, and counts unread answers. It does not interpret frames. The
// memory and time that a client can cost the server are bounded.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/seq_packet_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"
#include "loop/alarm.h"

namespace fo::gms {

class Connection;

/// The answers that the clients of a server have not read: bytes in our memory, and descriptors
/// created for them or in flight. Both are limited.
class UnreadAnswers {
 public:
  UnreadAnswers(std::size_t max_bytes, std::size_t max_fds)
      : max_bytes_(max_bytes), max_fds_(max_fds) {}

  /// Whether there is room for an answer with `fds` descriptors. If not, clients with old unread
  /// answers are disconnected, and the caller retries later.
  bool make_room(std::size_t fds);

  /// Adds unread bytes and descriptors.
  void add(Connection& client, std::size_t bytes, std::size_t fds);
  /// The bytes were written; the descriptors may still be in flight.
  void remove_bytes(Connection& client);
  /// The client has no unread bytes or descriptors any more.
  void remove(Connection& client);
  /// The client's socket was closed, and its descriptors with it. Its bytes stay in our memory, and
  /// count, until the write ends.
  void close(Connection& client);

 private:
  [[nodiscard]] bool has_room(std::size_t fds) const { return has_room(bytes_, fds); }
  /// Whether there is room once the answers of closed connections are gone.
  [[nodiscard]] bool will_have_room(std::size_t fds) const {
    return has_room(bytes_ - closing_bytes_, fds);
  }
  [[nodiscard]] bool has_room(std::size_t bytes, std::size_t fds) const {
    return bytes <= max_bytes_ && (fds == 0 || fds_ + fds <= max_fds_);
  }

  std::size_t max_bytes_;
  std::size_t max_fds_;
  std::size_t bytes_ = 0;
  /// Those of `bytes_` whose connection is closed.
  std::size_t closing_bytes_ = 0;
  std::size_t fds_ = 0;
  /// Ordered by the last time when nothing was unread, oldest first.
  std::list<Connection*> clients_;
};

class Connection {
 public:
  /// A longer request ends the connection, unless allow_long_frames was called.
  static constexpr std::size_t kMaxShortFrame = std::size_t{16} * 1024;

  /// Takes a connected, non-blocking socket. `unread` must outlive the connection.
  Connection(boost::asio::io_context& io, base::UniqueFd socket, UnreadAnswers& unread);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// From now on, frames may have up to kMaxRequestFrame; only one client at a time needs that.
  void allow_long_frames();

  /// The next frame's body, valid until the next call. nullopt if the client disconnected (also
  /// inside a frame), did not begin a frame within `timeout`, or did not end it within
  /// `frame_timeout`. Throws Error(kProtocol) for a frame that is too long. Descriptors are
  /// dropped.
  boost::asio::awaitable<std::optional<std::string_view>> read_frame(
      std::optional<base::Duration> timeout, base::Duration frame_timeout);

  /// Waits until there is room for one more answer. If it has descriptors, also waits for a short
  /// time until the client has read earlier ones. False if the client disconnected, or there is no
  /// room within `timeout`.
  boost::asio::awaitable<bool> make_room(std::size_t fds, base::Duration timeout);

  /// Writes as much of a frame as the socket accepts now; returns the number of bytes. write_frame
  /// writes the rest.
  [[nodiscard]] std::size_t write_at_once(std::string_view frame);

  /// Writes a whole frame, with `fds` at its first byte. False if the client disconnected or did
  /// not read it within `timeout`.
  boost::asio::awaitable<bool> write_frame(std::string_view frame, std::vector<base::UniqueFd> fds,
                                           base::Duration timeout);

  /// Returns when the client disconnects or stop_watching is called. Meanwhile it reads ahead at
  /// most one frame, because a client may pipeline. Not while read_frame runs.
  boost::asio::awaitable<void> watch_hangup();
  /// Returns when the watch has ended.
  boost::asio::awaitable<void> stop_watching();

  /// Whether the client is connected now, without waiting. The kernel is queried, because a hang-up
  /// may come after unread bytes.
  [[nodiscard]] bool is_alive() const;

  /// The reason why the server closed the connection.
  enum class Fault {
    kNone,
    /// It sent no complete message in time.
    kSilent,
    /// It did not read its answers.
    kSlowReader,
    /// It began a message that is too long.
    kFrameTooBig
  };
  [[nodiscard]] Fault fault() const { return fault_; }

  /// The number of messages with descriptors, which no request has; the kernel has dropped them.
  [[nodiscard]] std::size_t messages_with_fds() const { return messages_with_fds_; }

  /// Ends every wait of this connection; pending reads and writes report a disconnected client.
  void close();

 private:
  friend class UnreadAnswers;

  /// Waits for bytes and reads at most the rest of one frame; false at the end of the stream, or if
  /// the wait was ended.
  boost::asio::awaitable<bool> fill();
  [[nodiscard]] bool is_buffer_full() const;
  /// Bytes that the kernel holds for the client, including its overhead.
  [[nodiscard]] std::size_t unread_in_kernel() const;
  /// Closes the connection after `timeout`, unless `alarm_` is cancelled before.
  void arm(base::Duration timeout, Fault fault);

  /// A stream socket, but only this asio type returns the flags of a receive.
  boost::asio::generic::seq_packet_protocol::socket socket_;
  loop::Alarm alarm_;
  /// The read buffer; most of it is never touched.
  std::unique_ptr<char[]> chunk_;
  std::string buffer_;
  std::size_t consumed_ = 0;
  std::size_t max_frame_ = kMaxShortFrame;
  /// Consecutive frames that needed no read.
  unsigned frames_at_once_ = 0;
  std::size_t messages_with_fds_ = 0;
  Fault fault_ = Fault::kNone;
  bool gone_ = false;
  bool watching_ = false;
  bool watch_runs_ = false;
  UnreadAnswers& unread_;
  std::size_t unread_bytes_ = 0;
  std::size_t unread_fds_ = 0;
  std::chrono::steady_clock::time_point unread_since_;
  /// Some of unread_fds_ are not sent yet.
  bool makes_fds_ = false;
};

}  // namespace fo::gms
