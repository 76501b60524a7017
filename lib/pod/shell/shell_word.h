// Words and names of shell scripts. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::pod {

/// A piece of a word without its quotes.
struct ShellPart {
  enum class Kind {
    kText,
    kVariable,    // text is NAME or NAME:-plain, from $NAME or from braces
    kKubernetes,  // text is NAME, from $(NAME): Kubernetes expands it before the shell reads it
    kUnknown,     // anything else; the only part of its word
  };
  enum class Quotes { kNone, kSingle, kDouble };
  Kind kind = Kind::kText;
  Quotes quotes = Quotes::kNone;
  std::string text{};
};

struct ShellWord {
  /// Its byte range in the script: [begin, end).
  std::size_t begin = 0;
  std::size_t end = 0;
  /// The expanded word; for a word that is not literal, its source text.
  std::string value;
  /// True if the word has no variable, substitution, pattern or brace expansion: then it is the one
  /// word `value`.
  bool literal = true;
  /// True if the word has a variable or substitution that may expand to several words.
  bool splits = false;
  /// The parts of its expansion.
  std::vector<ShellPart> parts;
  /// For a word that is not literal: its expansion to one word, if that is known.
  std::optional<std::string> known;
};

struct ShellVariable {
  std::string name;
  /// The value, if it is literal.
  std::string value;
  /// Whether the value is known.
  bool literal = true;
  /// For a value that is not literal: its expansion; empty if that is unknown.
  std::vector<ShellPart> parts{};
};

/// The text as one word of a script, in single quotes if needed.
std::string shell_word(std::string_view text);

/// Whether the character is literal in a script without quotes.
bool is_plain_in_shell(char c);

bool is_shell_name_character(char c);
/// The name at the start of a text, "" if there is none.
std::string_view shell_name_at(std::string_view text);

}  // namespace fo::pod
