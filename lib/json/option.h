// JSON objects in the options of an engine. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace fo::json {

/// Whether a text may be nested too deeply to be written (recursively), or have too many members
/// (each is compared with those before it).
bool is_too_much_json(std::string_view text);

/// nullopt if the text is too much, not JSON, or not an object.
std::optional<nlohmann::ordered_json> read_json_object(std::string_view text);

}  // namespace fo::json
