// One address for the active engine (--publish): a TCP listener whose connections are spliced to
// the engine, both ways, byte for byte. It understands just enough HTTP/1.1 to know when a
// connection is between two requests, so that it can be taken away from the engine without anybody
// noticing: drained, and handed over to the engine that follows; and to judge requests before the
// engine gets them.
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
  /// Clients at a time. One more takes the place of the one that has been silent for longest, of
  /// those that wait for no answer; where there is none such, it waits.
  std::size_t connections = 4096;
  /// To reach the engine, also while descriptors or ports run out.
  base::Duration connect = std::chrono::seconds(5);
  /// For a client to close a connection that the engine has closed.
  base::Duration half_open = std::chrono::seconds(60);
  /// For a client to read why a request was refused.
  base::Duration refusal = std::chrono::seconds(2);
};

/// Whether somebody takes over what a drain leaves.
enum class Successor { kNone, kFollows };

/// A client is connected to the engine when it begins to speak. Each may need four descriptors
/// (os::raise_fd_limit); where those run out, new clients wait. SIGPIPE must be ignored: splice(2)
/// can't be asked not to raise it.
class Publisher {
 public:
  /// `address`: where to listen, "HOST:PORT". `target`: the engine, "HOST:PORT" or a Unix socket.
  /// Each request passes `judge`, and one that is refused is answered here and ends its connection;
  /// where there is none, whatever comes is passed on. Throws kUsage. Binds nothing yet.
  Publisher(boost::asio::any_io_executor executor, std::string address, const std::string& target,
            PublisherLimits limits = {}, HttpFraming::Judge judge = {});
  /// Closes everything at once.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Listens, on the sockets that were handed over where there are any, and forwards from now on.
  /// Throws kCannotCreate (address in use) or kNotPermitted.
  void start(PublishedSockets inherited = {});

  /// Accepts no more, lets requests in flight finish, and takes each connection away from the
  /// engine between two requests. True when all were between requests before `deadline`; what was
  /// not then is cut, and so is what is no HTTP/1.1 (an upgraded connection, say). Where a
  /// successor follows, the listener and the connections stay open, and clients that come or speak
  /// now wait; else both are closed, at once and between two requests. May be called while another
  /// drain is under way: the latest `successor` holds, and the first deadline cuts.
  boost::asio::awaitable<bool> drain(base::Deadline deadline, Successor successor);

  /// After drain(): what is left, without clients that went away. The publisher is as before
  /// start().
  PublishedSockets take();

  /// After drain() for a successor, when nobody took over: goes on as before.
  void resume();

  [[nodiscard]] std::size_t connections() const;
  /// Connections with a request in flight.
  [[nodiscard]] std::size_t busy() const;
  /// The port it listens on; 0 when it does not.
  [[nodiscard]] std::uint16_t port() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::engine
