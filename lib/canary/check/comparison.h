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
  kDrift,      // the tokens are as expected, but a log-probability is not
  kMismatch,   // a token differs, at a place where good engines agree
  kUncertain,  // a token differs, at a place where good engines may differ
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

/// The largest difference of log-probabilities among the chosen and the best tokens. If a token is
/// not among the best of `got`, only an upper limit of its log-probability is known, and is used.
Deviation deviation_of(std::span<const AnswerToken> expected, std::span<const AnswerToken> got);

/// Compares only the tokens. Answers of different lengths differ at the end of the shorter one.
Comparison compare_tokens(const Canary& canary, std::span<const TokenId> got);

/// Compares the tokens, and then the log-probabilities: a difference over the sum of the canary's
/// spread and `tolerance` is a drift.
Comparison compare(const Canary& canary, const Answer& answer, double tolerance);

}  // namespace fo::canary
