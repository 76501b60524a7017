// The HTTP server of an engine's status: /live and /health (one answer), /metrics, and what a host
// adds to it. On a port for probes and on a Unix socket beside the lock for those in the pod.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/health.h"
#include "http/server.h"

namespace fo::engine {

/// What it asks for with each request, on the loop's thread; none may throw.
struct StatusSource {
  std::function<HealthAnswer()> health;
  std::function<std::string()> metrics;
  /// GET /status: JSON.
  std::function<std::string()> status;
  /// POST /switchover, on the Unix socket only: 202 with what it returns, or the error that it
  /// throws as 409.
  std::function<boost::asio::awaitable<std::string>()> switch_over;
};

class StatusServer {
 public:
  StatusServer(boost::asio::any_io_executor executor, StatusSource source);
  ~StatusServer();

  /// "HOST:PORT"; returns the port. Throws as http::Server::listen.
  std::uint16_t listen(const std::string& address);
  /// A socket as os::open_server_socket makes it, for our own user. Throws what that throws.
  void listen_unix(const std::string& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fo::engine
