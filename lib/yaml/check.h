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

/// The offset of `position` in `text`; at most the end of its line, and of the text.
std::size_t offset_of(std::string_view text, Position position);

/// Text to append to the reason of a syntax error: if a template is at or near `position`, the text
/// says how to render it first; "" without a template.
std::string template_hint(std::string_view text, Position position);

/// Throws Error(kBadData) like refuse_yaml for bytes that are not UTF-8, byte order marks, control
/// characters, and characters that only some readers read as a line end (a single carriage return,
/// U+0085, U+2028, U+2029).
void check_yaml(std::string_view text, const std::string& file);

}  // namespace fo::yaml
