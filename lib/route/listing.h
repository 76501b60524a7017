// The router's state as JSON for programs, and as tables for people. Pure; time is an argument.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "route/queue/job.h"
#include "route/worker/workers.h"

namespace fo::route {

/// {"version": 1, "level", "total", "healthy", "workers": [{"id", "name", "url", "model", "card",
/// "life", "reachable", "stale", "health", "verdict", "verdict_reason", "weight", "slots",
/// "requests", "tokens"}]}, on one line.
std::string state_json(const Workers& workers, std::size_t level);

/// {"version": 1, "requests": [{"id", "model", "tier", "worker", "age_s", "attempts",
/// "prompt_tokens", "body_bytes", "sent_bytes"}]}, the oldest first.
std::string requests_json(const std::map<std::string, Job*>& jobs, TimePoint now);

/// The answer of the page of this name ("state" or "requests") as a table with a header. Throws
/// Error(kProtocol) if it is malformed.
std::string to_table(std::string_view page, const std::string& answer);

}  // namespace fo::route
