// The characters that YAML allows unescaped. Pure.
#pragma once

#include "base/utf8.h"

namespace fo::yaml {

using base::Character;
using base::first_character;

/// Whether every YAML reader accepts the character unescaped, and not as a line break. Tabs and
/// newlines are not printable.
bool is_printable(char32_t code);

}  // namespace fo::yaml
