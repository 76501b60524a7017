// One engine as a canary uses it: its health, its load and its answers. Every call opens a new
// connection, and ends at its deadline.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "canary/check/answer.h"
#include "canary/check/progress.h"
#include "http/connection.h"

namespace fo::canary {

struct EngineAddress {
  http::Origin origin;
  /// Prefix of the API's paths, without a slash at its end.
  std::string base_path;
  /// The fields that are sent with each request, such as the engines' key.
  http::Fields headers;
  /// The name of the model in requests.
  std::string model;
};
/// Throws what net::parse_url and http::make_origin throw.
EngineAddress make_engine_address(const std::string& url, const std::optional<net::TlsFiles>& tls,
                                  http::Fields headers, std::string model);

/// The reason why an engine did not answer a request.
enum class AskError {
  kNone,
  kDown,  // no connection
  kLate,  // nothing until the deadline
  kBusy,  // it refuses because of its load: 429, 503 or 529
  // It refuses this request: other 4xx. Or the fault is local: the engine's certificate is not
  // trusted, or no descriptor is left.
  kRefused,
  kUnnamed,  // it answers, but without the ids of its tokens
  kBroken,   // the connection or the answer was cut, is malformed, or is an error
};

/// Result of probing an engine.
struct Probe {
  /// kBusy and kUnnamed do not occur.
  AskError error = AskError::kNone;
  std::string reason = {};
  /// Nothing listens at the engine's address.
  bool is_connection_refused = false;
};

/// Connects, and asks for /health if `asks_health`: anything but 200 is kBroken.
boost::asio::awaitable<Probe> probe(EngineAddress engine, bool asks_health,
                                    base::Deadline deadline);

/// Queries /metrics; nullopt if the engine has none, or if the query fails.
boost::asio::awaitable<std::optional<EngineLoad>> ask_load(EngineAddress engine,
                                                           base::Deadline deadline);

struct Question {
  /// The prompt as token ids, or as text if these are empty.
  std::vector<TokenId> prompt = {};
  std::string text = {};
  std::uint64_t max_tokens = 1;
  bool has_logprobs = false;
  /// Generates with the sampler, which may choose only the best token; otherwise greedily.
  bool uses_sampler = false;
};

struct Reply {
  AskError error = AskError::kNone;
  std::string reason = {};
  /// Complete unless there was an error.
  Answer answer = {};
  /// Time from sending the request to the first token.
  base::Duration first_token{};
  /// Time from sending the request to the end, also of a question that failed; without a
  /// connection, the time that it took to fail.
  base::Duration whole{};
};

/// Asks the question, with a fresh salt, so that no cache of prefixes answers it. kLate without a
/// token within `first_token`, or without the whole answer until the deadline.
boost::asio::awaitable<Reply> ask(EngineAddress engine, Question question,
                                  base::Duration first_token, base::Deadline deadline);

}  // namespace fo::canary
