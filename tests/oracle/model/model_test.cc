#include "oracle/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace fo::oracle {
namespace {

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ModelState state_after(const std::vector<TokenId>& tokens, const Weights& weights = {}) {
  ModelState state(weights);
  state.add(tokens);
  return state;
}

TEST(OracleModel, APrefixOfAnAnswerContinuesWithItsRest) {
  const std::vector<TokenId> prompt = encode("the quick brown");
  std::vector<TokenId> whole = prompt;
  const std::vector<TokenId> answer = continuation(prompt, 200);
  for (std::size_t k = 0; k <= answer.size(); ++k) {
    const std::vector<TokenId> given(answer.begin(), answer.begin() + static_cast<long>(k));
    if (!given.empty() && given.back() == kEnd) break;
    EXPECT_EQ(joined(given, continuation(joined(prompt, given), 200 - k)), answer);
  }
}

TEST(OracleModel, EveryTokenBeforeMatters) {
  const std::vector<TokenId> prompt = encode("one two three four five six");
  const std::vector<TokenId> answer = continuation(prompt, 8);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    std::vector<TokenId> other = prompt;
    other[i] = other[i] == 'x' ? 'y' : 'x';
    EXPECT_NE(continuation(other, 8), answer) << i;
  }
  EXPECT_NE(continuation(prompt, 8, {.seed = 1}), answer);
}

TEST(OracleModel, AnswersHaveAllKindsOfTokens) {
  std::size_t ends = 0, empty = 0, bytes = 0, words = 0, characters = 0;
  for (TokenId first = 0; first < 200; ++first) {
    const std::vector<TokenId> answer = continuation(std::vector<TokenId>{first}, 300);
    if (answer.back() == kEnd) ++ends;
    for (const TokenId token : answer) {
      if (token == kEmpty) ++empty;
      if (token >= 0x80 && token < kBytes) ++bytes;
      if (token >= kFirstWord) ++words;
    }
    const std::string text = text_of(answer, SpecialTokens::kSkipped);
    characters += static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0xF0; }));
  }
  EXPECT_GT(ends, 50u);
  EXPECT_LT(ends, 195u);
  EXPECT_GT(empty, 500u);
  EXPECT_GT(bytes, 2000u);
  EXPECT_GT(words, 10000u);
  EXPECT_GT(characters, 500u);
}

TEST(OracleModel, BannedTokensAreReplacedByTheNextBest) {
  const ModelState state = state_after(encode("a"));
  const std::vector<ScoredToken> best = state.best(3, {});
  const std::vector<TokenId> banned{best[0].token};
  EXPECT_EQ(state.next({}), best[0].token);
  EXPECT_EQ(state.next({.banned = banned}), best[1].token);
  const std::vector<TokenId> allowed{best[2].token};
  EXPECT_EQ(state.next({.allowed = allowed}), best[2].token);
  const std::vector<TokenId> unlikely{kTool};
  EXPECT_EQ(state.next({.allowed = unlikely}), kTool);
}

TEST(OracleModel, LogProbabilitiesFallWithAMargin) {
  const ModelState state = state_after(encode("b"));
  const std::vector<ScoredToken> best = state.best(5, {});
  ASSERT_EQ(best.size(), 5u);
  double sum = 0;
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(state.logprob(best[i].token, {}), best[i].logprob);
    if (i > 0) {
      EXPECT_GT(best[i - 1].logprob - best[i].logprob, 0.5);
    }
    sum += std::exp(best[i].logprob);
  }
  EXPECT_LT(state.logprob(kTool, {}), best.back().logprob);
  EXPECT_LT(best.front().logprob, 0);
  EXPECT_LT(sum, 1.3);
}

TEST(OracleModel, OtherParametersChooseOtherTokens) {
  const ModelState state = state_after(encode("parameters"));
  std::map<TokenId, int> seen;
  for (std::uint64_t sampling = 0; sampling < 64; ++sampling) {
    ++seen[state.next({.sampling = sampling})];
  }
  EXPECT_GT(seen.size(), 20u);
}

TEST(OracleModel, ThinkingEndsAfterItsTokens) {
  std::vector<TokenId> prompt = encode("why<|assistant|><think>");
  const std::vector<TokenId> answer = continuation(prompt, 12, {.thinking_tokens = 5});
  EXPECT_EQ(std::ranges::find(answer, kEndThink) - answer.begin(), 5);
  EXPECT_TRUE(state_after(prompt).is_thinking());
  EXPECT_FALSE(state_after(joined(prompt, answer)).is_thinking());
}

}  // namespace
}  // namespace fo::oracle
