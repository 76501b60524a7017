#include "route/resume/text/text_continuation.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "http/server.h"
#include "route/request/client_request.h"

namespace fo::test {
namespace {

using nlohmann::json;
using route::TextContinuation;

route::StreamChunk counted(std::uint64_t tokens, std::uint64_t prompt = 0,
                           std::uint64_t completion = 0) {
  route::StreamChunk chunk;
  chunk.tokens = tokens;
  if (prompt > 0) chunk.usage = route::Usage{prompt, completion};
  return chunk;
}

TEST(TextContinuation, CountsEventsUnlessTheEngineCountsTokens) {
  TextContinuation text;
  EXPECT_FALSE(text.usage());
  text.count(counted(1));
  text.count(counted(1));
  EXPECT_EQ(text.tokens(), 2U);
  EXPECT_FALSE(text.usage());
  text.begin("so far");
  // The engine's prompt has the first two tokens.
  text.count(counted(1, 12, 3));
  EXPECT_EQ(text.tokens(), 5U);
  text.begin("so far and on");
  text.count(counted(1, 15, 1));
  EXPECT_EQ(text.tokens(), 6U);
  EXPECT_EQ(text.usage()->prompt_tokens, 10U);
  EXPECT_EQ(text.usage()->completion_tokens, 6U);
}

TEST(TextContinuation, WhiteSpaceThatComesAgainIsNotNew) {
  const auto after = [](std::string_view text, std::initializer_list<std::string_view> parts) {
    TextContinuation continuation;
    continuation.begin(text);
    std::string fresh;
    for (const std::string_view part : parts) fresh += continuation.fresh(part);
    return fresh;
  };
  EXPECT_EQ(after("a \n", {" \nb"}), "b");
  EXPECT_EQ(after("a \n", {" ", "", "\n", "\nb"}), "\nb");
  EXPECT_EQ(after("a \n", {" b", "\n"}), "b\n");
  EXPECT_EQ(after("a \n", {"b", " \n"}), "b \n");
  EXPECT_EQ(after("a", {" b"}), " b");
  EXPECT_EQ(after(" ", {" ", " "}), " ");
}

json body_of(const json& request, std::string_view text, const TextContinuation::Rest& rest,
             bool is_streamed = true) {
  const bool is_chat = request.contains("messages");
  http::Request from;
  from.method = "POST";
  from.body = request.dump();
  from.headers = {{"content-type", "application/json"}};
  const auto read =
      route::read_request(from, is_chat ? route::Api::kChat : route::Api::kCompletions, {});
  return json::parse(TextContinuation::body(read.request.value(), text, rest, is_streamed));
}

TEST(TextContinuation, AChatsTextIsTheLastMessage) {
  const json message{{"role", "user"}, {"content", "hi"}};
  const json request{{"model", "m"},    {"messages", {message}}, {"max_tokens", 9}, {"top_p", 0.5},
                     {"min_tokens", 4}, {"stop", "x"},           {"seed", 7}};
  json body = body_of(request, "so \n", {.max_tokens = 5, .min_tokens = 1, .seed = 8});
  EXPECT_EQ(body["messages"], json({message, {{"role", "assistant"}, {"content", "so"}}}));
  EXPECT_EQ(body["continue_final_message"], true);
  EXPECT_EQ(body["add_generation_prompt"], false);
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["min_tokens"], 1);
  EXPECT_EQ(body["seed"], 8);
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"],
            json({{"include_usage", true}, {"continuous_usage_stats", true}}));
  EXPECT_FALSE(body.contains("stop"));
  body = body_of({{"messages", {message}}, {"max_completion_tokens", 9}}, "so", {.max_tokens = 5},
                 false);
  EXPECT_EQ(body["max_completion_tokens"], 5);
  EXPECT_FALSE(body.contains("max_tokens"));
  EXPECT_FALSE(body.contains("stream_options"));
  // Without a limit of the client it stays without one.
  body = body_of({{"messages", {message}}}, "so", {});
  EXPECT_FALSE(body.contains("max_tokens"));
}

TEST(TextContinuation, ACompletionsTextEndsThePrompt) {
  for (const json& prompt : {json("Once"), json::array({"Once"})}) {
    const json body = body_of({{"prompt", prompt}}, " upon ", {.max_tokens = 5});
    EXPECT_EQ(body["prompt"], "Once upon");
    EXPECT_EQ(body["max_tokens"], 5);
    EXPECT_FALSE(body.contains("continue_final_message"));
  }
}

}  // namespace
}  // namespace fo::test
