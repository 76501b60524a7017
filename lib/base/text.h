// Which characters may stand where. Of UTF-8, the bytes beyond ASCII are neither.
#pragma once

namespace fo::base {

/// Nothing of it belongs in a line that is shown.
constexpr bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// ASCII that prints, blanks apart: what can't end a line of a request's head early.
constexpr bool is_graphic(char c) { return c > ' ' && c < 0x7f; }

}  // namespace fo::base
