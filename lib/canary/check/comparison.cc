#include "canary/check/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace fo::canary {
namespace {

std::string token_name(std::span<const TokenId> ids, std::size_t position) {
  return position < ids.size() ? std::to_string(ids[position]) : "end";
}

}  // namespace

Deviation deviation_of(std::span<const AnswerToken> expected, std::span<const AnswerToken> got) {
  Deviation largest;
  const auto consider = [&](std::size_t position, const std::string& text, double before,
                            double after) {
    const double size = std::abs(after - before);
    if (size <= largest.size) return;
    const auto show = [&](double logprob) {
      return text.empty() ? fmt::format("{:.4f}", logprob)
                          : fmt::format("{} {:.4f}", text, logprob);
    };
    largest = {size, position, show(before), show(after)};
  };
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    consider(i, "", expected[i].logprob, got[i].logprob);
    double lowest = got[i].logprob;
    for (const auto& [text, logprob] : got[i].top) lowest = std::min(lowest, logprob);
    for (const auto& [text, logprob] : expected[i].top) {
      const auto found = got[i].top.find(text);
      if (found != got[i].top.end()) {
        consider(i, text, logprob, found->second);
      } else if (logprob > lowest) {
        consider(i, text, logprob, lowest);
      }
    }
  }
  return largest;
}

Comparison compare_tokens(const Canary& canary, std::span<const TokenId> got) {
  std::vector<TokenId> expected;
  for (const AnswerToken& token : canary.answer) expected.push_back(token.token);
  const auto differs =
      std::mismatch(expected.begin(), expected.end(), got.begin(), got.end()).first;
  const auto position = static_cast<std::size_t>(differs - expected.begin());
  if (position == std::max(expected.size(), got.size())) return {};
  // The margin of the end of an answer is unknown.
  const bool is_safe =
      position < expected.size() && margin_of(canary.answer[position]) >= kSafeMargin;
  return {.match = is_safe ? Match::kMismatch : Match::kUncertain,
          .evidence = fleet::Evidence{.canary = canary.name,
                                      .position = position,
                                      .expected = token_name(expected, position),
                                      .got = token_name(got, position)}};
}

Comparison compare(const Canary& canary, const Answer& answer, double tolerance) {
  Comparison comparison = compare_tokens(canary, answer.ids());
  if (comparison.match != Match::kSame) return comparison;
  const Deviation deviation = deviation_of(canary.answer, answer.tokens);
  if (deviation.size <= canary.spread + tolerance) return comparison;
  comparison.match = Match::kDrift;
  comparison.evidence = fleet::Evidence{.canary = canary.name,
                                        .position = deviation.position,
                                        .expected = deviation.expected,
                                        .got = deviation.got};
  return comparison;
}

}  // namespace fo::canary
