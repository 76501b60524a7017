#include "http/pages.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "http/client.h"
#include "http/support.h"
#include "metrics/prometheus_text.h"

namespace fo::http {
namespace {

using boost::asio::awaitable;
using test::soon;

awaitable<void> echo_body(const Request& request, Reply& reply) {
  reply.answer({200, "text/plain", request.method + " " + request.body, {}});
  co_return;
}

awaitable<void> stream(const Request&, Reply& reply) {
  co_await reply.begin(200, "text/plain");
  co_await reply.write("one ");
  co_await reply.write("two");
}

class PagesTest : public testing::Test {
 protected:
  [[nodiscard]] static std::vector<Page> some_pages() {
    return {get_page("/",
                     [] {
                       return Response{200, "text/plain", "root", {}};
                     }),
            {"GET", "/thing", echo_body},
            {"POST", "/thing", echo_body},
            {"POST", "/act", echo_body},
            {"GET", "/stream", stream}};
  }
  Response ask(const std::string& method, const std::string& path) {
    if (!server_) server_.emplace(make_handler(some_pages()));
    FetchOptions options;
    if (method == "POST") options.body = "body";
    return fetch(method, server_->url(path), soon(), options);
  }

  std::optional<test::TestServer> server_;
};

TEST_F(PagesTest, MethodAndPathChooseThePage) {
  EXPECT_EQ(ask("GET", "/").body, "root");
  EXPECT_EQ(ask("GET", "/?a=b").body, "root");
  EXPECT_EQ(ask("GET", "/thing").body, "GET ");
  EXPECT_EQ(ask("POST", "/thing").body, "POST body");
  EXPECT_EQ(ask("POST", "/act").body, "POST body");
  EXPECT_EQ(ask("GET", "/stream").body, "one two");
}

TEST_F(PagesTest, HeadIsGetWithoutABody) {
  for (const char* path : {"/", "/thing", "/stream"}) {
    const Response head = ask("HEAD", path);
    EXPECT_EQ(head.status, 200) << path;
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(head.content_type, "text/plain");
  }
}

TEST_F(PagesTest, OtherPathsAre404) {
  for (const char* path : {"/th", "/thing/", "/THING", "//", "/things"}) {
    for (const char* method : {"GET", "HEAD", "POST", "BREW"}) {
      const Response refusal = ask(method, path);
      EXPECT_EQ(refusal.status, 404) << method << " " << path;
      EXPECT_FALSE(refusal.header("Allow"));
    }
  }
  EXPECT_EQ(ask("GET", "/x").body, error_response(404, "no such path").body);
}

TEST_F(PagesTest, OtherMethodsAre405AndNameThoseThatAreAllowed) {
  const std::vector<std::pair<std::string, std::string>> allowed{
      {"/", "GET, HEAD"}, {"/thing", "GET, HEAD, POST"}, {"/act", "POST"}};
  for (const auto& [path, methods] : allowed) {
    for (const char* method : {"PUT", "DELETE", "OPTIONS", "BREW", "get"}) {
      const Response refusal = ask(method, path);
      EXPECT_EQ(refusal.status, 405) << method << " " << path;
      EXPECT_EQ(refusal.header("Allow"), methods);
    }
  }
  EXPECT_EQ(ask("HEAD", "/act").status, 405);
  EXPECT_EQ(ask("PUT", "/act").body, error_response(405, "PUT is not allowed for this path").body);
}

TEST_F(PagesTest, RefusalsHaveTheFormOfTheServer) {
  const Refuse refuse = [](int status, std::string_view message) {
    return Response{status, "text/plain", "no: " + std::string(message), {}};
  };
  const test::TestServer server(make_handler(some_pages(), refuse));
  EXPECT_EQ(fetch("GET", server.url("/x"), soon()).body, "no: no such path");
  const Response refusal = fetch("PUT", server.url("/act"), soon());
  EXPECT_EQ(refusal.body, "no: PUT is not allowed for this path");
  EXPECT_EQ(refusal.header("Allow"), "POST");
}

TEST_F(PagesTest, APageThatThrowsIs500) {
  const test::TestServer server(
      make_handler({get_page("/", []() -> Response { throw std::runtime_error("no answer"); })}));
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 500);
}

TEST_F(PagesTest, EveryDaemonShowsItsMetricsThatItLivesAndWhetherItIsReady) {
  bool ready = false;
  test::TestServer server(
      make_handler(daemon_pages([] { return std::string("fo_x 1\n"); }, [&] { return ready; })));
  const auto get = [&](const char* path) { return fetch("GET", server.url(path), soon()); };
  EXPECT_EQ(get("/metrics").content_type, metrics::kPrometheusTextType);
  EXPECT_EQ(get("/metrics").body, "fo_x 1\n");
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(get("/live").body, R"({"status":"live"})");
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/ready").body, R"({"status":"notready"})");
  server.call([&] { ready = true; });
  EXPECT_EQ(get("/ready").status, 200);
  EXPECT_EQ(get("/ready").body, R"({"status":"ready"})");
  EXPECT_EQ(get("/live").content_type, "application/json");
  EXPECT_EQ(fetch("HEAD", server.url("/ready"), soon()).status, 200);
  EXPECT_EQ(fetch("POST", server.url("/ready"), soon()).status, 405);
}

}  // namespace
}  // namespace fo::http
