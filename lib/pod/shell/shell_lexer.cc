#include "pod/shell/shell_lexer.h"

#include <algorithm>

#include "text/ascii.h"

namespace fo::pod {
namespace {

// Maximum nesting of compound commands and expansions.
constexpr int kMaxLevels = 50;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Adds a part whose source is not its expansion.
void add_part(ShellWord& word, ShellPart part, std::string_view source) {
  word.value += source;
  std::vector<ShellPart>& parts = word.parts;
  if (part.kind == ShellPart::Kind::kUnknown) parts.clear();
  if (parts.empty() || parts.back().kind != ShellPart::Kind::kUnknown) {
    parts.push_back(std::move(part));
  }
}

void add_text(ShellWord& word, std::string_view text) {
  if (text.empty()) return;
  if (!word.parts.empty() && word.parts.back().kind == ShellPart::Kind::kText) {
    word.parts.back().text += text;
    word.value += text;
  } else {
    add_part(word, {.text = std::string(text)}, text);
  }
}

void add_unknown(ShellWord& word, std::string_view source) {
  add_part(word, {.kind = ShellPart::Kind::kUnknown}, source);
}

// Whether braces around the text expand to a variable, or to ":-plain" in place of an empty one.
bool is_variable(std::string_view text) {
  const std::string_view name = shell_name_at(text);
  const std::string_view use = text.substr(name.size());
  return !name.empty() &&
         (use.empty() ||
          (use.starts_with(":-") && std::all_of(use.begin() + 2, use.end(), is_plain_in_shell)));
}

}  // namespace

void refuse_script(std::string reason) { throw ShellRefusal{std::move(reason)}; }

bool ends_shell_word(char c) {
  return is_blank(c) || std::string_view("\n;&|<>()").find(c) != std::string_view::npos;
}

ShellLexer::Level::Level(ShellLexer& lexer) : lexer_(lexer) {
  if (lexer_.levels_ == kMaxLevels) refuse_script("commands nested too deeply");
  ++lexer_.levels_;
}

std::string_view ShellLexer::rest() const { return script_.substr(std::min(at_, script_.size())); }

bool ShellLexer::sees_one_of(std::string_view characters) const {
  return !at_end() && characters.find(script_[at_]) != std::string_view::npos;
}

std::string_view ShellLexer::bare_word() const {
  const std::string_view text = rest();
  const auto* const end = std::find_if(text.begin(), text.end(), ends_shell_word);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

void ShellLexer::skip_comment() { at_ = std::min(script_.find('\n', at_), script_.size()); }

void ShellLexer::skip_blanks() {
  while (!at_end()) {
    if (is_blank(script_[at_])) {
      ++at_;
    } else if (sees("\\\n")) {
      at_ += 2;
    } else if (script_[at_] == '#') {
      skip_comment();
    } else {
      return;
    }
  }
}

void ShellLexer::skip_line_end() {
  ++at_;
  for (const Document& document : std::exchange(documents_, {})) skip_document(document);
}

void ShellLexer::skip_lines() {
  skip_blanks();
  while (sees("\n")) {
    skip_line_end();
    skip_blanks();
  }
}

void ShellLexer::read_document() {
  Document document;
  document.strips_tabs = sees("-");
  if (document.strips_tabs) ++at_;
  skip_blanks();
  document.end = read_word().value;
  if (document.end.empty()) refuse_script("a here-document without an end");
  documents_.push_back(std::move(document));
}

void ShellLexer::skip_document(const Document& document) {
  while (!at_end()) {
    const std::size_t end = std::min(script_.find('\n', at_), script_.size());
    std::string_view line = script_.substr(at_, end - at_);
    at_ = std::min(end + 1, script_.size());
    if (document.strips_tabs) {
      line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
    }
    if (line == document.end) return;
  }
}

void ShellLexer::skip_arithmetic() {
  const std::size_t begin = at_;
  skip_parentheses(Parentheses::kArithmetic);
  std::string_view inner = script_.substr(begin, at_ - begin);
  while (!inner.empty()) {
    const std::string_view name = shell_name_at(inner);
    if (!name.empty()) assigned_.emplace_back(name);
    inner.remove_prefix(std::max<std::size_t>(name.size(), 1));
  }
}

void ShellLexer::skip_parentheses(Parentheses kind) {
  int open = 0;
  ShellWord ignored;
  while (!at_end()) {
    if (read_quoted(ignored)) continue;
    const char c = script_[at_];
    if (c == '#' && at_ > 0 && (is_blank(script_[at_ - 1]) || script_[at_ - 1] == '\n')) {
      skip_comment();
      continue;
    }
    if (kind == Parentheses::kCommands) refuse_hidden_parentheses();
    ++at_;
    if (c == '(') ++open;
    if (c == ')' && --open == 0) return;
  }
  refuse_script("parentheses that are not closed");
}

// Refuses texts with unbalanced parentheses: here-documents, and the patterns of a case.
void ShellLexer::refuse_hidden_parentheses() const {
  if (sees("<<") && !sees("<<<")) refuse_script("a here-document within parentheses");
  const bool begins_word = at_ > 0 && ends_shell_word(script_[at_ - 1]);
  if (begins_word && bare_word() == "case") refuse_script("a 'case' within parentheses");
}

ShellWord ShellLexer::read_word() {
  ShellWord word;
  word.begin = at_;
  unsupported_.clear();
  bool has_brace = false;
  if (sees("<(") || sees(">(")) {
    ++at_;
    skip_commands();
    word.literal = false;
    add_unknown(word, script_.substr(word.begin, at_ - word.begin));
  }
  while (!at_end() && !ends_shell_word(script_[at_])) {
    if (read_quoted(word)) continue;
    const char c = script_[at_];
    if (c == '$') {
      word.splits = true;
      read_dollar(word, Quotes::kNone);
    } else if (c == '`') {
      word.splits = true;
      read_backticks(word);
    } else {
      // The expansion of a pattern, a brace expansion or a '~' is not known here.
      has_brace = has_brace || c == '{';
      if (sees_one_of("*?[") || (c == '~' && at_ == word.begin) ||
          (has_brace && (c == ',' || sees("..")))) {
        word.literal = false;
      }
      read_plain(word);
    }
  }
  word.end = at_;
  return word;
}

void ShellLexer::read_plain(ShellWord& word) {
  const std::string_view text = script_.substr(at_++, 1);
  // In a word with variables, these may expand, too.
  if (text.find_first_of("*?[{~") != std::string_view::npos) {
    add_unknown(word, text);
  } else {
    add_text(word, text);
  }
}

// Reads a quoted text or an escaped character. Returns false if there is none here.
bool ShellLexer::read_quoted(ShellWord& word) {
  if (sees("'")) {
    read_single_quotes(word);
  } else if (sees("\"")) {
    read_double_quotes(word);
  } else if (sees("\\")) {
    read_escape(word);
  } else {
    return false;
  }
  return true;
}

void ShellLexer::read_single_quotes(ShellWord& word) {
  const std::size_t end = script_.find('\'', at_ + 1);
  if (end == std::string_view::npos) refuse_script("a quote that is not closed");
  const std::string_view inner = script_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  // Kubernetes replaces "$$" within quotes, too.
  if (inner.find("$$") != std::string_view::npos) {
    word.literal = false;
    return add_unknown(word, inner);
  }
  std::size_t begin = 0;
  // 0 without a ")".
  const std::size_t last = inner.rfind(')') + 1;
  for (std::size_t at = 0; (at = inner.find("$(", at)) < last;) {
    const std::string_view name = kubernetes_variable_at(inner.substr(at));
    // A name that is too long cannot be checked.
    if (name.empty() ? inner[at + 2] == ')' : !environment_.may_have(name)) {
      at += 2;
      continue;
    }
    word.literal = false;
    if (name.empty() || !environment_.has(name)) return add_unknown(word, inner.substr(begin));
    const std::string_view source = inner.substr(at, name.size() + 3);
    add_text(word, inner.substr(begin, at - begin));
    add_part(word, {ShellPart::Kind::kKubernetes, Quotes::kSingle, std::string(name)}, source);
    begin = at += source.size();
  }
  add_text(word, inner.substr(begin));
}

void ShellLexer::read_double_quotes(ShellWord& word) {
  const Level level(*this);
  ++at_;
  while (!sees("\"")) {
    if (at_end()) refuse_script("a quote that is not closed");
    if (sees("`")) {
      read_backticks(word);
    } else if (sees("$")) {
      read_dollar(word, Quotes::kDouble);
    } else if (sees("\\") && at_ + 1 < script_.size() &&
               std::string_view("$`\"\\\n").find(script_[at_ + 1]) != std::string_view::npos) {
      read_escape(word);
    } else {
      add_text(word, script_.substr(at_++, 1));
    }
  }
  ++at_;
}

void ShellLexer::read_escape(ShellWord& word) {
  if (at_ + 1 == script_.size()) refuse_script("a '\\' at the end");
  if (script_[at_ + 1] != '\n') add_text(word, script_.substr(at_ + 1, 1));
  at_ += 2;
}

// Skips past the next `closer` that is not escaped.
void ShellLexer::skip_past(char closer) {
  while (!at_end() && script_[at_] != closer) at_ += script_[at_] == '\\' ? 2U : 1U;
  if (at_end()) refuse_script("a quote that is not closed");
  ++at_;
}

void ShellLexer::read_backticks(ShellWord& word) {
  const std::size_t begin = at_++;
  skip_past('`');
  word.literal = false;
  add_unknown(word, script_.substr(begin, at_ - begin));
}

void ShellLexer::read_dollar(ShellWord& word, Quotes quotes) {
  const std::size_t begin = at_++;
  if (at_end() || sees_one_of(" \t\n") || (quotes == Quotes::kDouble && sees("\""))) {
    return add_text(word, "$");
  }
  word.literal = false;
  ShellPart part = read_expansion(word, quotes);
  part.quotes = quotes;
  add_part(word, std::move(part), script_.substr(begin, at_ - begin));
}

// Reads the expansion after a "$".
ShellPart ShellLexer::read_expansion(ShellWord& word, Quotes quotes) {
  if (sees("{")) return read_braces(word, quotes);
  if (sees("(")) return read_parentheses();
  const std::string_view name = shell_name_at(rest());
  at_ += name.size();
  if (!name.empty()) return {ShellPart::Kind::kVariable, quotes, std::string(name)};
  read_special(word, quotes);
  return {ShellPart::Kind::kUnknown};
}

ShellPart ShellLexer::read_parentheses() {
  if (sees("((")) {
    skip_arithmetic();
    return {ShellPart::Kind::kUnknown};
  }
  const std::size_t begin = at_ - 1;
  skip_commands();
  const std::string_view source = script_.substr(begin, at_ - begin);
  const std::string_view name = kubernetes_variable_at(source);
  // Without a variable of this name it is a command substitution.
  if (name.size() + 3 != source.size() || !environment_.has(name)) {
    return {ShellPart::Kind::kUnknown};
  }
  return {ShellPart::Kind::kKubernetes, Quotes::kNone, std::string(name)};
}

// Reads "{NAME}", "{NAME:-plain}" and other expansions.
ShellPart ShellLexer::read_braces(ShellWord& word, Quotes quotes) {
  const Level level(*this);
  const std::size_t begin = ++at_;
  ShellWord ignored;
  while (!at_end() && !sees("}")) {
    // A single quote within double quotes is a plain character.
    const bool is_plain = quotes == Quotes::kDouble && sees("'");
    if (!is_plain && read_quoted(ignored)) continue;
    if (sees("$")) {
      read_dollar(ignored, quotes);
    } else {
      ++at_;
    }
  }
  if (at_end()) refuse_script("a variable expansion that is not closed");
  const std::string_view inner = script_.substr(begin, at_ - begin);
  ++at_;
  // "${NAME:=value}" sets the variable.
  const std::string_view name = shell_name_at(inner);
  const std::string_view use = inner.substr(name.size());
  if (use.starts_with(":=") || use.starts_with('=')) assigned_.emplace_back(name);
  // An array expands to several words, even in quotes.
  if (inner.find("[@]") != std::string_view::npos) word.splits = true;
  if (inner.starts_with('@') || inner.starts_with('*') ||
      (!inner.empty() && text::is_digit(inner[0]))) {
    unsupported_ = "arguments of the script: '$" + std::string(1, inner[0]) + "'";
  }
  if (!is_variable(inner)) return {ShellPart::Kind::kUnknown};
  return {ShellPart::Kind::kVariable, quotes, std::string(inner)};
}

// Reads the rest of "$@", "$1", "$?", "$'…'" and others.
void ShellLexer::read_special(ShellWord& word, Quotes quotes) {
  const char c = script_[at_];
  unsupported_ = "a '$" + std::string(1, c) + "'";
  if (quotes == Quotes::kNone && c == '\'') {
    ++at_;
    return skip_past('\'');
  }
  if (quotes == Quotes::kNone && c == '"') {
    ShellWord ignored;
    return read_double_quotes(ignored);
  }
  if (c == '@' || c == '*' || text::is_digit(c)) {
    unsupported_ = "arguments of the script: '$" + std::string(1, c) + "'";
    word.splits = true;
  }
  if (std::string_view("@*#?-$!").find(c) != std::string_view::npos || text::is_digit(c)) ++at_;
}

}  // namespace fo::pod
