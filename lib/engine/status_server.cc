#include "engine/status_server.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "metrics/prometheus_text.h"
#include "os/server_socket.h"

namespace fo::engine {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;

enum class Way { kTcp, kUnix };

Response json(int status, std::string body) {
  return {status, "application/json", std::move(body), {}};
}

Response wrong_method(std::string_view allowed) {
  Response response = http::error_response(405, "method not allowed");
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Response get(const StatusSource& source, std::string_view path) {
  if (path == "/metrics")
    return {200, std::string(metrics::kPrometheusTextType), source.metrics(), {}};
  if (path == "/status") return json(200, source.status());
  HealthAnswer answer = source.health();
  return json(answer.ready ? 200 : 503, std::move(answer.body));
}

awaitable<Response> switch_over(std::shared_ptr<const StatusSource> source, Way way) {
  if (way != Way::kUnix) co_return http::error_response(403, "only on the Unix socket");
  try {
    std::string body = co_await source->switch_over();
    co_return json(202, std::move(body));
  } catch (const base::Error& error) {
    co_return http::error_response(409, error.what());
  }
}

awaitable<void> answer(std::shared_ptr<const StatusSource> source, Way way, const Request& request,
                       Reply& reply) {
  constexpr std::array<std::string_view, 4> kPages{"/live", "/health", "/metrics", "/status"};
  Response response;
  if (request.path == "/switchover") {
    if (request.method == "POST") {
      response = co_await switch_over(std::move(source), way);
    } else {
      response = wrong_method("POST");
    }
  } else if (std::find(kPages.begin(), kPages.end(), request.path) == kPages.end()) {
    response = http::error_response(404, "no such path");
  } else if (request.method != "GET" && request.method != "HEAD") {
    response = wrong_method("GET, HEAD");
  } else {
    response = get(*source, request.path);
  }
  reply.answer(std::move(response));
}

http::Handler handler(std::shared_ptr<const StatusSource> source, Way way) {
  return [source = std::move(source), way](const Request& request, Reply& reply) {
    return answer(source, way, request, reply);
  };
}

}  // namespace

http::ServerLimits status_limits() { return http::limits_for_probes(8192); }

struct StatusServer::State {
  State(const boost::asio::any_io_executor& executor,
        const std::shared_ptr<const StatusSource>& source, const http::ServerLimits& limits)
      : tcp(executor, handler(source, Way::kTcp), limits),
        local(executor, handler(source, Way::kUnix), limits) {}

  http::Server tcp;
  /// Removed only after the server behind it.
  std::optional<os::ServerSocket> socket;
  http::Server local;
};

StatusServer::StatusServer(const boost::asio::any_io_executor& executor, StatusSource source,
                           const http::ServerLimits& limits)
    : state_(std::make_unique<State>(
          executor, std::make_shared<const StatusSource>(std::move(source)), limits)) {}

StatusServer::~StatusServer() = default;

std::uint16_t StatusServer::listen(const std::string& address) {
  return state_->tcp.listen(address);
}

void StatusServer::listen_unix(const std::string& path, const base::Deadline& lock_by) {
  state_->socket.emplace(os::open_server_socket(path, 0600, lock_by));
  state_->local.listen(std::move(state_->socket->listener));
}

}  // namespace fo::engine
