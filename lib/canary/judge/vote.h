// The vote of a worker's set on an answer that differs from the expected one: is the worker wrong,
// or the file of canaries? Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "canary/file/canary_file.h"

namespace fo::canary {

/// The maximum number of other workers that are asked.
inline constexpr std::size_t kMaxJurors = 4;

/// The answer of another worker to the same canary.
enum class Ballot {
  kExpected,  // as in the file
  kSame,      // as the worker in question
  kOther,     // something else
  kNone,      // nothing that can be compared
};
Ballot ballot_of(const Canary& canary, std::span<const TokenId> suspect,
                 const std::optional<std::vector<TokenId>>& answer);

enum class Decision {
  /// Most of the workers that answered, the one in question included, answered as expected.
  kConviction,
  /// All other answers are the same as the worker's, and most jurors answered: the model has
  /// changed, and not the worker.
  kStale,
  /// The jurors have no majority, or the worker is the only one of its set.
  kUndecided,
};
std::string_view to_string(Decision decision);
inline constexpr Decision kDecisions[] = {Decision::kConviction, Decision::kStale,
                                          Decision::kUndecided};

Decision decide(std::span<const Ballot> ballots);

}  // namespace fo::canary
