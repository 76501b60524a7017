// The answer of an engine to a question, read from the events of its stream. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "canary/file/canary_file.h"
#include "json/object.h"

namespace fo::canary {

struct Answer {
  /// The prompt as the engine read it.
  std::vector<TokenId> prompt = {};
  std::vector<AnswerToken> tokens = {};
  /// The finish reason, such as "stop" or "length"; empty if the answer has not ended.
  std::string finish = {};

  [[nodiscard]] std::vector<TokenId> ids() const;
  /// Whether the engine ended the answer, rather than a failure.
  [[nodiscard]] bool is_complete() const { return finish == "stop" || finish == "length"; }
};

/// The engine reports no token ids, without which its answer can't be compared.
struct UnnamedTokens : fo::json::Misfit {
  UnnamedTokens() : fo::json::Misfit("the engine does not report token ids") {}
};

class AnswerReader {
 public:
  /// `max_tokens` limits the answer. Log-probabilities are expected only with `has_logprobs`.
  AnswerReader(std::size_t max_tokens, bool has_logprobs)
      : max_tokens_(max_tokens), has_logprobs_(has_logprobs) {}

  /// Reads the data of one event of a completion. Throws json::Misfit, with the message of the
  /// engine if the event is an error; UnnamedTokens if the engine does not report token ids.
  void add(std::string_view data);

  /// True after the end of the answer.
  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] const Answer& answer() const { return answer_; }

 private:
  const std::size_t max_tokens_;
  const bool has_logprobs_;
  Answer answer_;
  bool is_done_ = false;
};

/// The message in an error of OpenAI's API, on one line; empty if `body` is not such an error.
std::string error_message_of(std::string_view body);

}  // namespace fo::canary
