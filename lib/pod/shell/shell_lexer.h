// Reads the words of a shell script: quotes, expansions, comments and here-documents. shell_parser
// reads the commands. Internal to shell_script.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

/// Thrown with the text for ShellScript::refusal.
struct ShellRefusal {
  std::string reason;
};
[[noreturn]] void refuse_script(std::string reason);

/// Whether the character ends a word unless it is quoted.
bool ends_shell_word(char c);

/// A position in a script. The functions that read and skip throw ShellRefusal.
class ShellLexer {
 public:
  /// `environment` has the names that Kubernetes expands.
  ShellLexer(std::string_view script, const Environment& environment)
      : script_(script), environment_(environment) {}

  [[nodiscard]] std::size_t position() const { return at_; }
  void move_to(std::size_t position) { at_ = position; }
  void skip(std::size_t characters) { at_ += characters; }

  [[nodiscard]] std::string_view script() const { return script_; }
  [[nodiscard]] bool at_end() const { return at_ >= script_.size(); }
  [[nodiscard]] std::string_view rest() const;
  [[nodiscard]] bool sees(std::string_view text) const { return rest().starts_with(text); }
  /// Whether one of these characters is here.
  [[nodiscard]] bool sees_one_of(std::string_view characters) const;
  /// The character here; "\n" at the end.
  [[nodiscard]] char here() const { return at_end() ? '\n' : script_[at_]; }
  /// The source of the word here, if nothing in it is quoted.
  [[nodiscard]] std::string_view bare_word() const;

  /// Skips blanks and comments, at the start of a word.
  void skip_blanks();
  /// Skips a line end, and the here-documents after it.
  void skip_line_end();
  /// Skips blanks, comments and line ends.
  void skip_lines();

  /// The word here, which may be empty.
  ShellWord read_word();
  /// Why the last word cannot be part of an engine's command; "" if it can.
  [[nodiscard]] const std::string& unsupported() const { return unsupported_; }
  /// Reads the end of a here-document after "<<". Its body begins on the next line.
  void read_document();
  /// Skips from "(" to the matching ")".
  void skip_commands() { skip_parentheses(Parentheses::kCommands); }
  /// Skips "((…))". Every variable in it may change.
  void skip_arithmetic();
  /// Returns the variables that words and arithmetic since the last call may set, and continues
  /// with `next`.
  std::vector<std::string> exchange_assigned(std::vector<std::string> next) {
    return std::exchange(assigned_, std::move(next));
  }

  /// Counts one nesting level while it exists; refuses the script if there are too many.
  class Level {
   public:
    explicit Level(ShellLexer& lexer);
    ~Level() { --lexer_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ShellLexer& lexer_;
  };

 private:
  using Quotes = ShellPart::Quotes;
  enum class Parentheses { kCommands, kArithmetic };
  struct Document {
    std::string end;
    bool strips_tabs = false;
  };

  void skip_document(const Document& document);
  void skip_comment();
  void skip_parentheses(Parentheses kind);
  void refuse_hidden_parentheses() const;

  bool read_quoted(ShellWord& word);
  void read_single_quotes(ShellWord& word);
  void read_double_quotes(ShellWord& word);
  void read_escape(ShellWord& word);
  void read_plain(ShellWord& word);
  void skip_past(char closer);
  void read_backticks(ShellWord& word);
  void read_dollar(ShellWord& word, Quotes quotes);
  ShellPart read_expansion(ShellWord& word, Quotes quotes);
  ShellPart read_parentheses();
  ShellPart read_braces(ShellWord& word, Quotes quotes);
  void read_special(ShellWord& word, Quotes quotes);

  std::string_view script_;
  const Environment& environment_;
  std::size_t at_ = 0;
  int levels_ = 0;
  std::string unsupported_;
  std::vector<std::string> assigned_;
  // The here-documents whose bodies begin on the next line.
  std::vector<Document> documents_;
};

}  // namespace fo::pod
