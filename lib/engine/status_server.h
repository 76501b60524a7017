// The HTTP server of an engine's status: /live, /health and /ready (the same answer), /metrics,
// /status and /switchover. It listens on a port for probes, which the whole pod network reaches,
// and on a Unix socket beside the lock (status_socket.h) for processes in the pod. Clients that
// send nothing, or send slowly, delay no others and are soon disconnected.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "engine/health.h"
#include "http/server.h"

namespace fo::engine {

/// The sources of the answers, called on the loop's thread for each request; only switch_over may
/// throw.
struct StatusSource {
  /// GET /live, /health and /ready: 200 or 503.
  std::function<HealthAnswer()> health;
  std::function<std::string()> metrics;
  /// GET /status: JSON.
  std::function<std::string()> status;
  /// POST /switchover, which is 403 except on the Unix socket: 202 with the returned JSON, or 409
  /// with the thrown base::Error. It continues if the client disconnects before the answer.
  std::function<boost::asio::awaitable<std::string>()> switch_over;
};

/// A probe sends its whole request at once. Many silent clients are disconnected before they fill
/// the limit again.
http::ServerLimits status_limits();

class StatusServer {
 public:
  StatusServer(const boost::asio::any_io_executor& executor, StatusSource source,
               const http::ServerLimits& limits = status_limits());
  /// Closes everything at once. A running switch_over continues while the loop runs.
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// Listens on "HOST:PORT" and returns the port. Throws what http::Server::listen throws.
  std::uint16_t listen(const std::string& address);
  /// Listens on a socket created by os::open_server_socket, for our own user. Waits until `lock_by`
  /// for the lock of a server there that is ending. Throws what open_server_socket throws. Call
  /// once.
  void listen_unix(const std::string& path,
                   const base::Deadline& lock_by = base::Deadline::after(base::Duration::zero()));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fo::engine
