// The pages of a server: a table of methods and paths, with one way to refuse what is not in it.
//
//   std::vector<Page> pages = daemon_pages(text, is_ready);
//   pages.push_back(get_page("/status", [] { return Response{…}; }));
//   Server server(executor, make_handler(std::move(pages)));
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace fo::http {

struct Page {
  std::string method;
  std::string path;
  Handler run;
};

/// An answer that refuses a request.
using Refuse = std::function<Response(int status, std::string_view message)>;

/// Runs the page of a request's method and path; HEAD is GET without a body. Refuses other paths
/// with 404, and other methods with 405 and Allow.
Handler make_handler(std::vector<Page> pages, Refuse refuse = error_response);

/// A page for GET whose answer needs no wait.
Page get_page(std::string path, std::function<Response()> answer);

/// Whether a daemon can be used now.
using IsReady = std::function<bool()>;

/// For GET: /live, which is 200 while the loop runs; and /ready, 200 or 503.
std::vector<Page> probe_pages(IsReady is_ready);

/// The pages of every daemon: probe_pages() and metrics_page().
std::vector<Page> daemon_pages(std::function<std::string()> text, IsReady is_ready);
/// GET /metrics, which answers with `text` in Prometheus' format.
Page metrics_page(std::function<std::string()> text);

}  // namespace fo::http
