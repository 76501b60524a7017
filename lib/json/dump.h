// JSON as text, for whoever shows or sends what a peer may have said.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fo::json {

/// On one line; what is not UTF-8 in it is replaced.
std::string dump(const nlohmann::json& value);

}  // namespace fo::json
