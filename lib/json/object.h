// JSON from a file or a peer, as the object that it has to be. Pure.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fo::json {

/// Lists and objects inside each other: deep nesting would exhaust the stack of whoever copies,
/// compares or prints a value.
inline constexpr int kMaxDepth = 16;

/// Where `text` is none, or nested deeper, calls `refuse` with the reason, which must throw.
nlohmann::json parse_object(std::string_view text,
                            const std::function<void(const std::string& reason)>& refuse);

/// A member of an object; nullptr for none, and for null, which counts as none in Python, too.
const nlohmann::json* find(const nlohmann::json& object, const char* key);

}  // namespace fo::json
