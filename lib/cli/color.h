// Whether colours are wanted (https://no-color.org), and text without them. Bold and reversed text
// are no colours.
#pragma once

#include <string>
#include <string_view>

namespace fo::cli {

/// Is `fd` a terminal that knows escape sequences: $TERM is set, not empty and not "dumb"?
bool is_capable_terminal(int fd);

/// Are there to be colours on `fd`? On such a terminal, unless $NO_COLOR is set and not empty.
bool wants_colors(int fd);

/// `text` without the colours that its escape sequences ask for.
std::string without_colors(std::string_view text);

}  // namespace fo::cli
