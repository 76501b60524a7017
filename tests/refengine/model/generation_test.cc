#include "refengine/model/generation.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/error.h"

namespace fo::refengine {
namespace {

ModelConfig small_config() { return {.vocab_size = 258, .bos = {}, .eos = {257}}; }

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

StepResult token(TokenId id) { return {{}, TokenChoice{{id, 0}, {}}}; }

TEST(Generation, FeedsThePromptInPiecesThenEachToken) {
  Generation generation(small_config(), prompt_of(kChunkTokens + 3), up_to(2), 100);
  Generation::Step step = generation.next();
  EXPECT_EQ(step.tokens.size(), kChunkTokens);
  EXPECT_EQ(step.position, 0u);
  EXPECT_FALSE(step.wants_token);
  generation.accept({});
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
  generation.accept({});
  EXPECT_TRUE(generation.next().wants_token);
}

TEST(Generation, EosEndsItAsTheLastToken) {
  Generation generation(small_config(), {1}, up_to(10), 100);
  generation.accept(token(5));
  generation.accept(token(257));
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.stop_token(), std::nullopt);
  EXPECT_EQ(generation.output().size(), 2u);
}

TEST(Generation, StopTokensEndItAsAnEosDoes) {
  GenerationOptions options = up_to(10);
  options.stop_tokens = {7, 8};
  Generation generation(small_config(), {8}, options, 100);
  generation.accept(token(5));
  generation.accept(token(8));
  EXPECT_TRUE(generation.finished());
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.stop_token(), 8u);
  EXPECT_EQ(generation.output().size(), 2u);
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
  generation.accept({{}, TokenChoice{{5, -1.5f}, {{6, -0.5f}}}});
  EXPECT_EQ(generation.next().sampling.temperature, 0.5);
  EXPECT_EQ(generation.last().chosen, (TokenLogprob{5, -1.5f}));
  EXPECT_EQ(generation.last().top.front().token, 6u);
}

std::vector<TokenId> banned(const Generation& generation) {
  std::vector<TokenId> tokens;
  for (const LogitBias& one : generation.next().constraints.biases) {
    if (one.bias == -std::numeric_limits<float>::infinity()) tokens.push_back(one.token);
  }
  return tokens;
}

TEST(Generation, NoStopTokenIsAmongTheFirst) {
  GenerationOptions options = up_to(10);
  options.min_tokens = 2;
  options.ignore_eos = true;
  options.stop_tokens = {7};
  Generation generation(small_config(), {1}, options, 100);
  EXPECT_EQ(banned(generation), (std::vector<TokenId>{257, 7})) << "vLLM bans an ignored eos, too";
  generation.accept(token(5));
  EXPECT_EQ(banned(generation).size(), 2u);
  generation.accept(token(5));
  EXPECT_TRUE(banned(generation).empty());
  generation.accept(token(7));
  EXPECT_EQ(generation.reason(), FinishReason::kStop);
  EXPECT_EQ(generation.output().size(), 3u);
}

TEST(Generation, ABadWordLosesItsLastTokenWhereTheOutputHasTheOthers) {
  GenerationOptions options = up_to(10);
  options.bad_words = {{'a', 'b'}, {'c'}};
  Generation generation(small_config(), {'a'}, options, 100);
  EXPECT_EQ(banned(generation), (std::vector<TokenId>{'c'})) << "the prompt does not count";
  generation.accept(token('a'));
  EXPECT_EQ(banned(generation), (std::vector<TokenId>{'b', 'c'}));
  generation.accept(token('x'));
  EXPECT_EQ(banned(generation), (std::vector<TokenId>{'c'}));
}

TEST(Generation, BiasesAndAllowedTokensAreThoseOfEachStep) {
  GenerationOptions options = up_to(10);
  options.constraints = {{{5, 1.5f}}, {5, 6}};
  Generation generation(small_config(), prompt_of(kChunkTokens + 1), options, 100);
  EXPECT_TRUE(generation.next().constraints.allowed.empty()) << "this step chooses no token";
  generation.accept({});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(generation.next().constraints.allowed, (std::vector<TokenId>{5, 6}));
    EXPECT_EQ(generation.next().constraints.biases.front().bias, 1.5f);
    generation.accept(token(5));
  }
}

// The scores of a step: each target with its id as its rank.
StepResult scores_of(const Generation::Step& step) {
  StepResult result;
  for (const TokenId target : step.targets) result.scores.push_back({{target, -1}, {}, target});
  return result;
}

TEST(Generation, ThePromptIsScoredFromItsSecondTokenOn) {
  for (const std::size_t size :
       {std::size_t{2}, kChunkTokens, kChunkTokens + 1, 2 * kChunkTokens + 5}) {
    for (const std::uint64_t max_tokens : {0u, 1u}) {
      GenerationOptions options = up_to(max_tokens);
      options.prompt_logprobs = 3;
      Generation generation(small_config(), prompt_of(size), options, 200);
      EXPECT_EQ(generation.next().target_logprobs, 3u);
      while (!generation.finished()) {
        StepResult result = scores_of(generation.next());
        if (generation.next().wants_token) result.token = TokenChoice{{1, 0}, {}};
        EXPECT_TRUE(max_tokens > 0 || !result.token);
        generation.accept(std::move(result));
      }
      ASSERT_EQ(generation.prompt_scores().size(), size - 1);
      for (std::size_t i = 1; i < size; ++i) {
        EXPECT_EQ(generation.prompt_scores()[i - 1].rank, i);
      }
      EXPECT_EQ(generation.output().size(), max_tokens);
    }
  }
}

TEST(Generation, ALostCacheScoresThePromptAgain) {
  GenerationOptions options = up_to(2);
  options.prompt_logprobs = 0;
  Generation generation(small_config(), prompt_of(kChunkTokens + 4), options, 200);
  generation.accept(scores_of(generation.next()));
  generation.rewind();
  EXPECT_TRUE(generation.prompt_scores().empty());
  while (!generation.finished()) {
    StepResult result = scores_of(generation.next());
    if (generation.next().wants_token) result.token = TokenChoice{{1, 0}, {}};
    generation.accept(std::move(result));
  }
  EXPECT_EQ(generation.prompt_scores().size(), kChunkTokens + 3);
}

TEST(Generation, WhatTheCacheHasIsSkipped) {
  Generation generation(small_config(), prompt_of(50), up_to(2), 100);
  generation.skip(45);
  EXPECT_EQ(generation.next().position, 45u);
  EXPECT_EQ(generation.next().tokens.size(), 5u);
  EXPECT_EQ(generation.cached_tokens(), 45u);
  generation.rewind();
  EXPECT_EQ(generation.next().position, 0u);
  EXPECT_EQ(generation.cached_tokens(), 0u);
  Generation whole(small_config(), prompt_of(50), up_to(2), 100);
  whole.skip(50);
  EXPECT_EQ(whole.next().position, 49u) << "the next token follows from the last one";
  EXPECT_TRUE(whole.next().wants_token);
}

TEST(Generation, NothingAskedForIsFinishedAtOnce) {
  EXPECT_TRUE(Generation(small_config(), {1}, up_to(0), 100).finished());
  GenerationOptions options = up_to(0);
  options.prompt_logprobs = 1;
  EXPECT_TRUE(Generation(small_config(), {1}, options, 100).finished());
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
