// What YAML prints of Unicode. Pure.
#pragma once

#include "base/utf8.h"

namespace fo::yaml {

using base::Character;
using base::first_character;

/// Whether every reader of YAML takes the character as it stands, and as no line break. Tabs and
/// newlines are not printable.
bool is_printable(char32_t code);

}  // namespace fo::yaml
