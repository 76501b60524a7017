// The API's answers as JSON in the formats of OpenAI and vLLM. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "http/message.h"
#include "refengine/api/completion_request.h"

namespace fo::refengine {

/// The part that all pieces of an answer have in common.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  std::string model;
  std::int64_t created = 0;
  bool return_token_ids = false;
  bool logprobs = false;
  /// Each chunk contains the counts so far.
  bool continuous_usage = false;
  /// The counts contain the number of prompt tokens that were not processed.
  bool cached_tokens = false;
};

/// A token of the answer, and the offset of its text in characters.
struct AnswerToken {
  TokenChoice choice;
  std::size_t offset = 0;
  /// False for the first token of an echoed prompt, which has no probability.
  bool has_logprob = true;
};

/// The reason why an answer ended, besides the model's end of text: nothing, a stop token or a stop
/// string.
using StopReason = std::variant<std::monostate, TokenId, std::string>;

/// A whole answer, or the part that one chunk of a stream adds.
struct AnswerPiece {
  /// The text of the echoed prompt, if there is one, and then of the answer.
  std::string text;
  std::vector<AnswerToken> tokens;
  /// The tokens of the echoed prompt, for their probabilities.
  std::vector<AnswerToken> echoed;
  /// "length", "stop" or "abort"; empty while the answer continues.
  std::string finish;
  StopReason stop_reason;
  /// True for the first piece of an answer.
  bool is_first = false;
};

/// The whole answer.
std::string format_answer(const AnswerHead& head, const AnswerPiece& piece,
                          const Generation& generation);

/// Server-sent events, "data: …\n\n". A stream consists of the role (of chats), the pieces, and the
/// counts if requested.
std::string format_role_chunk(const AnswerHead& head, const Generation& generation);
std::string format_chunk(const AnswerHead& head, const AnswerPiece& piece,
                         const Generation& generation);
std::string format_usage_chunk(const AnswerHead& head, const Generation& generation);

/// The answers to GET /v1/models and GET /version.
std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions);
std::string format_version(const std::string& version);

/// The answers to POST /tokenize and POST /detokenize.
std::string format_tokens(std::span<const TokenId> tokens, bool return_token_strs,
                          std::uint32_t positions);
std::string format_prompt(std::span<const TokenId> tokens);

/// Returns the http::error_response of an error, with "param" added.
http::Response format_error(const ApiError& error);

}  // namespace fo::refengine
