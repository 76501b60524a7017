// The API's answers as JSON in the formats of OpenAI and vLLM. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "refengine/completion_request.h"

namespace fo::refengine {

/// The common part of all pieces of an answer.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  std::string model;
  std::int64_t created = 0;
  bool return_token_ids = false;
  bool logprobs = false;
};

/// A token of the answer, and the offset of its text in characters.
struct AnswerToken {
  TokenChoice choice;
  std::size_t offset = 0;
};

/// A whole answer, or what a stream adds to it.
struct AnswerPiece {
  std::string text;
  std::vector<AnswerToken> tokens;
  /// "length", "stop" or "abort"; empty while the answer continues.
  std::string finish;
};

/// The whole answer.
std::string format_answer(const AnswerHead& head, const AnswerPiece& piece,
                          const Generation& generation);

/// Server-sent events, "data: …\n\n". A stream consists of the first chunk (the role and the
/// prompt's tokens; empty for some endpoints), the pieces, and the counts if requested.
std::string format_first_chunk(const AnswerHead& head, const Generation& generation);
std::string format_chunk(const AnswerHead& head, const AnswerPiece& piece);
std::string format_usage_chunk(const AnswerHead& head, const Generation& generation);

/// The answers to GET /v1/models and GET /version.
std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions);
std::string format_version(const std::string& version);

/// As http::error_response, with "param".
http::Response format_error(const ApiError& error);

}  // namespace fo::refengine
