#include "refengine/api/api.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "http/client.h"
#include "http/support.h"

namespace fo::refengine {
namespace {

using boost::asio::awaitable;
using fo::test::soon;

awaitable<void> nothing() { co_return; }

// The API on a model that sleeps and wakes at once.
class ApiTest : public ::testing::Test {
 protected:
  ApiTest() {
    Scheduler::Model model;
    model.sleep = [] { return nothing(); };
    model.wake = [](WakeTags) { return nothing(); };
    context_->model_name = "model";
    context_->scheduler = std::make_shared<Scheduler>(loop_.get_executor(), std::move(model));
    context_->is_ready = [this] { return is_ready_; };
    server_ = std::make_unique<http::test::TestServer>(make_api(context_));
  }
  [[nodiscard]] http::Response ask(const char* method, const std::string& path) const {
    return http::fetch(method, server_->url(path), soon());
  }

  // Of the scheduler's timers, on which nothing waits here.
  boost::asio::io_context loop_;
  bool is_ready_ = false;
  std::shared_ptr<ApiContext> context_ = std::make_shared<ApiContext>();
  std::unique_ptr<http::test::TestServer> server_;
};

TEST_F(ApiTest, LivesAsLongAsItAnswersAndIsReadyOnceTheEngineIs) {
  EXPECT_EQ(ask("GET", "/live").status, 200);
  EXPECT_EQ(ask("GET", "/ready").status, 503);
  server_->call([this] { is_ready_ = true; });
  EXPECT_EQ(ask("GET", "/ready").status, 200);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("GET", "/metrics").status, 200);
}

TEST_F(ApiTest, RefusalsAreThoseOfOpenAi) {
  const http::Response nowhere = ask("GET", "/nowhere");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(
      nowhere.body,
      R"({"error":{"code":404,"message":"no such path","type":"invalid_request_error","param":null}})");
  const http::Response refused = ask("GET", "/v1/completions");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.header("Allow"), "POST");
  EXPECT_EQ(
      refused.body,
      R"({"error":{"code":405,"message":"GET is not allowed for this path","type":"invalid_request_error","param":null}})");
  EXPECT_EQ(ask("POST", "/sleep?level=3").status, 400);
}

TEST_F(ApiTest, StaysReadyAsleepButRefusesCompletions) {
  server_->call([this] { is_ready_ = true; });
  EXPECT_EQ(ask("POST", "/sleep").status, 200);
  EXPECT_EQ(ask("GET", "/is_sleeping").body, R"({"is_sleeping":true})");
  EXPECT_EQ(ask("GET", "/ready").status, 200);
  EXPECT_EQ(ask("POST", "/wake_up").status, 200);
  EXPECT_EQ(ask("GET", "/is_sleeping").body, R"({"is_sleeping":false})");
}

}  // namespace
}  // namespace fo::refengine
