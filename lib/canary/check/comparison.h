// An answer compared with the expected one, token by token and log-probability by log-probability.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "canary/check/answer.h"
#include "canary/file/canary_file.h"
#include "fleet/verdict.h"

namespace fo::canary {

enum class Match {
  kSame,
  kDrift,      // the tokens are those expected; a log-probability is not
  kMismatch,   // a token is another one, where good engines agree
  kUncertain,  // a token is another one, where good engines may differ
};

struct Comparison {
  Match match = Match::kSame;
  /// The first token that differs, or the largest difference of log-probabilities; nullopt for
  /// kSame.
  std::optional<fleet::Evidence> evidence = {};
};

/// The difference of two answers' log-probabilities where their tokens are the same.
struct Deviation {
  double size = 0;
  std::size_t position = 0;
  /// "-0.1204", with the token's text if it is not the chosen token.
  std::string expected = {};
  std::string got = {};
};

/// The largest difference of the chosen tokens, and of the best ones. Of a token that is not among
/// the best of `got` only the upper limit of its log-probability is known.
Deviation deviation_of(std::span<const AnswerToken> expected, std::span<const AnswerToken> got);

/// Compares only the tokens. An answer that ends early or goes on differs at the end of the
/// shorter one.
Comparison compare_tokens(const Canary& canary, std::span<const TokenId> got);

/// Drift is a difference over the canary's spread and `tolerance`.
Comparison compare(const Canary& canary, const Answer& answer, double tolerance);

}  // namespace fo::canary
