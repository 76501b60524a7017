// The bytes of a file as text that a YAML parser takes. Pure.
#pragma once

#include <string>
#include <string_view>

namespace fo::yaml {

/// Without the byte order marks at the beginning of the text and of a line after "---", where files
/// that were joined into one have them.
std::string without_byte_order_marks(std::string_view text);

/// JSON may write a character beyond U+FFFF as two escapes, "\ud83d\ude00", which YAML refuses. In
/// JSON each such pair becomes the character itself; a text that is not JSON is returned unchanged.
/// `text` has no NUL, which would end it to the reader of JSON.
std::string without_surrogates(std::string text);

}  // namespace fo::yaml
