// A file of canaries: questions to an engine whose answers are known, for all workers with one
// card. fo-canary learn writes it. Pure.
//
//     {"version": 1, "model": "llama", "card": "sha256:…", "sampler": true, "canaries": [
//       {"name": "rivers", "prompt": "…", "prompt_token_ids": [1, …], "max_tokens": 8,
//        "seconds": 0.31, "spread": 0.004,
//        "answer": [{"token_id": 7, "logprob": -0.1, "top": {" the": -0.1, " a": -2.4, …}}, …]}]}
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "base/units.h"

namespace fo::canary {

using TokenId = std::uint32_t;

/// The number of best tokens whose log-probabilities are compared.
inline constexpr std::size_t kTopTokens = 5;
/// The maximum number of best tokens of an answer: engines may add the chosen token and a few
/// others.
inline constexpr std::size_t kMaxTopTokens = 4 * kTopTokens;
/// Answers of good engines differ where the best two tokens are closer than this.
inline constexpr double kSafeMargin = 0.5;

/// A token of an answer.
struct AnswerToken {
  TokenId token = 0;
  double logprob = 0;
  /// Log-probabilities of the best tokens by their text.
  std::map<std::string, double> top = {};
};

/// Returns the margin of the chosen token over all others: its log-probability less the highest one
/// of the others. Without others it is infinite.
double margin_of(const AnswerToken& token);

struct Canary {
  std::string name;
  /// The text of the prompt, for people who read the file.
  std::string text = {};
  std::vector<TokenId> prompt;
  /// The max_tokens of the request; at least the size of the answer.
  std::uint64_t max_tokens = 0;
  std::vector<AnswerToken> answer = {};
  /// The largest difference between the log-probabilities of good engines and those of the answer.
  double spread = 0;
  /// Time of the answer on an idle engine.
  base::Duration time{};
};

struct CanaryFile {
  std::string model;
  /// The checksum of the workers' card; empty for workers without one.
  std::string card = {};
  /// Whether a sampler that may choose only the best token gives the same answers.
  bool has_sampler = false;
  std::vector<Canary> canaries = {};
};

inline constexpr base::ByteCount kMaxCanaryFileBytes = 16 * base::kMiB;
inline constexpr std::size_t kMaxCanaries = 1024;
inline constexpr std::size_t kMaxPromptTokens = 65536;
inline constexpr std::size_t kMaxAnswerTokens = 256;

/// Return the finite number, or the token id, in `value`. Throw json::Misfit, with `name`, for any
/// other value.
double finite(const nlohmann::json& value, const std::string& name);
TokenId token_id(const nlohmann::json& value, const char* name);

std::string encode(const CanaryFile& file);

/// `path` is a name for messages. Throws Error(kBadData) "read 'path': reason" for a text that is
/// not a file of canaries, exceeds a limit, or has no canary.
CanaryFile parse_canaries(std::string_view text, const std::string& path);

}  // namespace fo::canary
