#include "gms/metrics_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "http/adopt.h"
#include "http/prometheus_text.h"
#include "http/server.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

// For answers under way when we are asked to end.
constexpr base::Duration kGrace = std::chrono::seconds(2);

http::Response answer(const http::Request& request, const std::vector<MeteredServer>& servers) {
  if (request.path != "/metrics") return http::error_response(404, "no such path");
  if (request.method != "GET" && request.method != "HEAD") {
    http::Response refusal = http::error_response(405, "method not allowed");
    refusal.headers.emplace_back("Allow", "GET, HEAD");
    return refusal;
  }
  return {200, std::string(http::kPrometheusTextType), metrics_text(servers), {}};
}

awaitable<void> respond(const std::vector<MeteredServer>& servers, const http::Request& request,
                        http::Reply& reply) {
  reply.answer(answer(request, servers));
  co_return;
}

awaitable<void> stop_when_readable(asio::posix::stream_descriptor& stop, http::Server& server) {
  boost::system::error_code ignored;
  co_await stop.async_wait(asio::posix::descriptor_base::wait_read,
                           asio::redirect_error(asio::use_awaitable, ignored));
  const base::Deadline deadline = base::Deadline::after(kGrace);
  co_await server.stop(deadline);
}

// Few clients, who ask briefly.
http::ServerLimits metrics_limits() {
  http::ServerLimits limits;
  limits.header_bytes = 8 * 1024;
  limits.body_bytes = 4 * base::kKiB;
  limits.connections = 1024;
  limits.header_timeout = std::chrono::seconds(5);
  limits.body_timeout = std::chrono::seconds(5);
  limits.idle_timeout = std::chrono::seconds(5);
  limits.write_timeout = std::chrono::seconds(5);
  return limits;
}

}  // namespace

void run_metrics_server(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                        int stop_fd) {
  asio::io_context io(1);
  asio::posix::stream_descriptor stop(io);
  const std::string what = "watch for the end of the metrics server";
  http::adopt(stop, http::duplicate(stop_fd, what), what);
  const auto handler = [&servers](const http::Request& request, http::Reply& reply) {
    return respond(servers, request, reply);
  };
  http::Server server(io.get_executor(), handler, metrics_limits());
  server.listen(std::move(listener));
  std::exception_ptr failure;
  asio::co_spawn(io, stop_when_readable(stop, server), [&](std::exception_ptr error) {
    failure = std::move(error);
    io.stop();
  });
  io.run();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::gms
