// One address for the active engine (--publish): a TCP listener that forwards its connections to
// the engine, in both directions, byte for byte. It parses just enough HTTP/1.1 to know when a
// connection is between two requests, so that it can be detached from the engine unnoticed,
// drained, and handed over to the next engine; and to judge requests before the engine receives
// them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/units.h"
#include "engine/publish/http_framing.h"
#include "engine/publish/socket_handover.h"

namespace fo::engine {

struct PublisherLimits {
  /// Maximum number of clients. A further client replaces, among the clients that wait for no
  /// answer, the one that has been inactive for longest; if there is none, the further client
  /// waits.
  std::size_t connections = 4096;
  /// Timeout for connecting to the engine, including retries while descriptors or ports are
  /// exhausted.
  base::Duration connect = std::chrono::seconds(5);
  /// Timeout for a client to close a connection that the engine has closed.
  base::Duration half_open = std::chrono::seconds(60);
  /// Timeout for a client to read the refusal of a request.
  base::Duration refusal = std::chrono::seconds(2);
};

/// Whether a successor takes over the sockets after a drain.
enum class Successor { kNone, kFollows };

/// A client is connected to the engine when it sends its first bytes. Each may need four
/// descriptors (os::raise_fd_limit); if they are exhausted, new clients wait. SIGPIPE must be
/// ignored, because splice(2) has no flag to suppress it.
class Publisher {
 public:
  /// `address` is the listening address, "HOST:PORT". `target` is the engine, "HOST:PORT" or a Unix
  /// socket. `judge` checks each request; a refused one is answered here and ends its connection.
  /// Without a judge, all bytes are forwarded. Throws kUsage. Does not bind yet.
  Publisher(boost::asio::any_io_executor executor, std::string address, const std::string& target,
            PublisherLimits limits = {}, HttpFraming::Judge judge = {});
  /// Closes everything at once.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Listens, on the inherited sockets if there are any, and begins to forward. Throws
  /// kCannotCreate (address in use) or kNotPermitted.
  void start(PublishedSockets inherited = {});

  /// Stops accepting, lets requests in flight finish, and detaches each connection from the engine
  /// between two requests. True if all were between requests before `deadline`; the others are cut,
  /// including those that are not HTTP/1.1 (such as an upgraded connection). If a successor
  /// follows, the listener and the connections stay open, and clients that connect or send now
  /// wait; otherwise the listener is closed at once, and each connection as soon as it is between
  /// two requests. May be called during another drain: the latest `successor` counts, and the first
  /// deadline cuts.
  boost::asio::awaitable<bool> drain(base::Deadline deadline, Successor successor);

  /// After drain(): moves out the remaining sockets, without clients that have disconnected. The
  /// publisher is then as before start().
  PublishedSockets take();

  /// After drain() for a successor that did not take over: accepts and forwards as before.
  void resume();

  [[nodiscard]] std::size_t connections() const;
  /// The number of connections with a request in flight.
  [[nodiscard]] std::size_t busy() const;
  /// The listening port; 0 if it does not listen.
  [[nodiscard]] std::uint16_t port() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::engine
