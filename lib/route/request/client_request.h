// Reads a client's request: its model, the size of its work, and the target, headers and body that
// are forwarded to a worker. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "http/message.h"
#include "plan/degradation.h"
#include "route/request/api_error.h"
#include "route/request/api_paths.h"
#include "route/resume/rules.h"

namespace fo::route {

/// Rules that an operator may relax.
struct RequestRules {
  /// The internal fields of engines that a body may have; a body with another one is refused.
  std::vector<std::string> allowed_fields = {};
  /// Forward the client's Authorization to workers that are private (Worker::is_private()).
  bool pass_authorization = false;
  /// Give requests of different keys different salts of the engine's prefix cache. With one cache
  /// for all, the time of an answer shows whether a client of another key has sent the same prompt.
  bool salt_by_key = false;
  /// Give requests their tier as the engine's priority, 0 for the first one: vLLM serves lower
  /// values earlier.
  bool priority_by_tier = false;
  /// For the estimate of a prompt's tokens: the bytes of text in a token, and the tokens of each
  /// part that is not text.
  std::uint64_t bytes_per_token = 4;
  std::uint64_t tokens_per_part = 1500;
  ResumeOptions resume = {};
};

struct ClientRequest {
  Api api = Api::kOther;
  std::string method;
  /// The target of the request to the worker: the path and the client's query.
  std::string target;
  /// The headers that are forwarded, such as Content-Type and trace ids.
  http::Fields headers;
  /// The body of the http::Request, which must outlive this object, or `own_body`.
  std::string_view body;
  /// The body with the members that the rules add; nullptr if they add none.
  std::shared_ptr<const std::string> own_body;
  /// Of a body that is longer than kMaxShortBytes: the result of resumable_body(), if the answer
  /// may be resumed, and the SHA-256. Both take long, and are computed when the body is read. Empty
  /// for a short body.
  std::string resumable;
  std::string body_hash;

  /// The name of the model; empty if the request has none.
  std::string model;
  /// The client expects server-sent events.
  bool is_streamed = false;
  /// An estimate, because only the engine knows its tokenizer.
  std::uint64_t prompt_tokens = 0;
  /// The number of choices in the answer: "n" times the number of prompts.
  std::uint64_t choices = 1;
  /// The client's limit of the answer, for all choices together; nullopt without one.
  std::optional<std::uint64_t> max_tokens;
  /// The salt of the engine's prefix cache, if there is one, and the beginning of the prompt's
  /// text, at most kPrefixBytes: requests with an equal beginning can share a part of an engine's
  /// cache.
  std::string prefix;
  /// The id of an earlier answer, which only the worker that made it knows; empty for none.
  std::string previous_response;
  /// The client's own deadline, from its x-request-timeout.
  std::optional<base::Duration> timeout;
  /// Present for a chat or a completion.
  std::optional<ResumeFacts> resume;
  /// find_client_id().
  std::string client_id;

  /// Returns a text that is equal for requests with equal bodies.
  [[nodiscard]] std::string_view body_identity() const {
    return body_hash.empty() ? body : body_hash;
  }
};

/// The name of the forwarded header with the client's key.
inline constexpr char kAuthorization[] = "authorization";

inline constexpr std::size_t kPrefixBytes = 64 * 1024;

/// The router reads and changes a longer body once, on a thread, because that takes long. Its
/// answer does not continue as text, because each continuation would change the body again.
inline constexpr std::size_t kMaxShortBytes = 64 * 1024;

/// The key in "Authorization: Bearer KEY" or x-api-key; nullopt if there is neither, and empty for
/// another scheme.
std::optional<std::string> find_key(const http::Request& request);

/// The client's x-request-id; empty if it has none, or an invalid one.
std::string find_client_id(const http::Request& request);

struct ReadRequest {
  /// nullopt if the request is refused.
  std::optional<ClientRequest> request;
  ApiError refusal = {};
};

/// Reads a request that is forwarded. `api` is the result of find_api(), and `tier` is the
/// client's. The body of a POST, except one of kResponse, must be a JSON object, or for kOther a
/// multipart form, such as audio, of which only the model and the names of fields are read. Refuses
/// with 400 any other body, a field of a wrong type, an internal field of engines, and an invalid
/// x-request-timeout.
ReadRequest read_request(const http::Request& request, Api api, const RequestRules& rules,
                         std::size_t tier = plan::kPremium);

}  // namespace fo::route
