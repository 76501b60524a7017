#include "http/pages.h"

#include <utility>

#include "metrics/prometheus_text.h"

namespace fo::http {
namespace {

using boost::asio::awaitable;

awaitable<void> nothing_more() { co_return; }

// The page for a request, or the methods that its path has.
const Page* find_page(const std::vector<Page>& pages, const Request& request,
                      std::string& allowed) {
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : request.method;
  for (const Page& page : pages) {
    if (page.path != request.path) continue;
    if (page.method == method) return &page;
    if (!allowed.empty()) allowed += ", ";
    allowed += page.method == "GET" ? "GET, HEAD" : page.method;
  }
  return nullptr;
}

Response answer_status(int status, std::string_view word) {
  return {status, "application/json", R"({"status":")" + std::string(word) + R"("})", {}};
}

}  // namespace

Handler make_handler(std::vector<Page> pages, Refuse refuse) {
  return
      [pages = std::move(pages), refuse = std::move(refuse)](const Request& request, Reply& reply) {
        std::string allowed;
        if (const Page* page = find_page(pages, request, allowed)) return page->run(request, reply);
        Response refusal = allowed.empty()
                               ? refuse(404, "no such path")
                               : refuse(405, request.method + " is not allowed for this path");
        if (!allowed.empty()) refusal.headers.emplace_back("Allow", std::move(allowed));
        reply.answer(std::move(refusal));
        return nothing_more();
      };
}

Page get_page(std::string path, std::function<Response()> answer) {
  return {"GET", std::move(path), [answer = std::move(answer)](const Request&, Reply& reply) {
            reply.answer(answer());
            return nothing_more();
          }};
}

Page metrics_page(std::function<std::string()> text) {
  return get_page("/metrics", [text = std::move(text)] {
    return Response{200, std::string(metrics::kPrometheusTextType), text(), {}};
  });
}

std::vector<Page> probe_pages(IsReady is_ready) {
  return {get_page("/live", [] { return answer_status(200, "live"); }),
          get_page("/ready", [is_ready = std::move(is_ready)] {
            return is_ready() ? answer_status(200, "ready") : answer_status(503, "notready");
          })};
}

std::vector<Page> daemon_pages(std::function<std::string()> text, IsReady is_ready) {
  std::vector<Page> pages = probe_pages(std::move(is_ready));
  pages.push_back(metrics_page(std::move(text)));
  return pages;
}

}  // namespace fo::http
