// A probe of an HTTP endpoint: whether it answers with the expected status and the expected JSON
// fields.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/probe.h"

namespace fo::http {

struct HttpProbe : os::ProbeTimes {
  /// A URL in the syntax of net::parse_url.
  std::string url;
  /// The expected status; nullopt for any 2xx.
  std::optional<int> status;
  /// Fields that the JSON answer must have: a path (names or list indices, separated by dots) and
  /// the value as text. A string is compared as it is; numbers, true, false and null in their JSON
  /// form. Lists and objects never match.
  std::vector<std::pair<std::string, std::string>> fields;
};

struct HttpAnswer : os::ProbeAnswer {
  /// The status of the last answer; nullopt if none arrived.
  std::optional<int> status;
};

/// Queries the endpoint with GET. A failed query (connection refused, no complete answer in time,
/// not HTTP, longer than 1 MiB) is a no; any other failure, such as an invalid URL, throws Error.
HttpAnswer probe_http(const HttpProbe& probe);

std::string to_json(const HttpAnswer& answer);

}  // namespace fo::http
