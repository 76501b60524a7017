#include "http/metrics_page.h"

#include <memory>
#include <utility>

#include "metrics/prometheus_text.h"

namespace fo::http {
namespace {

using boost::asio::awaitable;

Response answer(const Request& request, const std::function<std::string()>& text) {
  if (request.path != "/metrics") return error_response(404, "no such path");
  if (request.method != "GET" && request.method != "HEAD") {
    Response refusal = error_response(405, "method not allowed");
    refusal.headers.emplace_back("Allow", "GET, HEAD");
    return refusal;
  }
  return {200, std::string(metrics::kPrometheusTextType), text(), {}};
}

awaitable<void> respond(std::shared_ptr<const std::function<std::string()>> text,
                        const Request& request, Reply& reply) {
  reply.answer(answer(request, *text));
  co_return;
}

}  // namespace

Handler metrics_handler(std::function<std::string()> text) {
  return [shared = std::make_shared<const std::function<std::string()>>(std::move(text))](
             const Request& request, Reply& reply) { return respond(shared, request, reply); };
}

}  // namespace fo::http
