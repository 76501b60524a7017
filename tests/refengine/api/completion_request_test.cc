#include "refengine/api/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::refengine {
namespace {

using nlohmann::json;

ModelConfig config_of() { return {.vocab_size = 258, .bos = 256, .eos = {257}}; }

CompletionRequest parse(const json& body, Endpoint endpoint = Endpoint::kCompletions) {
  return parse_completion(endpoint, body.dump(), config_of(), "m", 99);
}

// A request that is valid except for `more`.
CompletionRequest chat(const json& more = json::object()) {
  json body{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  body.update(more);
  return parse(body, Endpoint::kChat);
}

struct Refusal {
  int status = 200;
  std::string parameter;
  std::string reason;
};

Refusal refusal(const std::string& body, Endpoint endpoint = Endpoint::kCompletions) {
  try {
    parse_completion(endpoint, body, config_of(), "m", 99);
  } catch (const ApiError& error) {
    return {error.status(), error.parameter(), error.what()};
  }
  return {};
}

TEST(CompletionRequest, TextAndTokenIdsAreBothPrompts) {
  EXPECT_EQ(parse({{"prompt", "ab"}}).prompt, (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(parse({{"prompt", {1, 2, 257}}}).prompt, (std::vector<TokenId>{1, 2, 257}));
}

TEST(CompletionRequest, AbsentAndNullMeanTheDefaults) {
  json nulls{{"prompt", "a"}};
  for (const char* key : {"model",
                          "max_tokens",
                          "n",
                          "stop",
                          "seed",
                          "temperature",
                          "top_p",
                          "logprobs",
                          "stop_token_ids",
                          "ignore_eos",
                          "stream",
                          "stream_options",
                          "return_token_ids",
                          "suffix",
                          "echo",
                          "logit_bias",
                          "min_tokens",
                          "bad_words",
                          "allowed_token_ids",
                          "prompt_logprobs",
                          "include_stop_str_in_output",
                          "skip_special_tokens",
                          "add_special_tokens"}) {
    nulls[key] = nullptr;
  }
  for (const json& body : {json{{"prompt", "a"}}, nulls}) {
    const CompletionRequest request = parse(body);
    EXPECT_EQ(request.options.max_tokens, 16u);
    EXPECT_EQ(request.options.sampling.temperature, 0);
    EXPECT_EQ(request.options.sampling.top_p, 1);
    EXPECT_EQ(request.options.sampling.seed, 99u);
    EXPECT_EQ(request.options.sampling.logprobs, -1);
    EXPECT_TRUE(request.options.stop_tokens.empty());
    EXPECT_FALSE(request.options.ignore_eos);
    EXPECT_TRUE(request.options.bad_words.empty());
    EXPECT_TRUE(request.options.constraints.biases.empty());
    EXPECT_TRUE(request.options.constraints.allowed.empty());
    EXPECT_EQ(request.options.min_tokens, 0u);
    EXPECT_EQ(request.options.prompt_logprobs, -1);
    EXPECT_TRUE(request.text.stops.empty());
    EXPECT_FALSE(request.text.include_stop);
    EXPECT_FALSE(request.echo);
    EXPECT_FALSE(request.stream);
    EXPECT_FALSE(request.include_usage);
    EXPECT_FALSE(request.continuous_usage);
    EXPECT_FALSE(request.return_token_ids);
  }
  EXPECT_EQ(chat().options.max_tokens, std::nullopt);
}

TEST(CompletionRequest, WhatIsAskedForIsRead) {
  const CompletionRequest request =
      parse({{"model", "m"},
             {"prompt", "a"},
             {"max_tokens", 5},
             {"stream", true},
             {"temperature", 0.5},
             {"top_p", 0.25},
             {"seed", 7},
             {"stop", "\n"},
             {"stop_token_ids", {10, 257}},
             {"ignore_eos", true},
             {"logprobs", 0},
             {"min_tokens", 2},
             {"bad_words", {" ab", "c"}},
             {"logit_bias", {{"5", -1.5}, {"6", 1000}}},
             {"allowed_token_ids", {5, 6}},
             {"include_stop_str_in_output", true},
             {"skip_special_tokens", false},
             {"spaces_between_special_tokens", false},
             {"echo", true},
             {"return_token_ids", true},
             {"user", "somebody"},
             {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  EXPECT_EQ(request.options.max_tokens, 5u);
  EXPECT_EQ(request.options.sampling.temperature, 0.5);
  EXPECT_EQ(request.options.sampling.top_p, 0.25);
  EXPECT_EQ(request.options.sampling.seed, 7u);
  EXPECT_EQ(request.options.sampling.logprobs, 0);
  EXPECT_EQ(request.options.stop_tokens, (std::vector<TokenId>{10, 257}));
  EXPECT_TRUE(request.options.ignore_eos);
  EXPECT_EQ(request.options.min_tokens, 2u);
  EXPECT_EQ(request.options.bad_words, (std::vector<std::vector<TokenId>>{{'a', 'b'}, {'c'}}));
  ASSERT_EQ(request.options.constraints.biases.size(), 2u);
  EXPECT_EQ(request.options.constraints.biases[0].token, 5u);
  EXPECT_EQ(request.options.constraints.biases[0].bias, -1.5f);
  EXPECT_EQ(request.options.constraints.biases[1].bias, 100.0f) << "as in vLLM";
  EXPECT_EQ(request.options.constraints.allowed, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(request.options.prompt_logprobs, 0) << "those of the echo";
  EXPECT_EQ(request.text.stops, (std::vector<std::string>{"\n"}));
  EXPECT_TRUE(request.text.include_stop);
  EXPECT_EQ(request.text.min_tokens, 2u);
  EXPECT_TRUE(request.echo);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.continuous_usage);
  EXPECT_TRUE(request.return_token_ids);
  EXPECT_EQ(parse({{"prompt", "a"}, {"stop", {"b", "c"}}}).text.stops,
            (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(parse({{"prompt", "a"}, {"prompt_logprobs", 3}}).options.prompt_logprobs, 3);
  EXPECT_EQ(parse({{"prompt", "a"}, {"logprobs", 3}}).options.prompt_logprobs, -1);
}

TEST(CompletionRequest, ASnapshotIsOneOfTheTransferParameters) {
  EXPECT_EQ(parse({{"prompt", "a"}, {"kv_transfer_params", {{"fo_snapshot", "x"}}}}).snapshot, "x");
  const json other{{"prompt", "a"}, {"kv_transfer_params", {{"do_remote_decode", true}}}};
  EXPECT_EQ(parse(other).snapshot, std::nullopt);
}

TEST(CompletionRequest, OnlyAnEchoMayHaveNoTokens) {
  EXPECT_EQ(parse({{"prompt", "a"}, {"echo", true}, {"max_tokens", 0}}).options.max_tokens, 0u);
  EXPECT_EQ(refusal(R"({"prompt":"a","max_tokens":0})").parameter, "max_tokens");
}

TEST(CompletionRequest, WhatAStreamCannotHaveIsRefused) {
  EXPECT_EQ(refusal(R"({"prompt":"a","stream":true,"prompt_logprobs":1})").parameter,
            "prompt_logprobs");
  EXPECT_EQ(refusal(R"({"prompt":"a","stream_options":{"include_usage":true}})").parameter,
            "stream_options");
}

TEST(CompletionRequest, CountsInEachChunkNeedTheCounts) {
  const CompletionRequest request = parse(
      {{"prompt", "a"}, {"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}});
  EXPECT_FALSE(request.continuous_usage);
}

TEST(CompletionRequest, ASeedIsAnySignedNumberOf64Bits) {
  const auto seed = [](const char* text) {
    const std::string body = R"({"prompt":"a","seed":)" + std::string(text) + "}";
    return parse_completion(Endpoint::kCompletions, body, config_of(), "m", 99)
        .options.sampling.seed;
  };
  EXPECT_EQ(seed("-1"), ~0ull);
  EXPECT_EQ(seed("9223372036854775807"), (1ull << 63) - 1);
  EXPECT_EQ(seed("-9223372036854775808"), 1ull << 63);
  EXPECT_EQ(refusal(R"({"prompt":"a","seed":9223372036854775808})").parameter, "seed");
  EXPECT_EQ(refusal(R"({"prompt":"a","seed":1.5})").parameter, "seed");
}

TEST(CompletionRequest, ChatHasItsOwnNamesForLengthAndLogprobs) {
  EXPECT_EQ(chat({{"max_tokens", 5}}).options.max_tokens, 5u);
  EXPECT_EQ(chat({{"max_completion_tokens", 6}}).options.max_tokens, 6u);
  EXPECT_EQ(chat({{"max_tokens", 5}, {"max_completion_tokens", 6}}).options.max_tokens, 6u);
  EXPECT_EQ(chat({{"logprobs", false}}).options.sampling.logprobs, -1);
  EXPECT_EQ(chat({{"logprobs", true}}).options.sampling.logprobs, 0);
  EXPECT_EQ(chat({{"logprobs", true}, {"top_logprobs", 20}}).options.sampling.logprobs, 20);
}

TEST(CompletionRequest, AnotherModelIsNotFound) {
  const Refusal other = refusal(R"({"model":"other","prompt":"a"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.parameter, "model");
  EXPECT_EQ(refusal(R"({"model":"other"})", Endpoint::kChat).status, 404);
  EXPECT_EQ(refusal(R"({"model":7,"prompt":"a"})").status, 400);
}

TEST(CompletionRequest, WhatIsNoObjectIsRefused) {
  for (const char* body : {"", "[]", "{", "null", R"({"prompt":)", R"({"prompt":"a","seed":1e999})",
                           "{\"prompt\":\"\xFF\"}"}) {
    const Refusal answer = refusal(body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.reason, "the body is not a JSON object") << body;
    EXPECT_EQ(answer.parameter, "");
  }
}

TEST(CompletionRequest, BadValuesAreRefusedByName) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> bad{
      {"prompt", {"null", "7", R"(["a","b"])", "[[1]]", "[258]", "[-1]", "[1.0]", R"({"a":1})"}},
      {"model", {"7", "[]"}},
      {"max_tokens", {"0", "-1", "1.5", R"("5")", "18446744073709551616"}},
      {"temperature", {"-0.1", "2.01", R"("1")", "true"}},
      {"top_p", {"0", "-1", "1.01", R"("1")"}},
      {"seed", {"1.5", R"("1")", "true", "[]"}},
      {"stop", {"1", R"([1])", R"("")", R"(["a",""])", R"(["1","2","3","4","5"])", "{}"}},
      {"stop_token_ids", {"1", "[258]", "[-1]", R"(["a"])", "{}"}},
      {"allowed_token_ids", {"1", "[]", "[258]"}},
      {"bad_words", {"1", "[1]", R"([""])", R"([" "])"}},
      {"min_tokens", {"-1", "1.5", "true"}},
      {"include_stop_str_in_output", {"1"}},
      {"skip_special_tokens", {"1"}},
      {"spaces_between_special_tokens", {R"("x")"}},
      {"add_special_tokens", {"0"}},
      {"ignore_eos", {"1"}},
      {"logprobs", {"-1", "21", "true", "1.0"}},
      {"return_token_ids", {"1", R"("true")"}},
      {"kv_transfer_params", {"1", R"({"fo_snapshot":1})"}},
      {"stream", {"1"}},
      {"stream_options", {"true", "[]"}},
      {"n", {"2", "0", "true"}},
      {"best_of", {"2"}},
      {"echo", {"1"}},
      {"suffix", {R"("x")"}},
      {"presence_penalty", {"0.5", R"("0")"}},
      {"frequency_penalty", {"-2"}},
      {"repetition_penalty", {"1.1"}},
      {"logit_bias",
       {R"({"50256":-100})", R"({"01":1})", R"({"a":1})", R"({"":1})", R"({"1":"1"})", "[]",
        R"({"-1":1})", R"({"4294967297":1})"}},
      {"top_k", {"5"}},
      {"min_p", {"0.1"}},
      {"prompt_logprobs", {"-1", "21", "true"}},
      {"truncate_prompt_tokens", {"1"}},
      {"logprob_token_ids", {"[1]"}},
      {"return_tokens_as_token_ids", {"true"}},
      {"guided_regex", {R"("a*")"}},
      {"thinking_token_budget", {"5"}},
      {"vllm_xargs", {R"({"a":1})"}},
      {"response_format", {R"({"type":"json_object"})"}},
      {"tools", {R"([{"type":"function"}])"}},
      {"tool_choice", {R"("required")"}}};
  for (const auto& [parameter, values] : bad) {
    for (const char* value : values) {
      const bool prompt = std::string_view(parameter) == "prompt";
      const std::string body = std::string("{") + (prompt ? "" : "\"prompt\":\"a\",") + "\"" +
                               parameter + "\":" + value + "}";
      const Refusal answer = refusal(body);
      EXPECT_EQ(answer.status, 400) << body;
      EXPECT_EQ(answer.parameter, parameter) << body;
      EXPECT_TRUE(answer.reason.starts_with(std::string(parameter) + " ")) << answer.reason;
    }
  }
  EXPECT_EQ(
      refusal(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":1}})").parameter,
      "include_usage");
}

TEST(CompletionRequest, ValuesThatAskForNothingAreAccepted) {
  for (const char* more :
       {R"("presence_penalty":0)", R"("presence_penalty":0.0)", R"("frequency_penalty":0)",
        R"("repetition_penalty":1.0)", R"("n":1)", R"("best_of":1)", R"("echo":false)",
        R"("logit_bias":{})", R"("top_k":-1)", R"("min_p":0.0)", R"("min_tokens":0)",
        R"("response_format":{"type":"text"})", R"("tools":[])", R"("tool_choice":"none")",
        R"("stop":[])", R"("bad_words":[])", R"("stop_token_ids":[])", R"("whatever":[1,2])"}) {
    EXPECT_EQ(refusal(std::string(R"({"prompt":"a",)") + more + "}").status, 200) << more;
  }
}

TEST(CompletionRequest, BadChatsAreRefusedByName) {
  const auto answer = [](const std::string& body) { return refusal(body, Endpoint::kChat); };
  for (const auto& [parameter, value] :
       std::vector<std::pair<const char*, const char*>>{{"logprobs", "1"},
                                                        {"top_logprobs", "1"},
                                                        {"max_completion_tokens", "0"},
                                                        {"n", "2"},
                                                        {"echo", "true"},
                                                        {"continue_final_message", "true"}}) {
    const Refusal refused = answer(std::string(R"({"messages":[{"role":"user","content":"a"}],")") +
                                   parameter + "\":" + value + "}");
    EXPECT_EQ(refused.status, 400) << parameter;
    EXPECT_EQ(refused.parameter, parameter);
  }
  EXPECT_EQ(answer(R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,
                       "top_logprobs":21})")
                .parameter,
            "top_logprobs");
}

TEST(CompletionRequest, SizesAreLimited) {
  EXPECT_NO_THROW(parse({{"prompt", "a"}, {"stop", std::string(kMaxStopBytes, 'x')}}));
  EXPECT_THROW(parse({{"prompt", "a"}, {"stop", std::string(kMaxStopBytes + 1, 'x')}}), ApiError);
  EXPECT_NO_THROW(parse({{"prompt", "a"}, {"stop_token_ids", json(kMaxStopTokens, 1)}}));
  EXPECT_THROW(parse({{"prompt", "a"}, {"stop_token_ids", json(kMaxStopTokens + 1, 1)}}), ApiError);
}

TEST(CompletionRequest, NestingIsLimitedBeforeItCanExhaustTheStack) {
  const auto nested = [](std::size_t depth) {
    return R"({"prompt":"a","model":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(refusal(nested(10)).parameter, "model");
  EXPECT_EQ(refusal(nested(1'000'000)).reason, "the body is nested too deeply");
  EXPECT_EQ(refusal(R"({"prompt":"a","x":)" + std::string(1'000'000, '[')).status, 400);
  EXPECT_THROW(parse_rpc_method(R"({"method":)" + std::string(1'000'000, '[')), ApiError);
}

TEST(CompletionRequest, ARemoteCallIsItsMethod) {
  EXPECT_EQ(parse_rpc_method(R"({"method":"reload_weights","args":[]})"), "reload_weights");
  EXPECT_EQ(parse_rpc_method(R"({"method":7})"), "");
  EXPECT_EQ(parse_rpc_method("{}"), "");
  EXPECT_THROW(parse_rpc_method("x"), ApiError);
  EXPECT_THROW(parse_rpc_method(std::string("{}\0", 3)), ApiError);
}

}  // namespace
}  // namespace fo::refengine
