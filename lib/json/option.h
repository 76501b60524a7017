// JSON objects in the options of an engine. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace fo::json {

/// Whether `text` exceeds 8192 bytes or 256 opening brackets. The limits bound the depth, because
/// JSON is written recursively, and the number of members, because each member is compared with
/// those before it.
bool is_too_much_json(std::string_view text);

/// Parses `text`; nullopt if is_too_much_json(text), or if it is not a JSON object.
std::optional<nlohmann::ordered_json> read_json_object(std::string_view text);

}  // namespace fo::json
