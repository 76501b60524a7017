// What is refused of a YAML text before libyaml sees it, and how a refusal reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

/// Throws Error(kBadData) "FILE:LINE:COLUMN: reason".
[[noreturn]] void refuse_yaml(const std::string& file, Position position,
                              const std::string& reason);

/// Where in the text a position is: at most its line's end, or the text's.
std::size_t offset_of(std::string_view text, Position position);

/// For the end of a reason why the text is no YAML at this place: what to do where a template
/// stands there; "" where none does.
std::string template_hint(std::string_view text, Position position);

/// Throws the same for what is not UTF-8, control characters, what ends a line to some readers only
/// (a carriage return by itself, U+0085, U+2028, U+2029).
void check_yaml(std::string_view text, const std::string& file);

}  // namespace fo::yaml
