#include "pod/shell/shell_word.h"

#include <algorithm>

#include "text/ascii.h"

namespace fo::pod {

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain_in_shell)) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool is_plain_in_shell(char c) {
  return is_shell_name_character(c) ||
         std::string_view("%+,-./:=@").find(c) != std::string_view::npos;
}

bool is_shell_name_character(char c) { return text::is_letter_or_digit(c) || c == '_'; }

std::string_view shell_name_at(std::string_view text) {
  if (text.empty() || !is_shell_name_character(text.front()) || text::is_digit(text.front()))
    return {};
  const auto* const end = std::find_if_not(text.begin(), text.end(), is_shell_name_character);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

}  // namespace fo::pod
