// JSON as text, for output that may contain a peer's strings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fo::json {

/// Formats the value on one line; invalid UTF-8 is replaced.
std::string dump(const nlohmann::json& value);

}  // namespace fo::json
