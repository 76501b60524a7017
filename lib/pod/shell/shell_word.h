// Words and names of shell scripts. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fo::pod {

struct ShellWord {
  /// Its bytes in the script: from `begin` to before `end`.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// What the shell makes of it; of one that is not literal, what is written there.
  std::string value;
  /// No variable, substitution, pattern or brace expansion is in it: it is one word, `value`.
  bool literal = true;
  /// It has a variable or a substitution that is not quoted, which may become several words.
  bool splits = false;
  /// Of one that is not literal: the one word that its variables make of it, where that is known.
  std::optional<std::string> known;
};

struct ShellVariable {
  std::string name;
  /// Of a literal one.
  std::string value;
  /// What it is set to is known.
  bool literal = true;
  /// Of one that is not literal: the bytes of its value in the script; none where it does not say
  /// all of it.
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The text as one word of a script, in single quotes where it needs any.
std::string shell_word(std::string_view text);

/// Whether the character stands for itself in a script, also without quotes.
bool is_plain_in_shell(char c);

bool is_shell_name_character(char c);
/// The name at the front of a text, "" where none is.
std::string_view shell_name_at(std::string_view text);

}  // namespace fo::pod
