#include "engine/status_server.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/pages.h"
#include "os/socket/server_socket.h"

namespace fo::engine {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;

enum class Way { kTcp, kUnix };

Response json_answer(int status, std::string body) {
  return {status, "application/json", std::move(body), {}};
}

awaitable<void> switch_over(std::shared_ptr<const StatusSource> source, Way way, Reply& reply) {
  Response response = http::error_response(403, "only on the Unix socket");
  if (way == Way::kUnix) {
    try {
      std::string body = co_await source->switch_over();
      response = json_answer(202, std::move(body));
    } catch (const base::Error& error) {
      response = http::error_response(409, error.what());
    }
  }
  reply.answer(std::move(response));
}

http::Handler handler(const std::shared_ptr<const StatusSource>& source, Way way) {
  std::vector<http::Page> pages{
      http::metrics_page([source] { return source->metrics(); }),
      http::get_page("/status", [source] { return json_answer(200, source->status()); }),
      {"POST", "/switchover",
       [source, way](const Request&, Reply& reply) { return switch_over(source, way, reply); }}};
  for (const char* path : {"/live", "/health", "/ready"}) {
    pages.push_back(http::get_page(path, [source] {
      HealthAnswer answer = source->health();
      return json_answer(answer.ready ? 200 : 503, std::move(answer.body));
    }));
  }
  return http::make_handler(std::move(pages));
}

}  // namespace

http::ServerLimits status_limits() { return http::limits_for_probes(8192); }

struct StatusServer::State {
  State(const boost::asio::any_io_executor& executor,
        const std::shared_ptr<const StatusSource>& source, const http::ServerLimits& limits)
      : tcp(executor, handler(source, Way::kTcp), limits),
        local(executor, handler(source, Way::kUnix), limits) {}

  http::Server tcp;
  /// Declared before `local`, so that the name is removed after that server is closed.
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
