#include "route/resume/whole_answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "http/client.h"
#include "http/sse.h"
#include "json/object.h"
#include "oracle/running_oracle.h"
#include "support/soon.h"

namespace fo::test {
namespace {

using nlohmann::json;
using route::WholeAnswer;

json assembled(const std::vector<std::string>& events) {
  WholeAnswer answer;
  for (const std::string& event : events) answer.feed(http::format_sse(event));
  return json::parse(answer.json());
}

TEST(WholeAnswer, DeltasBecomeAMessage) {
  const json answer = assembled(
      {R"({"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,)"
       R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
       R"({"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,)"
       R"("delta":{"content":"He"},"logprobs":null,"finish_reason":null}]})",
       R"({"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,)"
       R"("delta":{"content":"llo"},"logprobs":null,"finish_reason":"stop","stop_reason":7}]})",
       R"({"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[],)"
       R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}})",
       "[DONE]"});
  EXPECT_EQ(answer, json::parse(R"({"id":"1","object":"chat.completion","created":5,"model":"m",
      "choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"logprobs":null,
                  "finish_reason":"stop","stop_reason":7}],
      "usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}})"));
}

TEST(WholeAnswer, ListsGoOn) {
  const json answer = assembled(
      {R"({"object":"text_completion","choices":[{"text":"a","token_ids":[],"prompt_token_ids":[1,2],)"
       R"("logprobs":{"text_offset":[0],"tokens":["a"],"top_logprobs":[{"a":-0.1}]}}]})",
       R"({"object":"text_completion","choices":[{"text":"b","token_ids":[3,4],)"
       R"("logprobs":{"text_offset":[1],"tokens":["b"],"top_logprobs":[null]}}]})"});
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"], json::parse(R"([{"text":"ab","token_ids":[3,4],
      "prompt_token_ids":[1,2],
      "logprobs":{"text_offset":[0,1],"tokens":["a","b"],"top_logprobs":[{"a":-0.1},null]}}])"));
}

TEST(WholeAnswer, TheLastValueCountsUnlessItIsNull) {
  const json answer = assembled(
      {R"({"system_fingerprint":null,"prompt_token_ids":[1],"choices":[],"usage":{"total_tokens":1}})",
       R"({"system_fingerprint":"f","prompt_token_ids":null,"choices":[],)"
       R"("usage":{"total_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}})",
       R"({"metrics":null,"choices":[],"usage":null})"});
  EXPECT_EQ(answer["system_fingerprint"], "f");
  EXPECT_EQ(answer["prompt_token_ids"], json({1}));
  EXPECT_EQ(answer["usage"],
            json::parse(R"({"total_tokens":2,"prompt_tokens_details":{"cached_tokens":1}})"));
  EXPECT_TRUE(answer["metrics"].is_null());
}

TEST(WholeAnswer, NumbersStayAsTheyAre) {
  WholeAnswer answer;
  answer.feed("data: {\"a\":1.50e-7,\"choices\":[{\"b\":[12345678901234567890.0]}]}\n\n");
  EXPECT_NE(answer.json().find("1.50e-7"), std::string::npos);
  EXPECT_NE(answer.json().find("[12345678901234567890.0]"), std::string::npos);
}

TEST(WholeAnswer, HalvesOfACharacterMeet) {
  const json answer =
      assembled({R"({"choices":[{"text":"a\ud83d"}]})", R"({"choices":[{"text":"\ude42b\ud83d"}]})",
                 R"({"choices":[{"text":"c"}]})"});
  EXPECT_EQ(answer["choices"][0]["text"], "a\U0001F642b\uFFFDc");
}

TEST(WholeAnswer, WithoutAnEventItHasNoChoice) {
  EXPECT_EQ(assembled({})["choices"], json::array());
}

TEST(WholeAnswer, OtherEventsAreInvalid) {
  for (const char* event : {"", "1", "{", R"({"choices":1})", R"({"choices":[1]})", "{} {}"}) {
    WholeAnswer answer;
    EXPECT_THROW(answer.feed(http::format_sse(event)), fo::json::Misfit) << event;
  }
}

// --- Compared with the answers of an engine.

std::string post_to(const oracle::test::RunningOracle& engine, const std::string& path,
                    const json& body) {
  http::FetchOptions options;
  options.body = body.dump();
  const http::Response response = http::fetch("POST", engine.url(path), soon(), options);
  EXPECT_EQ(response.status, 200) << response.body;
  return response.body;
}

// Without what differs between two requests.
json comparable(const std::string& text) {
  json answer = json::parse(text);
  answer.erase("id");
  answer.erase("created");
  return answer;
}

struct Asked {
  const char* path;
  std::string members;
};

std::vector<Asked> requests() {
  const std::string chat = R"("messages":[{"role":"user","content":"Tell me."}],"max_tokens":40)";
  const std::string text = R"("prompt":"Once upon a time","max_tokens":40)";
  std::vector<Asked> asked;
  for (const char* more :
       {"", R"(,"return_token_ids":true)", R"(,"temperature":0.9,"seed":3,"top_p":0.5,"top_k":9)",
        R"(,"repetition_penalty":1.3,"logit_bias":{"300":5},"bad_words":["a"])",
        R"(,"stop":["e"],"min_tokens":5)",
        R"(,"stop":["e"," "],"include_stop_str_in_output":true,"return_token_ids":true)",
        R"(,"stop_token_ids":[266,267,268,269,270,271,272,273,274,275,276,277,278,279,280])",
        R"(,"ignore_eos":true,"skip_special_tokens":false)", R"(,"max_tokens":1)",
        R"(,"allowed_token_ids":[97,98,99,240,159,153,130],"return_token_ids":true)",
        R"(,"oracle":{"half_characters":true},"max_tokens":300,"ignore_eos":true)",
        R"(,"oracle":{"chunk":5,"random_chunks":true},"return_token_ids":true)"}) {
    asked.push_back({"/v1/chat/completions", chat + more});
    asked.push_back({"/v1/completions", text + more});
  }
  for (const char* more : {R"(,"logprobs":0)", R"(,"logprobs":3,"oracle":{"chunk":4})",
                           R"(,"logprobs":2,"stop":["e"],"return_token_ids":true)"}) {
    asked.push_back({"/v1/completions", text + more});
  }
  asked.push_back({"/v1/completions", R"("prompt":[256,97,98])"});
  for (const char* more :
       {R"(,"oracle":{"reasoning":true},"max_tokens":200)",
        R"(,"oracle":{"reasoning":true},"max_tokens":2)",
        R"(,"oracle":{"reasoning":true,"chunk":3},"return_token_ids":true,"max_tokens":200)"}) {
    asked.push_back({"/v1/chat/completions", chat + more});
  }
  return asked;
}

TEST(WholeAnswer, IsThatOfTheEngine) {
  const oracle::test::RunningOracle engine;
  std::vector<std::string> finishes;
  int with_reasoning = 0;
  for (const Asked& one : requests()) {
    json body = json::parse("{" + one.members + "}");
    const json expected = comparable(post_to(engine, one.path, body));
    body["stream"] = true;
    for (const bool is_continuous : {false, true}) {
      body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", is_continuous}};
      const std::string stream = post_to(engine, one.path, body);
      WholeAnswer answer;
      constexpr std::size_t kPiece = 100;
      for (std::size_t at = 0; at < stream.size(); at += kPiece) {
        answer.feed(std::string_view(stream).substr(at, kPiece));
      }
      EXPECT_EQ(comparable(answer.json()), expected) << one.path << " " << one.members;
    }
    const json& choice = expected["choices"][0];
    finishes.push_back(choice["finish_reason"].get<std::string>());
    with_reasoning += choice.contains("message") && choice["message"].contains("reasoning_content");
  }
  EXPECT_NE(std::ranges::count(finishes, "stop"), 0);
  EXPECT_NE(std::ranges::count(finishes, "length"), 0);
  EXPECT_EQ(with_reasoning, 3);
}

}  // namespace
}  // namespace fo::test
