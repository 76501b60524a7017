#include "oracle/request.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace fo::oracle {
namespace {

using nlohmann::json;

const ModelInfo kSmall{.name = "oracle", .weights = {}, .max_model_len = 64};

CompletionRequest text_request(const json& more = json::object(), const Knobs& knobs = {}) {
  json body{{"prompt", "the"}};
  body.update(more);
  return parse_completion(Endpoint::kCompletions, parse_body(body.dump()), kSmall, knobs);
}

CompletionRequest chat_request(const json& more = json::object(), const Knobs& knobs = {}) {
  json body{{"messages", {{{"role", "user"}, {"content", "the"}}}}};
  body.update(more);
  return parse_completion(Endpoint::kChat, parse_body(body.dump()), kSmall, knobs);
}

// The status and the parameter of a refusal.
std::string refusal(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    return std::to_string(error.status()) + " " + error.parameter();
  }
  return "accepted";
}

TEST(OracleRequest, PromptsAreTextOrTokensOrSeveral) {
  const TokenId the = encode("the")[0];
  using Prompts = std::vector<std::vector<TokenId>>;
  EXPECT_EQ(text_request().prompts, (Prompts{{kBegin, the}}));
  EXPECT_EQ(text_request({{"add_special_tokens", false}}).prompts, (Prompts{{the}}));
  EXPECT_EQ(text_request({{"prompt", json::parse("[1,2]")}}).prompts, (Prompts{{1, 2}}));
  EXPECT_EQ(text_request({{"prompt", json::parse("[[1,2],[3]]")}}).prompts, (Prompts{{1, 2}, {3}}));
  EXPECT_EQ(text_request({{"prompt", json::parse(R"(["the","a"])")}}).prompts,
            (Prompts{{kBegin, the}, {kBegin, 'a'}}));
}

TEST(OracleRequest, AChatIsItsRolesAndTexts) {
  const TokenId the = encode("the")[0];
  using Prompt = std::vector<TokenId>;
  EXPECT_EQ(chat_request().prompts[0], (Prompt{kBegin, kUser, the, kEnd, kAssistant}));
  EXPECT_EQ(chat_request(json::object(), {.reasoning = true}).prompts[0],
            (Prompt{kBegin, kUser, the, kEnd, kAssistant, kThink}));
  EXPECT_EQ(
      chat_request({{"continue_final_message", true}, {"add_generation_prompt", false}}).prompts[0],
      (Prompt{kBegin, kUser, the}));
  const json parts = {{{"type", "text"}, {"text", "the"}},
                      {{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}}};
  EXPECT_EQ(chat_request({{"messages", {{{"role", "system"}, {"content", parts}}}}}).prompts[0],
            (Prompt{kBegin, kSystem, the, kMedia, kEnd, kAssistant}));
}

TEST(OracleRequest, DefaultsAreThoseOfVllm) {
  EXPECT_EQ(text_request().options.max_tokens, 16u);
  EXPECT_EQ(chat_request().options.max_tokens, 64u - 5);
  EXPECT_EQ(chat_request({{"max_tokens", 3}}).options.max_tokens, 3u);
  EXPECT_EQ(chat_request({{"max_tokens", 3}, {"max_completion_tokens", 4}}).options.max_tokens, 4u);
  EXPECT_EQ(text_request({{"echo", true}, {"max_tokens", 0}}).options.max_tokens, 0u);
}

TEST(OracleRequest, ParametersThatChangeAChoiceAreInItsDigest) {
  const std::uint64_t greedy = text_request().options.sampling;
  EXPECT_EQ(greedy, 0u);
  for (const json& neutral :
       {json{{"temperature", 0}, {"seed", 3}, {"top_p", 0.5}}, json{{"repetition_penalty", 1.0}},
        json{{"logit_bias", {{"5", 1}}}}, json{{"cache_salt", "a"}}, json{{"user", "a"}}}) {
    EXPECT_EQ(text_request(neutral).options.sampling, 0u) << neutral;
  }
  std::set<std::uint64_t> seen{greedy};
  for (const json& other :
       {json{{"temperature", 1}}, json{{"temperature", 0.5}}, json{{"temperature", 1}, {"seed", 1}},
        json{{"temperature", 1}, {"seed", 2}}, json{{"temperature", 1}, {"top_p", 0.5}},
        json{{"temperature", 1}, {"top_k", 5}}, json{{"temperature", 1}, {"min_p", 0.1}},
        json{{"repetition_penalty", 1.1}}, json{{"bad_words", {"a"}}},
        json{{"frequency_penalty", 0.1}}}) {
    EXPECT_TRUE(seen.insert(text_request(other).options.sampling).second) << other;
  }
  EXPECT_EQ(text_request({{"temperature", 1}}).options.sampling,
            text_request({{"temperature", 1.0}}).options.sampling);
}

TEST(OracleRequest, OfOneCandidateOnlyTheBestTokenIsChosen) {
  const json one{{"temperature", 1}, {"top_k", 1}};
  EXPECT_EQ(text_request(one).options.sampling, 0U);
  EXPECT_FALSE(text_request(one).is_sampled);
  for (const std::uint64_t seed : {1U, 2U}) {
    EXPECT_EQ(text_request({{"temperature", 1}, {"top_k", 1}, {"seed", seed}}).options.sampling,
              0U);
  }
  EXPECT_TRUE(text_request({{"temperature", 1}, {"top_k", 2}}).is_sampled);
}

TEST(OracleRequest, AWrongSamplerIsOneAtATemperature) {
  const auto wrong_from = [](const json& more) {
    return text_request(more, {.wrong_sampler = true}).options.wrong_from;
  };
  EXPECT_EQ(wrong_from({{"temperature", 1}, {"top_k", 1}}), 0U);
  EXPECT_EQ(wrong_from({{"temperature", 1}}), 0U);
  EXPECT_EQ(wrong_from({{"temperature", 0}}), text_request().options.wrong_from);
}

TEST(OracleRequest, BiasesAreLimitedAsInVllm) {
  const json biases{{"5", 1.5}, {"300", -200}, {"301", 1000}};
  EXPECT_EQ(text_request({{"logit_bias", biases}}).options.biases,
            (std::map<TokenId, double>{{5, 1.5}, {300, -100}, {301, 100}}));
}

TEST(OracleRequest, AnAdapterIsAnotherModel) {
  const ModelInfo model{.adapters = {"french"}};
  const auto parsed = [&](const char* name) {
    return parse_completion(Endpoint::kCompletions, {{"prompt", "a"}, {"model", name}}, model, {});
  };
  EXPECT_EQ(parsed("oracle").options.sampling, 0U);
  EXPECT_NE(parsed("french").options.sampling, 0U);
  EXPECT_EQ(parsed("french").model, "french");
  EXPECT_EQ(refusal([&] { parsed("german"); }), "404 model");
}

TEST(OracleRequest, InvalidOnesAreRefusedByParameter) {
  const auto text = [](const char* more) {
    return refusal([&] { text_request(json::parse(more)); });
  };
  EXPECT_EQ(text(R"({"prompt":null})"), "400 prompt");
  EXPECT_EQ(text(R"({"prompt":[]})"), "400 prompt");
  EXPECT_EQ(text(R"({"prompt":[99999]})"), "400 prompt");
  EXPECT_EQ(text(R"({"prompt":[-1]})"), "400 prompt");
  EXPECT_EQ(text(R"({"prompt":{}})"), "400 prompt");
  EXPECT_EQ(text(R"({"model":"other"})"), "404 model");
  EXPECT_EQ(text(R"({"max_tokens":0})"), "400 max_tokens");
  EXPECT_EQ(text(R"({"max_tokens":63})"), "400 max_tokens");
  EXPECT_EQ(text(R"({"max_tokens":4,"min_tokens":5})"), "400 min_tokens");
  EXPECT_EQ(text(R"({"temperature":3})"), "400 temperature");
  EXPECT_EQ(text(R"({"stop":[""]})"), "400 stop");
  EXPECT_EQ(text(R"({"stop":1})"), "400 stop");
  EXPECT_EQ(text(R"({"logit_bias":[]})"), "400 logit_bias");
  EXPECT_EQ(text(R"({"logit_bias":{"x":1}})"), "400 logit_bias");
  EXPECT_EQ(text(R"({"logit_bias":{"99999":1}})"), "400 logit_bias");
  EXPECT_EQ(text(R"({"logit_bias":{"5":"1"}})"), "400 logit_bias");
  EXPECT_EQ(text(R"({"n":0})"), "400 n");
  EXPECT_EQ(text(R"({"n":100,"prompt":["a","b"]})"), "400 n");
  EXPECT_EQ(text(R"({"stream":1})"), "400 stream");
  EXPECT_EQ(text(R"({"stream_options":{}})"), "400 stream_options");
  EXPECT_EQ(text(R"({"stop_token_ids":5})"), "400 stop_token_ids");
  const auto chat = [](const char* more) {
    return refusal([&] { chat_request(json::parse(more)); });
  };
  EXPECT_EQ(chat(R"({"messages":[]})"), "400 messages");
  EXPECT_EQ(chat(R"({"messages":[{"role":"x","content":"a"}]})"), "400 messages");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user"}]})"), "400 messages");
  EXPECT_EQ(chat(R"({"messages":["a"]})"), "400 messages");
  EXPECT_EQ(chat(R"({"top_logprobs":2})"), "400 top_logprobs");
  EXPECT_EQ(chat(R"({"continue_final_message":true})"), "400 continue_final_message");
  EXPECT_EQ(chat(R"({"tools":[{}]})"), "accepted");
  EXPECT_EQ(refusal([] {
              chat_request({{"tools", {json::object()}}}, {.tool_calls = true});
            }),
            "400 tools");
  const json long_prompt{{"prompt", std::vector<int>(64, 'a')}};
  EXPECT_EQ(refusal([&] { text_request(long_prompt); }), "400 prompt");
  EXPECT_EQ(refusal([] { parse_body("[]"); }), "400 ");
}

TEST(OracleRequest, TokenIdsMayBeIgnoredOrRefused) {
  const json wanted{{"return_token_ids", true}};
  EXPECT_TRUE(text_request(wanted).return_token_ids);
  EXPECT_FALSE(text_request(wanted, {.token_ids = "ignored"}).return_token_ids);
  EXPECT_EQ(refusal([&] { text_request(wanted, {.token_ids = "refused"}); }),
            "400 return_token_ids");
}

}  // namespace
}  // namespace fo::oracle
