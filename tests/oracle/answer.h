// The oracle's answers to completions and chats as JSON, in the formats of OpenAI and vLLM. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "oracle/request.h"

namespace fo::oracle {

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
};

/// A part of one choice: that of an event, or all of it.
struct ChoicePart {
  std::size_t index = 0;
  /// Text before the tokens: the prompt's text if it is echoed.
  std::string prefix = {};
  std::vector<AnswerToken> tokens = {};
  std::string finish = {};
  Generation::StopReason stop_reason = {};
  /// Set in the first part.
  const std::vector<TokenId>* prompt = nullptr;
  /// It has the first token after thinking.
  bool begins_content = false;
  /// The number of characters of the choice before this part.
  std::size_t offset = 0;
};

/// The number of characters of a part.
std::size_t characters_of(const ChoicePart& part);

class AnswerFormat {
 public:
  AnswerFormat(const CompletionRequest& request, std::string id, std::string model,
               std::int64_t created);

  /// The events of a stream, "data: …\n\n". The first one of each choice of a chat has its role.
  std::string role_event(std::size_t index, const std::vector<TokenId>& prompt,
                         const Usage& usage) const;
  std::string part_event(const ChoicePart& part, const Usage& usage) const;
  std::string usage_event(const Usage& usage) const;

  /// The whole answer.
  std::string whole(const std::vector<ChoicePart>& choices, const Usage& usage) const;

 private:
  nlohmann::ordered_json envelope(const char* object, nlohmann::ordered_json choices) const;
  nlohmann::ordered_json choice(const ChoicePart& part, bool is_delta) const;
  nlohmann::ordered_json message(const ChoicePart& part, bool is_delta) const;
  nlohmann::ordered_json tool_call(const ChoicePart& part, bool is_delta) const;
  nlohmann::ordered_json logprobs(const ChoicePart& part) const;
  std::string event(nlohmann::ordered_json choices, const Usage& usage) const;
  [[nodiscard]] bool is_chat() const { return request_.endpoint == Endpoint::kChat; }

  const CompletionRequest& request_;
  std::string id_;
  std::string model_;
  std::int64_t created_;
};

}  // namespace fo::oracle
