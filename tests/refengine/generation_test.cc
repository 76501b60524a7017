#include "refengine/generation.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace fo::refengine {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 258;
  config.eos = {257};
  return config;
}

std::vector<TokenId> prompt_of(std::size_t size) {
  std::vector<TokenId> prompt(size);
  std::iota(prompt.begin(), prompt.end(), 0u);
  return prompt;
}

GenerationOptions up_to(std::uint64_t max_tokens) {
  GenerationOptions options;
  options.max_tokens = max_tokens;
  return options;
}

TokenChoice token(TokenId id) { return {{id, 0}, {}}; }

TEST(Generation, FeedsThePromptInPiecesThenEachToken) {
  Generation generation(small_config(), prompt_of(kChunkTokens + 3), up_to(2), 100);
  Generation::Step step = generation.next();
  EXPECT_EQ(step.tokens.size(), kChunkTokens);
  EXPECT_EQ(step.position, 0u);
  EXPECT_FALSE(step.wants_token);
  generation.advance();
  step = generation.next();
  EXPECT_EQ(step.tokens.size(), 3u);
  EXPECT_EQ(step.position, kChunkTokens);
  EXPECT_TRUE(step.wants_token);
  generation.accept(token(9));
  step = generation.next();
  EXPECT_EQ(step.tokens.size(), 1u);
  EXPECT_EQ(step.tokens.front(), 9u);
  EXPECT_EQ(step.position, kChunkTokens + 3);
  generation.accept(token(8));
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kLength);
  EXPECT_EQ(std::vector(generation.output().begin(), generation.output().end()),
            (std::vector<TokenId>{9, 8}));
  EXPECT_EQ(generation.prompt_tokens(), kChunkTokens + 3);
}

TEST(Generation, APromptOfWholePiecesWantsItsTokenWithTheLast) {
  Generation generation(small_config(), prompt_of(2 * kChunkTokens), up_to(1), 100);
  EXPECT_FALSE(generation.next().wants_token);
  generation.advance();
  EXPECT_TRUE(generation.next().wants_token);
}

TEST(Generation, EosEndsItAndIsNoOutput) {
  Generation generation(small_config(), {1}, up_to(10), 100);
  generation.accept(token(5));
  generation.accept(token(257));
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.output().size(), 1u);
}

TEST(Generation, StopTokensEndItAsAnEosDoes) {
  GenerationOptions options = up_to(10);
  options.stop_tokens = {7, 8};
  Generation generation(small_config(), {8}, options, 100);
  generation.accept(token(5));
  generation.accept(token(8));
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.output().size(), 1u);
}

TEST(Generation, AnIgnoredEosIsATokenLikeAnyOther) {
  GenerationOptions options = up_to(2);
  options.ignore_eos = true;
  Generation generation(small_config(), {1}, options, 100);
  generation.accept(token(257));
  EXPECT_FALSE(generation.finished());
  EXPECT_EQ(generation.next().tokens.front(), 257u);
  generation.accept(token(257));
  EXPECT_EQ(generation.reason(), FinishReason::kLength);
  EXPECT_EQ(generation.output().size(), 2u);
  options.stop_tokens = {257};
  Generation stopped(small_config(), {1}, options, 100);
  stopped.accept(token(257));
  EXPECT_EQ(stopped.reason(), FinishReason::kStop);
}

TEST(Generation, WithoutALimitTheCacheIsIt) {
  Generation generation(small_config(), prompt_of(7), {}, 10);
  for (TokenId id = 0; id < 3; ++id) {
    EXPECT_FALSE(generation.finished());
    generation.accept(token(id));
  }
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kLength);
  EXPECT_THROW(Generation(small_config(), prompt_of(10), {}, 10), base::Error);
  EXPECT_THROW(Generation(small_config(), prompt_of(11), {}, 10), base::Error);
}

TEST(Generation, EveryStepCarriesHowToChoose) {
  GenerationOptions options = up_to(2);
  options.sampling.temperature = 0.5;
  options.sampling.seed = 42;
  Generation generation(small_config(), {1}, options, 100);
  EXPECT_EQ(generation.next().sampling.seed, 42u);
  generation.accept({{5, -1.5f}, {{6, -0.5f}}});
  EXPECT_EQ(generation.next().sampling.temperature, 0.5);
  EXPECT_EQ(generation.last().chosen, (TokenLogprob{5, -1.5f}));
  EXPECT_EQ(generation.last().top.front().token, 6u);
}

TEST(Generation, NothingAskedForIsFinishedAtOnce) {
  EXPECT_TRUE(Generation(small_config(), {1}, up_to(0), 100).finished());
}

TEST(Generation, WhatTheCacheCannotHoldIsRefused) {
  EXPECT_NO_THROW(Generation(small_config(), prompt_of(6), up_to(4), 10));
  EXPECT_THROW(Generation(small_config(), prompt_of(6), up_to(5), 10), base::Error);
  EXPECT_THROW(Generation(small_config(), prompt_of(11), up_to(0), 10), base::Error);
  EXPECT_THROW(Generation(small_config(), prompt_of(6), up_to(~0ull), 10), base::Error);
}

TEST(Generation, EmptyAndForeignPromptsAreRefused) {
  EXPECT_THROW(Generation(small_config(), {}, up_to(1), 10), base::Error);
  EXPECT_THROW(Generation(small_config(), {258}, up_to(1), 10), base::Error);
}

}  // namespace
}  // namespace fo::refengine
