#include "refengine/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "refengine/model/splitmix.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// The index of the largest logit; the lowest of equal ones; 0 if all are kBanned.
TokenId greedy_token(std::span<const float> logits) {
  TokenId best = 0;
  float most = kBanned;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > most) {
      most = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

// The largest of the model's own logits.
float largest_logit(std::span<const float> logits) {
  const float most = logits.empty() ? kBanned : logits[greedy_token(logits)];
  if (!std::isfinite(most)) {
    throw Error(ExitStatus::kBadData, "choose a token: the model's output is not a number");
  }
  return most;
}

std::vector<float> constrain(std::span<const float> logits, const Constraints& constraints) {
  std::vector<float> result(logits.begin(), logits.end());
  if (!constraints.allowed.empty()) {
    std::fill(result.begin(), result.end(), kBanned);
    for (const TokenId token : constraints.allowed) result[token] = logits[token];
  }
  for (const auto& [token, bias] : constraints.biases) result[token] += bias;
  return result;
}

double uniform(std::uint64_t seed, std::uint64_t position) {
  return static_cast<double>(splitmix(seed + position * kSplitmixStep) >> 11) * 0x1p-53;
}

// Probabilities up to a common factor, relative to the largest logit, so that no exponential
// overflows. A NaN has weight 0.
std::vector<double> weights_of(std::span<const float> logits, float most, double temperature) {
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= most) {
      weights[i] = std::exp((static_cast<double>(logits[i]) - most) / temperature);
    }
  }
  return weights;
}

// The `count` ids with the largest `values`, in descending order; of equal ones the lower id first.
// No value may be NaN.
std::vector<TokenId> likeliest(std::span<const double> values, std::size_t count) {
  std::vector<TokenId> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0u);
  const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(std::min(count, ids.size()));
  std::partial_sort(ids.begin(), middle, ids.end(), [&](TokenId a, TokenId b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  ids.erase(middle, ids.end());
  return ids;
}

void keep_top(std::vector<double>& weights, double top_p) {
  const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> kept(weights.size());
  double sum = 0;
  for (const TokenId id : likeliest(weights, weights.size())) {
    if (sum >= wanted) break;
    kept[id] = weights[id];
    sum += weights[id];
  }
  weights = std::move(kept);
}

TokenId draw(std::span<const double> weights, double chance) {
  const double target = chance * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  TokenId last = 0;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] == 0) continue;
    last = static_cast<TokenId>(id);
    sum += weights[id];
    if (target < sum) break;
  }
  return last;
}

// `most` is the largest logit.
void add_logprobs(std::span<const float> logits, float most, std::size_t count,
                  TokenChoice& choice) {
  const std::vector<double> weights = weights_of(logits, most, 1);
  const double scale = std::log(std::accumulate(weights.begin(), weights.end(), 0.0)) + most;
  const auto of = [&](TokenId token) {
    const auto logprob = static_cast<float>(static_cast<double>(logits[token]) - scale);
    // Also for NaN.
    return TokenLogprob{token, logprob > kMinLogprob ? logprob : kMinLogprob};
  };
  choice.chosen = of(choice.chosen.token);
  const float logit = logits[choice.chosen.token];
  choice.rank = static_cast<std::uint32_t>(
      std::ranges::count_if(logits, [logit](float other) { return other >= logit; }));
  for (const TokenId token : likeliest(weights, count)) choice.top.push_back(of(token));
}

}  // namespace

TokenChoice choose_token(std::span<const float> logits, const Sampling& sampling,
                         const Constraints& constraints, std::uint64_t position) {
  const float most = largest_logit(logits);
  std::vector<float> constrained;
  std::span<const float> selectable = logits;
  if (!constraints.allowed.empty() || !constraints.biases.empty()) {
    constrained = constrain(logits, constraints);
    selectable = constrained;
  }
  TokenChoice choice;
  const TokenId best = greedy_token(selectable);
  choice.chosen.token = best;
  if (sampling.temperature > 0 && std::isfinite(selectable[best])) {
    std::vector<double> weights = weights_of(selectable, selectable[best], sampling.temperature);
    if (sampling.top_p < 1) keep_top(weights, sampling.top_p);
    choice.chosen.token = draw(weights, uniform(sampling.seed, position));
  }
  if (sampling.logprobs >= 0) {
    add_logprobs(logits, most, static_cast<std::size_t>(sampling.logprobs), choice);
  }
  return choice;
}

TokenChoice score_token(std::span<const float> logits, TokenId token, std::size_t count) {
  TokenChoice choice;
  choice.chosen.token = token;
  add_logprobs(logits, largest_logit(logits), count, choice);
  return choice;
}

}  // namespace fo::refengine
