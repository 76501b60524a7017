// What the API answers in JSON, in the shapes of OpenAI and vLLM. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "refengine/completion_request.h"

namespace fo::refengine {

/// What all pieces of one answer share.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  std::string model;
  std::int64_t created = 0;
  bool return_token_ids = false;
  bool logprobs = false;
};

/// A token of the answer, and where its text begins: so many characters after the answer's
/// beginning.
struct AnswerToken {
  TokenChoice choice;
  std::size_t offset = 0;
};

/// All of an answer, or what a stream adds to it.
struct AnswerPiece {
  std::string text;
  std::vector<AnswerToken> tokens;
  /// "length", "stop" or "abort"; empty: not yet.
  std::string finish;
};

/// The whole answer.
std::string format_answer(const AnswerHead& head, const AnswerPiece& piece,
                          const Generation& generation);

/// Server-sent events, "data: …\n\n". A stream is the first chunk (the role, the prompt's tokens;
/// empty where the endpoint has nothing to say there), the pieces, and the counts if they are
/// wanted.
std::string format_first_chunk(const AnswerHead& head, const Generation& generation);
std::string format_chunk(const AnswerHead& head, const AnswerPiece& piece);
std::string format_usage_chunk(const AnswerHead& head, const Generation& generation);

/// The answer to GET /v1/models and GET /version.
std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions);
std::string format_version(const std::string& version);

/// As http::error_response, and "param".
http::Response format_error(const ApiError& error);

}  // namespace fo::refengine
