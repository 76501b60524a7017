// A probe of an HTTP endpoint: does it answer, with that status, and with those fields in its JSON?
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace fo::http {

struct HttpProbe {
  /// As parse_url takes it.
  std::string url;
  /// The status that is a yes; none: any 2xx.
  std::optional<int> status;
  /// The JSON answer must have these: the path, names (or indices of lists) with dots between them,
  /// and the value as text. A string stands for itself, a number, true, false and null as JSON
  /// writes them; a list or an object has no such value.
  std::vector<std::pair<std::string, std::string>> fields;
  /// From connect to the last byte.
  base::Duration timeout{};
  /// How long to go on asking. An endpoint that was asked in time has its own time to answer.
  base::Duration wait{};
};

struct HttpAnswer {
  bool yes = false;
  /// What was answered last; nullopt when nothing was.
  std::optional<int> status;
  /// For no: one line.
  std::string reason;
};

/// Asks with GET. What is no answer (nobody there, no end in time, not HTTP, longer than 1 MiB) is
/// a no; anything else that fails, such as a bad URL, throws Error.
HttpAnswer probe_http(const HttpProbe& probe);

std::string to_json(const HttpAnswer& answer);

}  // namespace fo::http
