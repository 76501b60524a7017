// The paths that the router forwards, and those that it answers itself. All others are refused:
// engines have paths that change their weights or put them to sleep. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fo::route {

enum class Api {
  kChat,         // POST /v1/chat/completions
  kCompletions,  // POST /v1/completions
  kResponses,    // POST /v1/responses
  kResponse,     // /v1/responses/ID: only the worker that made the id knows it
  kModels,       // GET or HEAD /v1/models, answered by the router
  kModel,        // GET or HEAD /v1/models/NAME, answered by the router
  kOther,        // forwarded: embeddings, messages, rerank, score, audio, tokenize, detokenize
  kNotFound,     // refused with 404
  kWrongMethod,  // refused with 405
};

/// The API of a request. `path` is percent-decoded; a path with a segment "." or "..", or with an
/// empty one before its end, is not found. `allowed` are further paths that are forwarded, with any
/// method.
Api find_api(std::string_view method, std::string_view path,
             const std::vector<std::string>& allowed);

/// The methods of a path for which find_api() returned kWrongMethod, as the header Allow names
/// them.
std::string methods_of(std::string_view path);

/// The id in a path of kResponse, or the name in one of kModel, which may contain "/".
std::string_view item_of(Api api, std::string_view path);

/// Whether `text` is not empty, and has only ASCII letters, digits, '.', '_' and '-', as ids have.
bool is_plain_name(std::string_view text);

}  // namespace fo::route
