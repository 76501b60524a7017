// Canonical JSON by RFC 8785: equal values give equal bytes, so that they can be hashed. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fo::json {

/// Writes `value` without white space, with the keys of objects in the order of their UTF-16 code
/// units, and numbers as ECMAScript writes an IEEE double. An integer that a double cannot
/// represent is rounded to the nearest one. Throws Misfit for text that is not UTF-8, and for
/// infinity and NaN.
std::string canonical(const nlohmann::json& value);

}  // namespace fo::json
