// JSON objects in options of an engine. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace fo::json {

/// Whether a text may have more levels than are safe, as JSON is written by recursion, or more
/// members than are cheap, as each is looked for among those before it.
bool is_too_much_json(std::string_view text);

/// nullopt for what is too much, no JSON, or no object.
std::optional<nlohmann::ordered_json> read_json_object(std::string_view text);

}  // namespace fo::json
