// Checks of a YAML text before libyaml parses it, and the format of error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

/// Throws Error(kBadData) "FILE:LINE:COLUMN: reason".
[[noreturn]] void refuse_yaml(const std::string& file, Position position,
                              const std::string& reason);

/// The offset of a position in the text, limited to the end of its line and of the text.
std::size_t offset_of(std::string_view text, Position position);

/// An appendix to the reason of a syntax error: how to proceed if a template is at this place; ""
/// if there is none.
std::string template_hint(std::string_view text, Position position);

/// Throws the same for bytes that are not UTF-8, control characters, and characters that only some
/// readers take for a line end (a single carriage return, U+0085, U+2028, U+2029).
void check_yaml(std::string_view text, const std::string& file);

}  // namespace fo::yaml
