// Base64 with padding (RFC 4648, section 4). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fo::text {

std::string encode_base64(std::string_view bytes);

/// Accepts exactly what encode_base64 produces; nullopt for anything else.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace fo::text
