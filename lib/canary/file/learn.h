// Learns canaries from good engines: asks them candidates, and keeps those that all of them answer
// in the same way, at any load, with a safe margin at each token.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "canary/check/engine_client.h"
#include "canary/file/canary_file.h"
#include "canary/file/texts.h"

namespace fo::canary {

struct LearnOptions {
  /// Replicas with the same model.
  std::vector<EngineAddress> engines;
  std::vector<PromptText> prompts;
  std::string card;
  base::Duration timeout = std::chrono::seconds(60);
  /// The pause before an engine that is busy is asked again, at most nine times.
  base::Duration busy_pause = std::chrono::seconds(1);
};

struct Learned {
  CanaryFile file;
  /// A line for each candidate that was left out: "name: reason".
  std::vector<std::string> left_out;
};

/// The answers of one candidate as a canary; its name, text, prompt and time are the caller's. The
/// answer is cut before the first token without a safe margin. If the result is nullopt, `reason`
/// is set. Pure.
std::optional<Canary> merge_answers(const std::vector<std::vector<AnswerToken>>& answers,
                                    std::string& reason);

/// Returns true if an answer of the sampler begins with the canary's tokens. Further tokens do not
/// count, because a check does not ask for them. Pure.
bool agrees_with(const Canary& canary, const std::vector<TokenId>& sampled);

/// Asks each engine each candidate three times alone, three times beside others, and once with the
/// sampler. Throws kUnavailable if an engine cannot be asked at all.
boost::asio::awaitable<Learned> learn(LearnOptions options);

}  // namespace fo::canary
