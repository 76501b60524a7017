// JSON from a file or a peer that must be an object. Pure.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fo::json {

/// Maximum nesting of lists and objects: deeper values would exhaust the stack when they are
/// copied, compared or printed.
inline constexpr int kMaxDepth = 16;

/// If `text` is not an object, or is nested deeper, calls `refuse` with the reason; `refuse` must
/// throw.
nlohmann::json parse_object(std::string_view text,
                            const std::function<void(const std::string& reason)>& refuse);

/// A member of an object; nullptr if it is missing or null, as in Python.
const nlohmann::json* find(const nlohmann::json& object, const char* key);

}  // namespace fo::json
