// Records of a registry as text for terminals, and as JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// A table with a header: id, endpoint, life, url, model and host of instances; key and text of
/// other records follow. Control characters are escaped.
std::string to_text(const std::vector<Record>& records);
/// One JSON object, on one line: {"version": 1, "records": {KEY: record}}.
std::string to_json(const std::vector<Record>& records);
/// One JSON object, on one line: {"event": "put", "key": KEY, "record": record}, or
/// {"event": "stale" or "gone", "key": KEY}, or {"event": "listed"}.
std::string to_json(const RegistryChange& change);

}  // namespace fo::fleet
