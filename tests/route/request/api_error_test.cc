#include "route/request/api_error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "http/sse.h"

namespace fo::test {
namespace {

using nlohmann::json;
using route::ApiError;

TEST(ApiError, IsTheObjectOfOpenAi) {
  const http::Response response = to_response(ApiError{
      .status = 404, .message = "no such model", .code = "model_not_found", .param = "model"});
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_TRUE(response.headers.empty());
  EXPECT_EQ(json::parse(response.body), json({{"error",
                                               {{"message", "no such model"},
                                                {"type", "invalid_request_error"},
                                                {"param", "model"},
                                                {"code", "model_not_found"}}}}));
  const json plain = json::parse(to_response(ApiError{.message = "x"}).body);
  EXPECT_TRUE(plain["error"]["param"].is_null());
  EXPECT_TRUE(plain["error"]["code"].is_null());
}

TEST(ApiError, TheTypeFollowsFromTheStatus) {
  const auto type_of = [](int status) {
    const http::Response response = to_response(ApiError{.status = status, .message = "x"});
    return json::parse(response.body)["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type_of(400), "invalid_request_error");
  EXPECT_EQ(type_of(401), "authentication_error");
  EXPECT_EQ(type_of(422), "invalid_request_error");
  EXPECT_EQ(type_of(429), "rate_limit_error");
  EXPECT_EQ(type_of(503), "server_error");
  EXPECT_EQ(type_of(529), "server_error");
}

TEST(ApiError, RetryAfterIsRoundedUp) {
  const auto header = [](base::Duration time) {
    const http::Response response =
        to_response(ApiError{.status = 503, .message = "x", .retry_after = time});
    return std::string(response.header("retry-after").value_or(""));
  };
  EXPECT_EQ(header(std::chrono::seconds(0)), "0");
  EXPECT_EQ(header(std::chrono::nanoseconds(1)), "1");
  EXPECT_EQ(header(std::chrono::seconds(60)), "60");
  EXPECT_EQ(header(std::chrono::milliseconds(1001)), "2");
}

TEST(ApiError, ClientsAreAdvisedNotToRetry) {
  EXPECT_EQ(to_response(ApiError{.message = "x", .should_retry = false}).headers,
            (http::Fields{{"x-should-retry", "false"}}));
}

TEST(ApiError, TextThatIsNotUtf8IsReplaced) {
  const http::Response response =
      to_response(ApiError{.message = "half \xc3", .param = std::string("\0\n\"", 3)});
  const json object = json::parse(response.body);
  EXPECT_EQ(object["error"]["message"], "half \xef\xbf\xbd");
  EXPECT_EQ(object["error"]["param"], std::string("\0\n\"", 3));
}

TEST(ApiError, TheLastEventOfAStreamCountsWhatWasDelivered) {
  const ApiError error{.status = 502,
                       .message = "line\n\ndata: [DONE]\r\n",
                       .code = "worker_lost",
                       .delivered_tokens = 7};
  const std::string text = to_event(error);
  http::SseReader reader;
  std::string_view bytes = text;
  const auto event = reader.next(bytes);
  ASSERT_TRUE(event);
  EXPECT_TRUE(bytes.empty());
  const json object = json::parse(event->data);
  EXPECT_EQ(object["error"]["code"], "worker_lost");
  EXPECT_EQ(object["error"]["delivered_tokens"], 7);
  EXPECT_EQ(object["error"]["message"], "line\n\ndata: [DONE]\r\n");
}

}  // namespace
}  // namespace fo::test
