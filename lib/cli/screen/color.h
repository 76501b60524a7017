// Whether to use colours (https://no-color.org), and text without them. Bold and reversed text do
// not count as colours.
#pragma once

#include <string>
#include <string_view>

namespace fo::cli {

/// Whether `fd` is a terminal that supports escape sequences: $TERM is set, not empty and not
/// "dumb".
bool is_capable_terminal(int fd);

/// Whether to use colours on `fd`: on such a terminal, unless $NO_COLOR is set and not empty.
bool wants_colors(int fd);

/// `text` without the escape sequences that set colours.
std::string without_colors(std::string_view text);

}  // namespace fo::cli
