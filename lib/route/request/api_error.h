// The errors that the router itself answers, in the format of OpenAI's API. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "http/message.h"

namespace fo::route {

struct ApiError {
  int status = 500;
  std::string message;
  /// Identifies the reason for programs; empty for none.
  std::string code = {};
  /// The field of the request that is wrong, or the tier that is refused; empty for none.
  std::string param = {};
  /// Sent as Retry-After, in whole seconds, rounded up.
  std::optional<base::Duration> retry_after = {};
  /// Sent as Allow: the methods that a path has; empty for none.
  std::string allow = {};
  /// False adds "x-should-retry: false": OpenAI's SDKs would send the request again, in vain.
  bool should_retry = true;
  /// Number of tokens that the client has received of an answer that cannot continue.
  std::optional<std::uint64_t> delivered_tokens = {};
};

/// The error of a request whose own deadline has passed.
ApiError deadline_passed();

/// {"error": {"message", "type", "param", "code"}} with the headers above, and "delivered_tokens".
http::Response to_response(const ApiError& error);

/// The last event of a stream that cannot continue.
std::string to_event(const ApiError& error);

}  // namespace fo::route
