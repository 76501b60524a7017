#include "oracle/model/generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fo::oracle {
namespace {

struct Ended {
  std::vector<TokenId> tokens;
  std::string text;
  std::string finish;
  Generation::StopReason reason;
};

Ended run(const std::vector<TokenId>& prompt, GenerationOptions options) {
  Generation generation({}, prompt, std::move(options));
  Ended ended;
  while (!generation.finished()) {
    const AnswerToken token = generation.next();
    ended.tokens.push_back(token.token);
    ended.text += token.text;
  }
  ended.finish = generation.finish();
  ended.reason = generation.stop_reason();
  return ended;
}

const std::vector<TokenId> kTellMe = encode("tell me");

TEST(OracleGeneration, IsTheModelsContinuation) {
  const Ended ended = run(kTellMe, {.max_tokens = 30, .ignore_end = true});
  EXPECT_EQ(ended.tokens.size(), 30u);
  EXPECT_EQ(ended.finish, "length");
  const std::vector<TokenId> known = continuation(kTellMe, 30);
  EXPECT_TRUE(std::equal(known.begin(), known.end(), ended.tokens.begin()));
}

TEST(OracleGeneration, NoiseMovesLogProbabilitiesAndNoTokens) {
  const auto tokens_of = [](double amplitude, std::uint64_t noise) {
    Generation generation({}, kTellMe,
                          {.max_tokens = 50,
                           .ignore_end = true,
                           .logprobs = 5,
                           .logprob_noise = amplitude,
                           .noise = noise});
    std::vector<AnswerToken> tokens;
    while (!generation.finished()) tokens.push_back(generation.next());
    return tokens;
  };
  const std::vector<AnswerToken> exact = tokens_of(0, 1);
  const std::vector<AnswerToken> noisy = tokens_of(0.02, 1);
  const std::vector<AnswerToken> other = tokens_of(0.02, 2);
  double largest = 0;
  double apart = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(noisy[i].token, exact[i].token);
    ASSERT_EQ(noisy[i].best.front().logprob, noisy[i].logprob);
    ASSERT_EQ(noisy[i].best.size(), 5U);
    largest = std::max(largest, std::abs(noisy[i].logprob - exact[i].logprob));
    apart = std::max(apart, std::abs(noisy[i].logprob - other[i].logprob));
  }
  EXPECT_LE(largest, 0.02);
  EXPECT_GT(largest, 0.015);
  EXPECT_GT(apart, 0.02);
}

TEST(OracleGeneration, EndsWithTheEndToken) {
  for (TokenId first = 0; first < 40; ++first) {
    const std::vector<TokenId> prompt{first};
    const Ended ended = run(prompt, {.max_tokens = 5000});
    ASSERT_EQ(ended.finish, "stop");
    EXPECT_EQ(ended.tokens.back(), kEnd);
    EXPECT_EQ(ended.tokens, continuation(prompt, 5000));
    EXPECT_TRUE(std::holds_alternative<std::monostate>(ended.reason));
  }
}

TEST(OracleGeneration, AStopTokenEndsItWithoutItsText) {
  const Ended whole = run(kTellMe, {.max_tokens = 10, .ignore_end = true});
  const TokenId stop = whole.tokens[6];
  const auto at = std::ranges::find(whole.tokens, stop) - whole.tokens.begin();
  const Ended ended = run(kTellMe, {.max_tokens = 10, .ignore_end = true, .stop_tokens = {stop}});
  EXPECT_EQ(ended.finish, "stop");
  EXPECT_EQ(std::get<TokenId>(ended.reason), stop);
  ASSERT_EQ(ended.tokens.size(), static_cast<std::size_t>(at + 1));
  const std::vector<TokenId> before(ended.tokens.begin(), ended.tokens.end() - 1);
  EXPECT_EQ(ended.text, text_of(before, SpecialTokens::kSkipped));
}

TEST(OracleGeneration, BeforeMinTokensNothingEndsIt) {
  for (TokenId first = 0; first < 40; ++first) {
    const Ended ended = run({first}, {.max_tokens = 900, .min_tokens = 800, .stops = {" the"}});
    EXPECT_GE(ended.tokens.size(), 800u);
    const auto end = ended.tokens.begin() + 800;
    EXPECT_EQ(std::find(ended.tokens.begin(), end, kEnd), end);
  }
}

TEST(OracleGeneration, WrongTokensBeginWhereTheyShould) {
  const Ended right = run(kTellMe, {.max_tokens = 40, .ignore_end = true});
  const Ended wrong = run(kTellMe, {.max_tokens = 40, .ignore_end = true, .wrong_from = 7});
  const auto differ = std::ranges::mismatch(right.tokens, wrong.tokens);
  EXPECT_GE(differ.in1 - right.tokens.begin(), 7);
  EXPECT_LE(differ.in1 - right.tokens.begin(), 9);
}

TEST(OracleGeneration, WithPenaltiesAPromptIsNotAnAnswer) {
  for (const auto& [frequency, presence] : {std::pair(2.0, 0.0), std::pair(0.0, 2.0)}) {
    GenerationOptions options{.max_tokens = 200, .ignore_end = true};
    const Ended plain = run(kTellMe, options);
    options.frequency_penalty = frequency;
    options.presence_penalty = presence;
    const Ended whole = run(kTellMe, options);
    EXPECT_NE(whole.tokens, plain.tokens);
    constexpr std::ptrdiff_t kHalf = 100;
    std::vector<TokenId> prompt = kTellMe;
    prompt.insert(prompt.end(), whole.tokens.begin(), whole.tokens.begin() + kHalf);
    options.max_tokens = kHalf;
    const std::vector<TokenId> rest(whole.tokens.begin() + kHalf, whole.tokens.end());
    EXPECT_NE(run(prompt, options).tokens, rest);
    // A bias in place of the penalties of the first half.
    for (auto at = whole.tokens.begin(); at != whole.tokens.begin() + kHalf; ++at) {
      options.biases[*at] -= frequency;
    }
    EXPECT_EQ(run(prompt, options).tokens == rest, frequency != 0);
  }
}

TEST(OracleGeneration, ABiasMovesTokensUpAndDown) {
  const Ended plain = run(kTellMe, {.max_tokens = 20, .ignore_end = true});
  GenerationOptions options{.max_tokens = 20, .ignore_end = true};
  options.biases = {{300, 100}};
  EXPECT_EQ(run(kTellMe, options).tokens, std::vector<TokenId>(20, 300));
  const TokenId first = plain.tokens.front();
  options.biases = {{first, -1}};
  EXPECT_EQ(run(kTellMe, options).tokens.front(), first) << "the next best is 1.75 below";
  options.biases = {{first, -100}};
  EXPECT_NE(run(kTellMe, options).tokens.front(), first);
}

}  // namespace
}  // namespace fo::oracle
