// Conversions of a file's bytes to text that a YAML parser accepts. Pure.
#pragma once

#include <string>
#include <string_view>

namespace fo::yaml {

/// The text without byte order marks at its beginning and at the beginning of a line after "---",
/// where concatenated files have them.
std::string without_byte_order_marks(std::string_view text);

/// JSON may write a character beyond U+FFFF as two escapes, "\ud83d\ude00", which YAML does not
/// allow. In JSON, each such pair is replaced by the character; a text that is not JSON is returned
/// unchanged. `text` must not contain NUL, which ends the input of the JSON parser.
std::string without_surrogates(std::string text);

}  // namespace fo::yaml
