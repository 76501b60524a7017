#include "refengine/model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "refengine/model/splitmix.h"

namespace fo::refengine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits for these probabilities, up to a constant.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

Sampling sampling(double temperature, std::uint64_t seed = 0, double top_p = 1) {
  return {.temperature = temperature, .top_p = top_p, .seed = seed};
}

// How often each token is drawn with `count` seeds at one position.
std::map<TokenId, int> frequencies(const std::vector<float>& logits, Sampling how, int count) {
  std::map<TokenId, int> drawn;
  for (int seed = 0; seed < count; ++seed) {
    how.seed = static_cast<std::uint64_t>(seed);
    ++drawn[choose_token(logits, how, {}, 7).chosen.token];
  }
  return drawn;
}

// The published reference outputs for the seed 1234567.
TEST(Splitmix, SaysWhatOthersSay) {
  const std::vector<std::uint64_t> known{6457827717110365317u, 3203168211198807973u,
                                         9817491932198370423u, 4593380528125082431u,
                                         16408922859458223821u};
  for (std::size_t n = 0; n < known.size(); ++n) {
    EXPECT_EQ(splitmix(1234567 + n * kSplitmixStep), known[n]);
  }
}

TEST(Sampler, TemperatureZeroIsGreedyWhateverElseIsSet) {
  const std::vector<float> logits{0.5f, 2, 1, 2};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(choose_token(logits, sampling(0, seed, 0.1), {}, seed).chosen.token, 1u);
  }
}

// 6457827717110365317 / 2^64 = 0.35008, 3203168211198807973 / 2^64 = 0.17364,
// 9817491932198370423 / 2^64 = 0.53221, 16408922859458223821 / 2^64 = 0.88953.
TEST(Sampler, TheDrawIsLookedUpInTheOrderOfIds) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  const Sampling how = sampling(1, 1234567);
  EXPECT_EQ(choose_token(logits, how, {}, 0).chosen.token, 1u);
  EXPECT_EQ(choose_token(logits, how, {}, 1).chosen.token, 0u);
  EXPECT_EQ(choose_token(logits, how, {}, 2).chosen.token, 1u);
  EXPECT_EQ(choose_token(logits, how, {}, 4).chosen.token, 2u);
}

// The two likeliest have a share of 0.7: 0.4 and 0.3 become 4/7 = 0.571 and 3/7.
TEST(Sampler, TopPLeavesTheFewestThatHaveTheShare) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  EXPECT_EQ(choose_token(logits, sampling(1, 1234567, 0.6), {}, 1).chosen.token, 1u);
  EXPECT_EQ(choose_token(logits, sampling(1, 1234567, 0.6), {}, 4).chosen.token, 2u);
  const auto drawn = frequencies(logits, sampling(1, 0, 0.6), 1000);
  EXPECT_EQ(drawn.size(), 2u);
  EXPECT_TRUE(drawn.contains(1) && drawn.contains(2));
  EXPECT_EQ(frequencies(logits, sampling(1, 0, 0.3), 1000).size(), 1u);
  EXPECT_EQ(frequencies(logits, sampling(1, 0, 1e-9), 1000).size(), 1u);
  EXPECT_EQ(frequencies(logits, sampling(1, 0, 0.999), 1000).size(), 4u);
}

TEST(Sampler, OfEqualsTopPKeepsTheLowerIds) {
  const auto drawn = frequencies({1, 1, 1, 1}, sampling(1, 0, 0.5), 200);
  EXPECT_EQ(drawn.size(), 2u);
  EXPECT_TRUE(drawn.contains(0) && drawn.contains(1));
}

// Five standard deviations to either side.
TEST(Sampler, FrequenciesFollowTheSoftmax) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits{1.0f, -0.5f, 2.0f, 0.0f, -4.0f, 1.5f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto drawn = frequencies(logits, sampling(temperature), kDraws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (TokenId token = 0; token < logits.size(); ++token) {
      const double p = std::exp(logits[token] / temperature) / total;
      const double bound = 5 * std::sqrt(kDraws * p * (1 - p)) + 1;
      const int count = drawn.contains(token) ? drawn.at(token) : 0;
      EXPECT_NEAR(count, kDraws * p, bound) << "token " << token << " at " << temperature;
    }
  }
}

TEST(Sampler, PositionsOfOneSeedAreIndependentDraws) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = logits_of({0.25, 0.75});
  int ones = 0;
  int pairs = 0;
  bool previous = false;
  for (std::uint64_t position = 0; position < kDraws; ++position) {
    const bool one = choose_token(logits, sampling(1, 5), {}, position).chosen.token == 1;
    ones += one ? 1 : 0;
    pairs += one && previous ? 1 : 0;
    previous = one;
  }
  EXPECT_NEAR(ones, kDraws * 0.75, 5 * std::sqrt(kDraws * 0.75 * 0.25));
  EXPECT_NEAR(pairs, kDraws * 0.5625, 5 * std::sqrt(kDraws * 0.5625 * 0.4375) * 2);
}

TEST(Sampler, ExtremesAreNoTrap) {
  EXPECT_EQ(
      choose_token(std::vector<float>{1000, -1000, 999}, sampling(1e-300, 3), {}, 1).chosen.token,
      0u);
  const std::vector<float> holes{kNan, -kInfinity, 1, kNan};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(choose_token(holes, sampling(2, seed), {}, 0).chosen.token, 2u);
    EXPECT_EQ(choose_token(holes, sampling(2, seed, 0.5), {}, 0).chosen.token, 2u);
  }
}

TEST(Sampler, LogprobsAreTheModelsWhateverTheTemperature) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  for (const double temperature : {0.0, 1.0, 2.0}) {
    Sampling how = sampling(temperature, 1234567);
    how.logprobs = 3;
    const TokenChoice choice = choose_token(logits, how, {}, 1);
    EXPECT_EQ(choice.chosen.token, temperature == 0 ? 1u : 0u);
    EXPECT_NEAR(choice.chosen.logprob, std::log(temperature == 0 ? 0.4 : 0.2), 1e-6);
    ASSERT_EQ(choice.top.size(), 3u);
    EXPECT_EQ(choice.top[0].token, 1u);
    EXPECT_EQ(choice.top[1].token, 2u);
    EXPECT_EQ(choice.top[2].token, 0u);
    EXPECT_NEAR(choice.top[1].logprob, std::log(0.3), 1e-6);
  }
}

TEST(Sampler, LogprobsAreFiniteAndNoMoreThanThereAreTokens) {
  Sampling how{.logprobs = 20};
  const TokenChoice choice =
      choose_token(std::vector<float>{kNan, -kInfinity, 0, -20000}, how, {}, 0);
  ASSERT_EQ(choice.top.size(), 4u);
  EXPECT_EQ(choice.top[0], (TokenLogprob{2, 0}));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(choice.top[i].logprob, kMinLogprob);
  how.logprobs = 0;
  EXPECT_TRUE(choose_token(std::vector<float>{0, 0}, how, {}, 0).top.empty());
  EXPECT_NEAR(choose_token(std::vector<float>{0, 0}, how, {}, 0).chosen.logprob, std::log(0.5),
              1e-6);
}

TEST(Sampler, NoLogprobsUnlessWanted) {
  const TokenChoice choice = choose_token(std::vector<float>{0, 1}, Sampling(), {}, 0);
  EXPECT_EQ(choice.chosen, (TokenLogprob{1, 0}));
  EXPECT_TRUE(choice.top.empty());
}

TEST(Sampler, ConstraintsSelectBeforeTheDraw) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  const auto greedy = [&](const Constraints& constraints) {
    return choose_token(logits, {}, constraints, 0).chosen.token;
  };
  EXPECT_EQ(greedy({{{1, -1}}, {}}), 2u);
  EXPECT_EQ(greedy({{{3, 5}}, {}}), 3u);
  EXPECT_EQ(greedy({{}, {0, 3}}), 0u);
  EXPECT_EQ(greedy({{{0, -kInfinity}}, {0, 3}}), 3u);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const TokenChoice choice =
        choose_token(logits, sampling(2, seed, 0.9), {{{0, -kInfinity}}, {0, 2}}, 1);
    EXPECT_EQ(choice.chosen.token, 2u);
  }
}

TEST(Sampler, WithoutASelectableTokenItIsTheFirst) {
  const std::vector<float> logits{1, 2};
  const Constraints none{{{1, -kInfinity}}, {1}};
  EXPECT_EQ(choose_token(logits, {}, none, 0).chosen.token, 0u);
  EXPECT_EQ(choose_token(logits, sampling(1), none, 0).chosen.token, 0u);
}

TEST(Sampler, ConstraintsDoNotChangeLogprobs) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  const TokenChoice choice = choose_token(logits, {.logprobs = 1}, {{{1, -kInfinity}}, {}}, 0);
  EXPECT_EQ(choice.chosen.token, 2u);
  EXPECT_NEAR(choice.chosen.logprob, std::log(0.3), 1e-6);
  EXPECT_EQ(choice.rank, 2u);
  EXPECT_EQ(choice.top.front().token, 1u);
}

TEST(Sampler, AGivenTokenIsScored) {
  const std::vector<float> logits = logits_of({0.2, 0.4, 0.3, 0.1});
  const TokenChoice score = score_token(logits, 0, 2);
  EXPECT_EQ(score.chosen.token, 0u);
  EXPECT_NEAR(score.chosen.logprob, std::log(0.2), 1e-6);
  EXPECT_EQ(score.rank, 3u);
  ASSERT_EQ(score.top.size(), 2u);
  EXPECT_EQ(score.top[1].token, 2u);
  EXPECT_THROW(score_token(std::vector<float>{kNan}, 0, 0), base::Error);
}

TEST(Sampler, TheLikeliestIsTheLowestOfEquals) {
  EXPECT_EQ(choose_token(std::vector<float>{1, 3, 2, 3}, {}, {}, 0).chosen.token, 1u);
  EXPECT_EQ(choose_token(std::vector<float>{-2, -1}, {}, {}, 0).chosen.token, 1u);
}

TEST(Sampler, DamagedOutputIsAnError) {
  for (const std::vector<float>& logits :
       {std::vector<float>{kNan, kNan}, std::vector<float>{1, kInfinity}, std::vector<float>{}}) {
    EXPECT_THROW(choose_token(logits, {}, {}, 0), base::Error);
    EXPECT_THROW(choose_token(logits, sampling(1), {}, 0), base::Error);
  }
}

}  // namespace
}  // namespace fo::refengine
