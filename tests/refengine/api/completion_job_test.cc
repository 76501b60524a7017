// Completions of a real, small model over HTTP.
#include "refengine/api/completion_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "http/client.h"
#include "http/sse.h"
#include "http/support.h"
#include "refengine/local_model.h"
#include "refengine/model/tokens.h"

namespace fo::refengine {
namespace {

using fo::test::soon;
using nlohmann::json;

constexpr const char* kText = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

class CompletionJobTest : public ::testing::Test {
 protected:
  [[nodiscard]] http::Response post(const std::string& path, const json& body) const {
    http::FetchOptions options;
    options.body = body.dump();
    return http::fetch("POST", engine_.url(path), soon(), options);
  }
  [[nodiscard]] json whole(const json& body, const char* path = kText) const {
    const http::Response response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  [[nodiscard]] json choice(const json& body) const { return whole(body)["choices"][0]; }
  // The chunks of a stream.
  [[nodiscard]] std::vector<json> stream(json body, const char* path = kText) const {
    body["stream"] = true;
    const http::Response response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    http::SseReader reader;
    std::string_view bytes = response.body;
    std::vector<json> chunks;
    bool is_done = false;
    while (const auto event = reader.next(bytes)) {
      EXPECT_FALSE(is_done);
      is_done = event->data == "[DONE]";
      if (!is_done) chunks.push_back(json::parse(event->data));
    }
    EXPECT_TRUE(is_done);
    return chunks;
  }
  // The greedy answer, with some constraints for characters of several bytes and invalid ones.
  [[nodiscard]] static json body_of(const std::vector<TokenId>& prompt, std::size_t max_tokens) {
    json biases = json::object();
    for (const int byte : {0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xFF}) {
      biases[std::to_string(byte)] = 2;
    }
    return {{"prompt", prompt},
            {"max_tokens", max_tokens},
            {"logit_bias", biases},
            {"ignore_eos", true}};
  }

  LocalEngine engine_;
  const std::vector<TokenId> prompt_ = encode_text("Hello", engine_.model().config());
};

std::size_t count_pieces_without_text(const std::vector<json>& chunks) {
  return static_cast<std::size_t>(std::ranges::count_if(
      chunks, [](const json& chunk) { return chunk["choices"][0]["text"] == ""; }));
}

TEST_F(CompletionJobTest, AContinuationAfterEachTokenIsTheRestOfTheAnswer) {
  constexpr std::size_t kTokens = 80;
  const std::vector<json> undisturbed = stream(body_of(prompt_, kTokens));
  ASSERT_EQ(undisturbed.size(), kTokens);
  EXPECT_GT(count_pieces_without_text(undisturbed), kTokens / 8) << "no character of several bytes";
  std::vector<TokenId> prompt = prompt_;
  for (std::size_t k = 0; k < kTokens; ++k) {
    const std::vector<json> rest = stream(body_of(prompt, kTokens - k));
    ASSERT_EQ(rest.size(), kTokens - k);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      EXPECT_EQ(rest[i]["choices"], undisturbed[k + i]["choices"]) << k << "+" << i;
    }
    prompt.push_back(undisturbed[k]["choices"][0]["token_ids"][0]);
  }
}

TEST_F(CompletionJobTest, ASeededContinuationIsTheRestWithTheSameSeedOnly) {
  constexpr std::size_t kTokens = 40;
  json body{{"prompt", prompt_},
            {"max_tokens", kTokens},
            {"ignore_eos", true},
            {"temperature", 1},
            {"seed", 5}};
  const std::vector<TokenId> drawn = choice(body)["token_ids"];
  std::vector<TokenId> prompt = prompt_;
  prompt.insert(prompt.end(), drawn.begin(), drawn.begin() + 10);
  body["prompt"] = prompt;
  body["max_tokens"] = kTokens - 10;
  const std::vector<TokenId> rest(drawn.begin() + 10, drawn.end());
  EXPECT_EQ(choice(body)["token_ids"], rest);
  body["seed"] = 6;
  EXPECT_NE(choice(body)["token_ids"], rest);
}

TEST_F(CompletionJobTest, AStreamIsTheWholeAnswerInPieces) {
  json body = body_of(prompt_, 30);
  body["return_token_ids"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const std::vector<json> chunks = stream(body);
  body.erase("stream_options");
  const json answer = whole(body);
  std::string text;
  std::vector<TokenId> tokens;
  ASSERT_EQ(chunks.size(), 31u);
  for (std::size_t i = 0; i < 30; ++i) {
    const json& piece = chunks[i]["choices"][0];
    text += piece["text"];
    tokens.push_back(piece["token_ids"][0]);
    EXPECT_EQ(piece.contains("prompt_token_ids"), i == 0);
    EXPECT_EQ(piece["finish_reason"], i == 29 ? json("length") : json());
    EXPECT_EQ(chunks[i]["usage"]["completion_tokens"], i + 1);
  }
  EXPECT_EQ(chunks[0]["choices"][0]["prompt_token_ids"], prompt_);
  EXPECT_EQ(answer["choices"][0]["prompt_token_ids"], prompt_);
  EXPECT_EQ(answer["choices"][0]["text"], text);
  EXPECT_EQ(answer["choices"][0]["token_ids"], tokens);
  EXPECT_EQ(chunks[30]["choices"], json::array());
  EXPECT_EQ(chunks[30]["usage"], answer["usage"]);
}

TEST_F(CompletionJobTest, AStreamThatIsNotReadDelaysNoOther) {
  LocalEngine engine(LocalEngine::Options{.max_positions = 1024});
  json body = body_of(prompt_, 1000);
  body["stream"] = true;
  body["logprobs"] = 20;
  const std::string text = body.dump();
  http::test::RawClient slow;
  http::test::limit_buffers(slow.fd());
  slow.connect(engine.port());
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " +
            std::to_string(text.size()) + "\r\n\r\n" + text);
  std::string answer = slow.read_until("data: ");
  http::FetchOptions other;
  other.body = body_of(prompt_, 1).dump();
  EXPECT_EQ(http::fetch("POST", engine.url(kText), soon(), other).status, 200);
  answer += slow.read_to_end();
  EXPECT_GT(answer.size(), std::size_t{4} * http::test::kSmallBuffer);
  EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
}

TEST_F(CompletionJobTest, AChatIsAPromptInItsTemplate) {
  const json messages = json::parse(R"([{"role":"user","content":"Hi"},
                                        {"role":"assistant","content":"Yo"}])");
  json chat{{"messages", messages},
            {"max_tokens", 8},
            {"add_generation_prompt", false},
            {"continue_final_message", true},
            {"return_token_ids", true}};
  const json answer = whole(chat, kChat);
  const json tokens = whole(chat, "/tokenize")["tokens"];
  EXPECT_EQ(answer["prompt_token_ids"], tokens);
  const json text = choice({{"prompt", "user: Hi\nassistant: Yo"}, {"max_tokens", 8}});
  EXPECT_EQ(answer["choices"][0]["message"]["content"], text["text"]);
  EXPECT_EQ(answer["choices"][0]["token_ids"], text["token_ids"]);
  const std::vector<json> chunks = stream(chat, kChat);
  EXPECT_EQ(chunks[0]["prompt_token_ids"], tokens);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(chunks.size(), 9u);
}

TEST_F(CompletionJobTest, StopsEndAnAnswerAndSayWhy) {
  json body{{"prompt", prompt_}, {"max_tokens", 40}, {"ignore_eos", true}};
  const json undisturbed = choice(body);
  EXPECT_EQ(undisturbed["stop_reason"], json());
  const std::string text = undisturbed["text"];
  const std::vector<TokenId> tokens = undisturbed["token_ids"];
  ASSERT_EQ(text.size(), 40u) << "this model's answer is ASCII";
  const std::string stop = text.substr(10, 3);
  const std::size_t at = text.find(stop);
  body["stop"] = {"nowhere", stop};
  json stopped = choice(body);
  EXPECT_EQ(stopped["text"], text.substr(0, at));
  EXPECT_EQ(stopped["stop_reason"], stop);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["token_ids"].size(), at + 3);
  std::string streamed;
  for (const json& chunk : stream(body)) streamed += chunk["choices"][0]["text"];
  EXPECT_EQ(streamed, text.substr(0, at));
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(choice(body)["text"], text.substr(0, at + 3));
  body["min_tokens"] = at + 3;
  EXPECT_NE(choice(body)["text"], text.substr(0, at + 3));
  body.erase("min_tokens");
  body.erase("stop");
  body["stop_token_ids"] = {tokens[5]};
  const auto first = std::find(tokens.begin(), tokens.end(), tokens[5]) - tokens.begin();
  const auto end = static_cast<std::size_t>(first);
  stopped = choice(body);
  EXPECT_EQ(stopped["text"], text.substr(0, end + 1));
  EXPECT_EQ(stopped["stop_reason"], tokens[5]);
  EXPECT_EQ(stopped["token_ids"].back(), tokens[5]);
  body["include_stop_str_in_output"] = false;
  stopped = choice(body);
  EXPECT_EQ(stopped["text"], text.substr(0, end));
  EXPECT_EQ(stopped["token_ids"].back(), tokens[5]) << "a hidden token is a token";
  body["min_tokens"] = end + 1;
  EXPECT_NE(choice(body)["token_ids"][end], tokens[5]) << "it is not chosen among the first";
}

TEST_F(CompletionJobTest, ConstraintsChangeTheAnswer) {
  json body{{"prompt", prompt_}, {"max_tokens", 20}, {"ignore_eos", true}};
  const std::vector<TokenId> tokens = choice(body)["token_ids"];
  body["allowed_token_ids"] = {'a', 'b'};
  const std::vector<TokenId> limited = choice(body)["token_ids"];
  for (const TokenId token : limited) EXPECT_TRUE(token == 'a' || token == 'b');
  body["bad_words"] = {"a"};
  EXPECT_EQ(choice(body)["token_ids"], std::vector<TokenId>(20, 'b'));
  body.erase("allowed_token_ids");
  const std::string bad{static_cast<char>(tokens[0]), static_cast<char>(tokens[1])};
  body["bad_words"] = {bad};
  const std::vector<TokenId> other = choice(body)["token_ids"];
  EXPECT_EQ(other[0], tokens[0]);
  EXPECT_NE(other[1], tokens[1]);
  body.erase("bad_words");
  body["logit_bias"] = {{"120", 100}};
  EXPECT_EQ(choice(body)["token_ids"], std::vector<TokenId>(20, 'x'));
}

TEST_F(CompletionJobTest, AnEchoBeginsWithThePrompt) {
  json body{{"prompt", prompt_}, {"max_tokens", 4}, {"logprobs", 1}};
  const json plain = choice(body);
  body["echo"] = true;
  const json echoed = choice(body);
  EXPECT_EQ(echoed["text"], "Hello" + plain["text"].get<std::string>());
  EXPECT_EQ(echoed["token_ids"], plain["token_ids"]);
  const json& logprobs = echoed["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), prompt_.size() + 4);
  EXPECT_EQ(logprobs["token_logprobs"][0], json());
  EXPECT_EQ(logprobs["text_offset"], json({0, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(logprobs["token_logprobs"][prompt_.size()], plain["logprobs"]["token_logprobs"][0]);
  // As far as the prompt has more tokens, it is scored as the answer was.
  std::vector<TokenId> longer = prompt_;
  for (const json& token : plain["token_ids"]) longer.push_back(token);
  body["prompt"] = longer;
  body["max_tokens"] = 0;
  const json scored = choice(body);
  EXPECT_EQ(scored["logprobs"]["token_logprobs"], logprobs["token_logprobs"]);
  EXPECT_EQ(scored["logprobs"]["top_logprobs"], logprobs["top_logprobs"]);
  EXPECT_EQ(scored["finish_reason"], "length");
  EXPECT_EQ(scored["token_ids"], json::array());
  const std::vector<json> chunks = stream(body);
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], scored["text"]);
  EXPECT_EQ(chunks[0]["choices"][0]["logprobs"], scored["logprobs"]);
  body["return_token_ids"] = true;
  EXPECT_EQ(choice(body)["text"], "") << "as in vLLM";
}

TEST_F(CompletionJobTest, ThePromptsLogprobsAreThoseOfTheAnswer) {
  json body{{"prompt", prompt_}, {"max_tokens", 4}, {"logprobs", 1}};
  const json plain = choice(body);
  std::vector<TokenId> longer = prompt_;
  for (const json& token : plain["token_ids"]) longer.push_back(token);
  const json scored = choice({{"prompt", longer}, {"max_tokens", 1}, {"prompt_logprobs", 2}});
  ASSERT_EQ(scored["prompt_logprobs"].size(), longer.size());
  EXPECT_EQ(scored["prompt_logprobs"][0], json());
  for (std::size_t i = 0; i < 4; ++i) {
    const json& one = scored["prompt_logprobs"][prompt_.size() + i];
    const std::string id = plain["token_ids"][i].dump();
    EXPECT_EQ(one[id]["logprob"], plain["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(one[id]["rank"], 1) << "a greedy token is the likeliest";
    EXPECT_EQ(one.size(), 2u);
  }
}

TEST_F(CompletionJobTest, TheRequestsIdIsTheAnswers) {
  http::FetchOptions options;
  options.headers.emplace_back("X-Request-Id", "r1");
  for (const bool streams : {false, true}) {
    options.body = json{{"prompt", "a"}, {"max_tokens", 1}, {"stream", streams}}.dump();
    const http::Response response = http::fetch("POST", engine_.url(kText), soon(), options);
    EXPECT_EQ(response.header("x-request-id"), "r1");
    EXPECT_NE(response.body.find(R"("id":"cmpl-r1")"), std::string::npos);
  }
  EXPECT_EQ(post(kText, {{"prompt", "a"}}).header("x-request-id"), std::nullopt);
}

TEST_F(CompletionJobTest, InvalidLengthsAreRefusedByName) {
  const auto refused = [&](const json& body) {
    const http::Response response = post(kText, body);
    EXPECT_EQ(response.status, 400);
    return json::parse(response.body)["error"]["param"];
  };
  EXPECT_EQ(refused({{"prompt", "a"}, {"max_tokens", 2}, {"min_tokens", 3}}), "min_tokens");
  EXPECT_EQ(refused({{"prompt", "a"}, {"max_tokens", 4096}}), "prompt");
  EXPECT_EQ(refused({{"prompt", json::array()}}), "prompt");
}

TEST_F(CompletionJobTest, TokensAreTextAndBack) {
  const json tokens = whole({{"model", "model"}, {"prompt", "aé"}}, "/tokenize");
  EXPECT_EQ(tokens, json::parse(R"({"count":4,"max_model_len":256,"tokens":[256,97,195,169],
                                    "token_strs":null})"));
  const json text = whole({{"model", "model"}, {"tokens", tokens["tokens"]}}, "/detokenize");
  EXPECT_EQ(text, json({{"prompt", "aé"}}));
  EXPECT_EQ(post("/detokenize", {{"tokens", {999}}}).status, 400);
  EXPECT_EQ(post("/tokenize", json::object()).status, 400);
}

}  // namespace
}  // namespace fo::refengine
