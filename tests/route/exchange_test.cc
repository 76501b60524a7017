#include "route/exchange.h"

#include <gtest/gtest.h>

#include "route/client_request.h"

namespace fo::test {
namespace {

using route::Exchange;

route::ClientRequest streamed_chat() {
  route::ClientRequest request;
  request.api = route::Api::kChat;
  request.is_streamed = true;
  return request;
}

const http::ResponseHead kStreamHead{200, {{"Content-Type", "text/event-stream; charset=utf-8"}}};

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

const std::string kRole =
    event(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})");
const std::string kText = event(R"({"choices":[{"index":0,"delta":{"content":"Hi"}}]})");
const std::string kFinish = event(R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})");
const std::string kDone = event("[DONE]");

TEST(Exchange, AStreamIsHeldUntilItBringsContent) {
  Exchange exchange(streamed_chat(), {});
  exchange.begin_attempt();
  exchange.on_head(kStreamHead);
  exchange.on_body(kRole);
  EXPECT_FALSE(exchange.has_head());
  EXPECT_EQ(exchange.take_output(), "");
  EXPECT_FALSE(exchange.is_delivered());
  exchange.on_body(kText);
  EXPECT_TRUE(exchange.has_head());
  EXPECT_EQ(exchange.take_output(), kRole + kText);
  EXPECT_TRUE(exchange.is_delivered());
  EXPECT_EQ(exchange.delivered_tokens(), 1U);
  exchange.on_body(kFinish + kDone);
  EXPECT_EQ(exchange.state(), Exchange::State::kDone);
  EXPECT_EQ(exchange.take_output(), kFinish + kDone);
}

TEST(Exchange, ASecondAttemptLeavesNothingOfTheFirst) {
  Exchange exchange(streamed_chat(), {});
  exchange.begin_attempt();
  exchange.on_head(kStreamHead);
  exchange.on_body(kRole);
  exchange.on_broken("reset");
  EXPECT_EQ(exchange.state(), Exchange::State::kFailed);
  EXPECT_FALSE(exchange.is_delivered());
  exchange.begin_attempt();
  exchange.on_head(kStreamHead);
  exchange.on_body(kRole + kText + kFinish + kDone);
  EXPECT_EQ(exchange.take_output(), kRole + kText + kFinish + kDone);
}

}  // namespace
}  // namespace fo::test
