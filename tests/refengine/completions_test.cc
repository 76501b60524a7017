#include "refengine/completions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::refengine {
namespace {

using nlohmann::json;

ModelConfig config_of() {
  ModelConfig config;
  config.vocab_size = 258;
  config.bos = 256;
  config.eos = {257};
  return config;
}

CompletionRequest parse(const json& body) {
  return parse_completion(body.dump(), config_of(), "m");
}

int refusal(const std::string& body) {
  try {
    parse_completion(body, config_of(), "m");
  } catch (const ApiError& error) {
    EXPECT_STRNE(error.what(), "");
    return error.status();
  }
  return 200;
}

Generation finished_generation() {
  Generation generation(config_of(), {256, 'a'}, 3, 10);
  for (const TokenId token : {104u, 0xC3u, 0xA9u}) generation.accept(token);
  return generation;
}

TEST(Completions, TextAndTokenIdsAreBothPrompts) {
  EXPECT_EQ(parse({{"prompt", "ab"}}).prompt, (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(parse({{"prompt", {1, 2, 257}}}).prompt, (std::vector<TokenId>{1, 2, 257}));
}

TEST(Completions, AbsentAndNullMeanTheDefaults) {
  const CompletionRequest request =
      parse({{"prompt", "a"}, {"max_tokens", nullptr}, {"n", nullptr}});
  EXPECT_EQ(request.max_tokens, 16u);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.include_usage);
}

TEST(Completions, WhatIsAskedForIsRead) {
  const CompletionRequest request = parse({{"model", "m"},
                                           {"prompt", "a"},
                                           {"max_tokens", 5},
                                           {"stream", true},
                                           {"temperature", 0.5},
                                           {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(request.max_tokens, 5u);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
}

TEST(Completions, AnotherModelIsNotFound) {
  EXPECT_EQ(refusal(R"({"model":"other","prompt":"a"})"), 404);
  EXPECT_EQ(refusal(R"({"model":7,"prompt":"a"})"), 404);
}

TEST(Completions, BrokenAndUnsupportedRequestsAreRefused) {
  for (const char* body : {"",
                           "[]",
                           "{",
                           "null",
                           R"({"prompt":)",
                           R"({})",
                           R"({"prompt":null})",
                           R"({"prompt":7})",
                           R"({"prompt":["a","b"]})",
                           R"({"prompt":[[1]]})",
                           R"({"prompt":[258]})",
                           R"({"prompt":[-1]})",
                           R"({"prompt":[1.0]})",
                           R"({"prompt":{"a":1}})",
                           R"({"prompt":"a","max_tokens":0})",
                           R"({"prompt":"a","max_tokens":-1})",
                           R"({"prompt":"a","max_tokens":"5"})",
                           R"({"prompt":"a","stream":1})",
                           R"({"prompt":"a","stream_options":true})",
                           R"({"prompt":"a","n":2})",
                           R"({"prompt":"a","best_of":2})",
                           R"({"prompt":"a","echo":true})",
                           R"({"prompt":"a","stop":"x"})",
                           R"({"prompt":"a","suffix":"x"})",
                           R"({"prompt":"a","logprobs":1})",
                           "{\"prompt\":\"\xFF\"}"}) {
    EXPECT_EQ(refusal(body), 400) << body;
  }
}

TEST(Completions, TheAnswerHasTextTokensAndCounts) {
  const json answer =
      json::parse(format_completion({"cmpl-1", "m", 99}, finished_generation(), "length"));
  EXPECT_EQ(answer, json::parse(R"({"id":"cmpl-1","object":"text_completion","created":99,
    "model":"m","choices":[{"index":0,"text":"hé","logprobs":null,"finish_reason":"length",
    "token_ids":[104,195,169]}],
    "usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}})"));
}

TEST(Completions, ChunksAreServerSentEvents) {
  const CompletionHead head{"cmpl-1", "m", 99};
  const std::vector<TokenId> tokens{104};
  const std::string event = format_chunk(head, "h\n", tokens, {});
  EXPECT_TRUE(event.starts_with("data: {"));
  EXPECT_TRUE(event.ends_with("}\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
  const json chunk = json::parse(event.substr(6));
  EXPECT_EQ(chunk["choices"][0]["text"], "h\n");
  EXPECT_EQ(chunk["choices"][0]["token_ids"], json({104}));
  EXPECT_TRUE(chunk["choices"][0]["finish_reason"].is_null());
  const json last = json::parse(format_chunk(head, "", {}, "stop").substr(6));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  const json usage = json::parse(format_usage_chunk(head, finished_generation()).substr(6));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["total_tokens"], 5);
}

TEST(Completions, ModelsSaysWhatFits) {
  const json models = json::parse(format_models("m", 99, 512));
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
}

}  // namespace
}  // namespace fo::refengine
