// One client's socket on the server's event loop: frames in, frames and descriptors out, whether
// the client is still there, and what it has not read. Knows nothing of what the frames say, and
// trusts nobody: what a client can make the server hold, and how long it can keep it busy, is
// bounded.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/seq_packet_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
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

namespace fo::gms {

class Connection;

/// What the clients of a server have not read: answers that wait in our memory, and descriptors
/// that are made for them or on their way. There is so much room for either.
class UnreadAnswers {
 public:
  UnreadAnswers(std::size_t max_bytes, std::size_t max_fds)
      : max_bytes_(max_bytes), max_fds_(max_fds) {}

  /// Whether there is room for an answer, with so many descriptors. Where there is none, clients
  /// that have left something unread for too long are let go, and the caller asks again later.
  bool make_room(std::size_t fds);

  /// So much more is unread.
  void add(Connection& client, std::size_t bytes, std::size_t fds);
  /// The bytes were taken; the descriptors may still be on their way.
  void remove_bytes(Connection& client);
  /// Nothing of this client's is unread.
  void remove(Connection& client);

 private:
  [[nodiscard]] bool has_room(std::size_t fds) const {
    return bytes_ <= max_bytes_ && (fds == 0 || fds_ + fds <= max_fds_);
  }

  std::size_t max_bytes_;
  std::size_t max_fds_;
  std::size_t bytes_ = 0;
  std::size_t fds_ = 0;
  /// By when they last had nothing unread, the longest ago first.
  std::list<Connection*> clients_;
};

class Connection {
 public:
  /// Longer requests end the connection, unless allow_long_frames was called.
  static constexpr std::size_t kMaxShortFrame = std::size_t{16} * 1024;

  /// Takes a connected, non-blocking socket. `unread` outlives the connection.
  Connection(boost::asio::io_context& io, base::UniqueFd socket, UnreadAnswers& unread);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Frames may have up to kMaxRequestFrame from now on: only one client at a time needs them.
  void allow_long_frames();

  /// The next frame's body, valid until the next call. nullopt when the client is gone, broke off
  /// inside a frame, did not begin one within `timeout`, or did not end it within `frame_timeout`.
  /// Throws Error(kProtocol) for a frame that is too long. Descriptors that come along are dropped.
  boost::asio::awaitable<std::optional<std::string_view>> read_frame(
      std::optional<base::Duration> timeout, base::Duration frame_timeout);

  /// Waits until there is room for one more answer. One with descriptors, which are made next and
  /// sent by write_frame, also waits until the client has read what it was sent, but for a little.
  /// False when the client is gone or there is no room within `timeout`.
  boost::asio::awaitable<bool> make_room(std::size_t fds, base::Duration timeout);

  /// Sends as much of a frame as the socket takes now; how many bytes. write_frame sends the rest.
  [[nodiscard]] std::size_t write_at_once(std::string_view frame);

  /// Sends a whole frame, `fds` with its first byte. False when the client is gone or did not take
  /// it within `timeout`.
  boost::asio::awaitable<bool> write_frame(std::string_view frame, std::vector<base::UniqueFd> fds,
                                           base::Duration timeout);

  /// Returns when the client is gone or stop_watching is called; reads ahead what comes meanwhile
  /// (a client may pipeline), at most one frame's worth. Not while read_frame runs.
  boost::asio::awaitable<void> watch_hangup();
  /// Returns once the watch has.
  boost::asio::awaitable<void> stop_watching();

  /// Whether the client has hung up, now and without waiting: asked of the kernel, since a hang-up
  /// may lie behind bytes that nobody has read.
  [[nodiscard]] bool is_alive() const;

  /// Why the client was let go, if it was not the one who left.
  enum class Fault {
    kNone,
    /// Sent no whole message in time.
    kSilent,
    /// Did not read its answers.
    kSlowReader,
    /// Began a message that is too long.
    kFrameTooBig
  };
  [[nodiscard]] Fault fault() const { return fault_; }

  /// How many messages came with descriptors, which no request has; the kernel has dropped them.
  [[nodiscard]] std::size_t messages_with_fds() const { return messages_with_fds_; }

  /// Ends every wait of this connection; the reads and writes under way report a client that is
  /// gone.
  void close();

 private:
  friend class UnreadAnswers;

  /// Waits for bytes, and takes what makes a frame of the longest kind whole at most; false when
  /// there will be none, or the wait was ended.
  boost::asio::awaitable<bool> fill();
  [[nodiscard]] bool is_buffer_full() const;
  /// How much the kernel keeps for the client to read, its overhead included.
  [[nodiscard]] std::size_t unread_in_kernel() const;
  /// Closes the connection after `timeout`, unless disarmed before.
  void arm(base::Duration timeout, Fault fault);
  void disarm();

  /// A stream socket, but only this type tells the flags of what it receives.
  boost::asio::generic::seq_packet_protocol::socket socket_;
  boost::asio::steady_timer timer_;
  /// Which arming of the timer counts. Shared, to tell also that the connection is no more.
  std::shared_ptr<unsigned> arming_ = std::make_shared<unsigned>(0);
  /// Where reads go; most of it is never touched.
  std::unique_ptr<char[]> chunk_;
  std::string buffer_;
  std::size_t consumed_ = 0;
  std::size_t max_frame_ = kMaxShortFrame;
  /// Frames in a row that were there without reading.
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
