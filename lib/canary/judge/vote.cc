#include "canary/judge/vote.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "canary/check/comparison.h"

namespace fo::canary {

Ballot ballot_of(const Canary& canary, std::span<const TokenId> suspect,
                 const std::optional<std::vector<TokenId>>& answer) {
  if (!answer) return Ballot::kNone;
  const Match match = compare_tokens(canary, *answer).match;
  if (match == Match::kSame) return Ballot::kExpected;
  if (match == Match::kUncertain) return Ballot::kNone;
  const bool is_same = std::equal(answer->begin(), answer->end(), suspect.begin(), suspect.end());
  return is_same ? Ballot::kSame : Ballot::kOther;
}

std::string_view to_string(Decision decision) {
  constexpr std::array<std::string_view, std::size(kDecisions)> kNames{"conviction", "stale",
                                                                       "undecided"};
  return kNames.at(static_cast<std::size_t>(decision));
}

Decision decide(std::span<const Ballot> ballots) {
  const auto count = [&](Ballot ballot) {
    return std::count(ballots.begin(), ballots.end(), ballot);
  };
  const auto expected = count(Ballot::kExpected);
  const auto same = count(Ballot::kSame);
  const auto others = count(Ballot::kOther);
  if (2 * expected > expected + same + others + 1) return Decision::kConviction;
  // The answers of half of the jurors, or fewer, are not enough.
  const bool is_most = 2 * same > static_cast<std::ptrdiff_t>(ballots.size());
  const bool all_same = is_most && expected == 0 && others == 0;
  return all_same ? Decision::kStale : Decision::kUndecided;
}

}  // namespace fo::canary
