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
  /// Why it ended, such as "stop" or "length"; empty if it did not.
  std::string finish = {};

  [[nodiscard]] std::vector<TokenId> ids() const;
  /// Whether the engine ended the answer, and not a failure.
  [[nodiscard]] bool is_complete() const { return finish == "stop" || finish == "length"; }
};

/// Without the ids of its tokens, an answer can't be compared.
struct UnnamedTokens : fo::json::Misfit {
  UnnamedTokens() : fo::json::Misfit("the engine does not report token ids") {}
};

class AnswerReader {
 public:
  /// `max_tokens` limits the answer. Without `has_logprobs`, none are expected.
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

/// The message in an error of OpenAI's API, on one line; empty if the text is something else.
std::string error_message_of(std::string_view body);

}  // namespace fo::canary
