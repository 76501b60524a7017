// The HTTP server of an engine's status: /live and /health (one answer), /metrics, /status and
// /switchover. On a port for probes, which the whole pod network reaches, and on a Unix socket
// beside the lock (status_socket.h) for those in the pod. Connections that say nothing or dribble
// hold nobody up, and are cut off soon.
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

/// What it asks for with each request, on the loop's thread; none but switch_over may throw.
struct StatusSource {
  /// GET /live and /health: 200 or 503.
  std::function<HealthAnswer()> health;
  std::function<std::string()> metrics;
  /// GET /status: JSON.
  std::function<std::string()> status;
  /// POST /switchover, 403 except on the Unix socket: 202 with the JSON that it returns, 409 with
  /// the base::Error that it throws. It goes on when whoever asked does not wait for the answer.
  std::function<boost::asio::awaitable<std::string>()> switch_over;
};

/// A probe says all it has to say at once. Many clients may say nothing, and are gone before they
/// fill the limit again.
http::ServerLimits status_limits();

class StatusServer {
 public:
  StatusServer(const boost::asio::any_io_executor& executor, StatusSource source,
               const http::ServerLimits& limits = status_limits());
  /// Closes everything at once. A switch_over that runs goes on, while the loop runs.
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// "HOST:PORT"; returns the port. Throws as http::Server::listen.
  std::uint16_t listen(const std::string& address);
  /// A socket as os::open_server_socket makes it, for our own user; the lock of a server there that
  /// is ending is waited for until `lock_by`. Throws what that throws. Once.
  void listen_unix(const std::string& path,
                   const base::Deadline& lock_by = base::Deadline::after(base::Duration::zero()));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fo::engine
