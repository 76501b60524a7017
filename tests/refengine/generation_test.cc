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

TEST(Generation, FeedsThePromptInPiecesThenEachToken) {
  Generation generation(small_config(), prompt_of(kChunkTokens + 3), 2, 100);
  Generation::Step step = generation.next();
  EXPECT_EQ(step.tokens.size(), kChunkTokens);
  EXPECT_EQ(step.position, 0u);
  EXPECT_FALSE(step.wants_token);
  generation.advance();
  step = generation.next();
  EXPECT_EQ(step.tokens.size(), 3u);
  EXPECT_EQ(step.position, kChunkTokens);
  EXPECT_TRUE(step.wants_token);
  generation.accept(9);
  step = generation.next();
  EXPECT_EQ(step.tokens.size(), 1u);
  EXPECT_EQ(step.tokens.front(), 9u);
  EXPECT_EQ(step.position, kChunkTokens + 3);
  generation.accept(8);
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kLength);
  EXPECT_EQ(std::vector(generation.output().begin(), generation.output().end()),
            (std::vector<TokenId>{9, 8}));
  EXPECT_EQ(generation.prompt_tokens(), kChunkTokens + 3);
}

TEST(Generation, APromptOfWholePiecesWantsItsTokenWithTheLast) {
  Generation generation(small_config(), prompt_of(2 * kChunkTokens), 1, 100);
  EXPECT_FALSE(generation.next().wants_token);
  generation.advance();
  EXPECT_TRUE(generation.next().wants_token);
}

TEST(Generation, EosEndsItAndIsNoOutput) {
  Generation generation(small_config(), {1}, 10, 100);
  generation.accept(5);
  generation.accept(257);
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.output().size(), 1u);
}

TEST(Generation, NothingAskedForIsFinishedAtOnce) {
  EXPECT_TRUE(Generation(small_config(), {1}, 0, 100).finished());
}

TEST(Generation, WhatTheCacheCannotHoldIsRefused) {
  EXPECT_NO_THROW(Generation(small_config(), prompt_of(6), 4, 10));
  EXPECT_THROW(Generation(small_config(), prompt_of(6), 5, 10), base::Error);
  EXPECT_THROW(Generation(small_config(), prompt_of(11), 0, 10), base::Error);
  EXPECT_THROW(Generation(small_config(), prompt_of(6), ~0ull, 10), base::Error);
}

TEST(Generation, EmptyAndForeignPromptsAreRefused) {
  EXPECT_THROW(Generation(small_config(), {}, 1, 10), base::Error);
  EXPECT_THROW(Generation(small_config(), {258}, 1, 10), base::Error);
}

}  // namespace
}  // namespace fo::refengine
