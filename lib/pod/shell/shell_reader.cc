#include "pod/shell/shell_reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

// Maximum nesting of compound commands.
constexpr int kMaxDepth = 50;

constexpr std::array<std::string_view, 5> kDeclarations = {"export", "declare", "typeset", "local",
                                                           "readonly"};
constexpr std::array<std::string_view, 3> kOtherScripts = {".", "source", "eval"};
constexpr std::array<std::string_view, 6> kSetters = {"read",      "unset",   "mapfile",
                                                      "readarray", "getopts", "let"};
// Keywords between the commands of a compound command.
constexpr std::array<std::string_view, 4> kDividers = {"then", "else", "elif", "do"};

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool ends_word(char c) {
  return is_blank(c) || std::string_view("\n;&|<>()").find(c) != std::string_view::npos;
}

// The name in an unquoted "NAME=…"; "" if it is not an assignment.
std::string_view assigned_name(std::string_view source) {
  const std::string_view name = shell_name_at(source);
  const std::string_view rest = source.substr(name.size());
  return rest.starts_with('=') || rest.starts_with("+=") ? name : std::string_view();
}

std::string_view closer_of(std::string_view keyword) {
  if (keyword == "if") return "fi";
  if (keyword == "{") return "}";
  if (keyword == "(") return ")";
  return keyword == "case" ? "esac" : "done";
}

[[noreturn]] void refuse(std::string reason) { throw ShellRefusal{std::move(reason)}; }

class Reader {
 public:
  Reader(std::string_view script, const Environment& environment)
      : script_(script), environment_(environment) {}

  std::vector<ShellCommand> read() {
    std::vector<ShellCommand> commands;
    read_commands("", commands);
    return commands;
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= script_.size(); }
  [[nodiscard]] std::string_view rest() const {
    return script_.substr(std::min(at_, script_.size()));
  }
  [[nodiscard]] bool sees(std::string_view text) const { return rest().starts_with(text); }
  [[nodiscard]] char here() const { return at_end() ? '\n' : script_[at_]; }

  void skip_blanks() {
    while (!at_end()) {
      if (is_blank(script_[at_])) {
        ++at_;
      } else if (sees("\\\n")) {
        at_ += 2;
      } else if (script_[at_] == '#') {
        // Called only at the start of a word.
        at_ = std::min(script_.find('\n', at_), script_.size());
      } else {
        return;
      }
    }
  }

  void take_line_end() {
    ++at_;
    for (const Document& document : std::exchange(documents_, {})) skip_document(document);
  }

  void skip_between_commands() {
    skip_blanks();
    while (!at_end() && script_[at_] == '\n') {
      take_line_end();
      skip_blanks();
    }
  }

  // The unquoted text here, up to the end of the word.
  [[nodiscard]] std::string_view bare_word() const {
    std::size_t end = at_;
    while (end < script_.size() && !ends_word(script_[end])) ++end;
    return script_.substr(at_, end - at_);
  }

  // Reads up to and including `closer`, where "" is the end of the script. False at ";;", the end
  // of one branch of a case.
  bool read_commands(std::string_view closer, std::vector<ShellCommand>& commands) {
    while (true) {
      skip_between_commands();
      if (at_end()) {
        if (closer.empty()) return true;
        refuse("a command without its " + base::quoted(closer));
      }
      if (closer == ")" && here() == ')') {
        ++at_;
        return true;
      }
      const std::string_view word = bare_word();
      if (!closer.empty() && word == closer) {
        at_ += word.size();
        return true;
      }
      if (!closer.empty() && text::is_one_of(word, kDividers)) {
        at_ += word.size();
        continue;
      }
      if (closer == "esac" && sees(";;")) return false;
      read_one(commands);
    }
  }

  void read_one(std::vector<ShellCommand>& commands) {
    ShellCommand command;
    std::vector<std::string> outer = std::exchange(assigned_, {});
    const std::string_view word = bare_word();
    if (word == "!" || word == "time") {
      at_ += word.size();
      skip_blanks();
      command.unsupported = "an unsupported command: " + base::quoted(word);
    }
    if (!read_compound(command)) read_simple(command);
    read_end(command);
    std::move(assigned_.begin(), assigned_.end(), std::back_inserter(command.may_set));
    assigned_ = std::move(outer);
    commands.push_back(std::move(command));
  }

  void read_end(ShellCommand& command) {
    skip_blanks();
    if (at_end() || here() == ')' || sees(";;")) return;
    if (sees("&&") || sees("||")) {
      command.end = script_.substr(at_, 2);
      at_ += 2;
    } else if (here() == '|') {
      command.end = "|";
      at_ += sees("|&") ? 2U : 1U;
    } else if (here() == '&') {
      command.end = "&";
      ++at_;
    } else {
      command.end = "\n";
      if (here() == '\n') {
        take_line_end();
      } else if (here() == ';') {
        ++at_;
      } else {
        refuse("a " + base::quoted(std::string(1, here())) + " in the wrong place");
      }
    }
  }

  // Whether a compound command begins here.
  bool read_compound(ShellCommand& command) {
    if (sees("((")) return read_arithmetic(command);
    constexpr std::array<std::string_view, 6> kKeywords = {"if",  "while",  "until",
                                                           "for", "select", "{"};
    const std::string_view word = bare_word();
    const bool is_group = word.empty() && here() == '(';
    if (!is_group && word != "case" && word != "function" && word != "coproc" &&
        !text::is_one_of(word, kKeywords)) {
      return false;
    }
    command.kind = ShellCommand::Kind::kCompound;
    command.keyword = is_group ? "(" : std::string(word);
    at_ += is_group ? std::size_t{1} : word.size();
    const Level level(*this);
    if (word == "coproc") refuse("a command in the background: 'coproc'");
    if (word == "function") {
      skip_blanks();
      read_function(command, std::string(bare_word()));
      return true;
    }
    if (word == "case") {
      read_case(command);
    } else {
      if (word == "for" || word == "select") read_loop_variable(command);
      read_commands(closer_of(command.keyword), command.inner);
    }
    flatten(command);
    read_redirections(command);
    return true;
  }

  // "(( … ))"
  bool read_arithmetic(ShellCommand& command) {
    command.kind = ShellCommand::Kind::kCompound;
    command.keyword = "((";
    skip_arithmetic();
    read_redirections(command);
    return true;
  }

  // Every variable in it may change.
  void skip_arithmetic() {
    const std::size_t begin = at_;
    skip_parentheses(Parentheses::kArithmetic);
    std::string_view inner = script_.substr(begin, at_ - begin);
    while (!inner.empty()) {
      const std::string_view name = shell_name_at(inner);
      if (!name.empty()) assigned_.emplace_back(name);
      inner.remove_prefix(std::max<std::size_t>(name.size(), 1));
    }
  }

  // Reads "NAME()" or "NAME", at the name, and the body.
  void read_function(ShellCommand& command, const std::string& name) {
    at_ += name.size();
    skip_blanks();
    if (here() == '(') {
      ++at_;
      skip_blanks();
      if (here() != ')') refuse("parentheses");
      ++at_;
    }
    skip_between_commands();
    command.kind = ShellCommand::Kind::kCompound;
    ShellCommand body;
    if (!read_compound(body)) refuse("a function without a body");
    command.keyword = name + "()";
    command.inner = std::move(body.inner);
    command.variables.clear();
  }

  void read_loop_variable(ShellCommand& command) {
    skip_blanks();
    if (sees("((")) {
      skip_arithmetic();
    } else {
      const std::string_view name = shell_name_at(rest());
      if (name.empty()) refuse("a loop without a variable");
      command.may_set.emplace_back(name);
      at_ += name.size();
      skip_blanks();
      if (bare_word() == "in") {
        while (!at_end() && here() != ';' && here() != '\n') {
          read_word();
          skip_blanks();
          if (here() == '(' || here() == ')' || here() == '&' || here() == '|' || here() == '<' ||
              here() == '>') {
            refuse("parentheses");
          }
        }
      }
    }
    skip_blanks();
    if (!at_end() && here() == ';') ++at_;
  }

  void read_case(ShellCommand& command) {
    skip_blanks();
    read_word();
    skip_between_commands();
    if (bare_word() != "in") refuse("a 'case' without 'in'");
    at_ += 2;
    while (true) {
      skip_between_commands();
      if (bare_word() == "esac") {
        at_ += 4;
        return;
      }
      if (here() == '(') ++at_;
      read_pattern();
      if (read_commands("esac", command.inner)) return;
      at_ += 2;
      if (here() == '&') ++at_;
    }
  }

  // "a|b)"
  void read_pattern() {
    while (here() != ')') {
      const std::size_t before = at_;
      if (here() == '|' || is_blank(here())) {
        ++at_;
      } else {
        read_word();
      }
      if (at_ == before) refuse("a pattern that is not closed");
    }
    ++at_;
  }

  static void flatten(ShellCommand& command) {
    std::vector<ShellCommand> all;
    for (ShellCommand& one : command.inner) {
      std::vector<ShellCommand> deeper = std::move(one.inner);
      one.inner.clear();
      // Includes commands of nested compound commands, such as a loop.
      all.push_back(std::move(one));
      std::move(deeper.begin(), deeper.end(), std::back_inserter(all));
    }
    command.inner = std::move(all);
  }

  void read_redirections(ShellCommand& command) {
    skip_blanks();
    while (read_redirection(command)) skip_blanks();
  }

  // Reads one simple command, up to its terminator.
  void read_simple(ShellCommand& command) {
    if (sees("[[") && (script_.size() == at_ + 2 || ends_word(script_[at_ + 2]))) {
      return read_test(command);
    }
    const std::size_t start = at_;
    while (true) {
      skip_blanks();
      if (at_end() || std::string_view("\n;&|)").find(here()) != std::string_view::npos) {
        if (!sees("&>")) break;
      }
      if (read_redirection(command)) continue;
      if (here() == '(' && is_array(command)) {
        skip_parentheses(Parentheses::kCommands);
        command.words.back().literal = false;
        continue;
      }
      if (here() == '(') {
        if (command.words.size() != 1 || !command.variables.empty()) refuse("parentheses");
        const Level level(*this);
        const std::string name = command.words.front().value;
        at_ = command.words.front().begin;
        command = {};
        return read_function(command, name);
      }
      unsupported_.clear();
      const std::size_t begin = at_;
      ShellWord word = read_word();
      const std::string_view source = script_.substr(begin, at_ - begin);
      const std::string_view name = assigned_name(source);
      if (command.words.empty() && !name.empty()) {
        if (here() == '(' && source.ends_with('=')) {
          skip_parentheses(Parentheses::kCommands);
          command.variables.push_back({std::string(name), "", false});
        } else {
          command.variables.push_back(variable_of(name, word));
        }
        continue;
      }
      if (command.unsupported.empty()) command.unsupported = unsupported_;
      command.words.push_back(std::move(word));
    }
    if (at_ == start) refuse("a " + base::quoted(std::string(1, here())) + " in the wrong place");
    finish_simple(command);
  }

  // Whether this is the parenthesis of "declare -a NAME=(…)".
  [[nodiscard]] bool is_array(const ShellCommand& command) const {
    return command.words.size() > 1 &&
           text::is_one_of(command.words.front().value, kDeclarations) &&
           command.words.back().end == at_ && script_[at_ - 1] == '=';
  }

  [[nodiscard]] ShellVariable variable_of(std::string_view name, const ShellWord& word) const {
    const std::string_view rest = std::string_view(word.value).substr(name.size());
    // The result of "+=" is unknown.
    if (!rest.starts_with('=')) return {std::string(name), "", false};
    if (word.literal) return {std::string(name), std::string(rest.substr(1)), true};
    // The values of an array follow the word, in parentheses.
    if (word.end < script_.size() && script_[word.end] == '(')
      return {std::string(name), "", false};
    return {std::string(name), "", false, word.begin + name.size() + 1, word.end};
  }

  void finish_simple(ShellCommand& command) const {
    std::vector<ShellWord>& words = command.words;
    if (!words.empty() && words.front().value == "exec") {
      words.erase(words.begin());
      // With redirections only, exec starts no program.
      command.is_exec = !words.empty();
      if (words.empty() && !command.redirects) refuse("an 'exec' without a command");
    }
    if (words.empty()) {
      command.sets_for_the_rest = true;
      return;
    }
    const std::string& first = words.front().value;
    command.may_set_any = text::is_one_of(first, kOtherScripts);
    if (text::is_one_of(first, kSetters)) {
      // Also for "P=1", and for let.
      for (const ShellWord& word : words) {
        command.may_set.emplace_back(shell_name_at(word.value));
      }
    }
    if (first == "printf" && words.size() > 2 && words[1].value.starts_with("-v")) {
      command.may_set.push_back(words[1].value == "-v" ? words[2].value : words[1].value.substr(2));
    }
    if (!text::is_one_of(first, kDeclarations)) return;
    command.sets_for_the_rest = true;
    // Options that make numbers, change case, or refer to another variable.
    const bool changes = std::any_of(words.begin(), words.end(), [](const ShellWord& word) {
      return word.value.starts_with('-') && word.value.find_first_of("ilnu") != std::string::npos;
    });
    for (const ShellWord& word : words) {
      const std::string_view name =
          assigned_name(script_.substr(word.begin, word.end - word.begin));
      if (name.empty()) continue;
      command.variables.push_back(changes ? ShellVariable{std::string(name), "", false}
                                          : variable_of(name, word));
    }
  }

  // Reads "[[ … ]]", whose operators are not those of the shell.
  void read_test(ShellCommand& command) {
    ShellWord word;
    word.begin = at_;
    word.value = "[[";
    at_ += 2;
    while (!at_end() && !(sees("]]") && is_blank(script_[at_ - 1]))) {
      if (here() == '\n' || is_blank(here()) || ends_word(here())) {
        ++at_;
      } else {
        read_word();
      }
    }
    if (at_end()) refuse("a '[[' that is not closed");
    at_ += 2;
    word.end = at_;
    command.words.push_back(std::move(word));
  }

  // Skips "2>&1" or ">log": only the fact that it is not an argument matters.
  bool read_redirection(ShellCommand& command) {
    std::size_t at = at_;
    while (at < script_.size() && text::is_digit(script_[at])) ++at;
    if (at == at_ && sees("&>")) ++at;
    if (at >= script_.size() || (script_[at] != '<' && script_[at] != '>')) return false;
    const std::string_view from = script_.substr(at);
    // A process substitution is an argument, the name of a file.
    if (from.starts_with("<(") || from.starts_with(">(")) return false;
    command.redirects = true;
    if (from.starts_with("<<<")) {
      at_ = at + 3;
    } else if (from.starts_with("<<")) {
      at_ = at + 2;
      read_document();
      return true;
    } else {
      at_ = at + 1;
      if (!at_end() && (sees(">") || sees("&") || sees("|"))) ++at_;
    }
    skip_blanks();
    const std::size_t before = at_;
    if (!at_end()) read_word();
    if (at_ == before) refuse("a redirection without a target");
    return true;
  }

  struct Document {
    std::string end;
    bool strips_tabs = false;
  };

  // After "<<": its body begins on the next line.
  void read_document() {
    Document document;
    document.strips_tabs = sees("-");
    if (document.strips_tabs) ++at_;
    skip_blanks();
    document.end = read_word().value;
    if (document.end.empty()) refuse("a here-document without an end");
    documents_.push_back(std::move(document));
  }

  void skip_document(const Document& document) {
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

  enum class Parentheses { kCommands, kArithmetic };

  // Skips from "(" to the matching ")".
  void skip_parentheses(Parentheses kind) {
    int open = 0;
    while (!at_end()) {
      const char c = script_[at_];
      if (c == '\'') {
        at_ = find_closing('\'', at_ + 1) + 1;
      } else if (c == '"') {
        ShellWord ignored;
        read_double_quotes(ignored);
      } else if (c == '\\') {
        at_ += 2;
      } else if (c == '#' && at_ > 0 && (is_blank(script_[at_ - 1]) || script_[at_ - 1] == '\n')) {
        at_ = std::min(script_.find('\n', at_), script_.size());
      } else {
        if (kind == Parentheses::kCommands) refuse_hidden_parentheses();
        ++at_;
        if (c == '(') ++open;
        if (c == ')' && --open == 0) return;
      }
    }
    refuse("parentheses that are not closed");
  }

  // Refuses texts with unbalanced parentheses: here-documents, and the patterns of a case.
  void refuse_hidden_parentheses() const {
    if (sees("<<") && !sees("<<<")) refuse("a here-document within parentheses");
    const bool begins_word = at_ > 0 && ends_word(script_[at_ - 1]);
    if (begins_word && bare_word() == "case") refuse("a 'case' within parentheses");
  }

  [[nodiscard]] std::size_t find_closing(char quote, std::size_t from) const {
    const std::size_t end = script_.find(quote, from);
    if (end == std::string_view::npos) refuse("a quote that is not closed");
    return end;
  }

  ShellWord read_word() {
    ShellWord word;
    word.begin = at_;
    bool brace = false;
    if (sees("<(") || sees(">(")) {
      ++at_;
      skip_parentheses(Parentheses::kCommands);
      word.literal = false;
      word.value = script_.substr(word.begin, at_ - word.begin);
    }
    while (!at_end()) {
      const char c = script_[at_];
      if (ends_word(c)) break;
      if (c == '\'') {
        read_single_quotes(word);
      } else if (c == '"') {
        read_double_quotes(word);
      } else if (c == '\\') {
        read_escape(word);
      } else if (c == '$') {
        word.splits = true;
        read_dollar(word, false);
      } else if (c == '`') {
        word.splits = true;
        read_backticks(word);
      } else {
        // The expansion of a pattern, a brace expansion or a '~' is not known here.
        brace = brace || c == '{';
        if (c == '*' || c == '?' || c == '[' || (c == '~' && at_ == word.begin) ||
            (brace && (c == ',' || sees("..")))) {
          word.literal = false;
        }
        word.value += c;
        ++at_;
      }
    }
    word.end = at_;
    return word;
  }

  void read_single_quotes(ShellWord& word) {
    const std::size_t end = find_closing('\'', at_ + 1);
    const std::string_view inner = script_.substr(at_ + 1, end - at_ - 1);
    // Kubernetes ignores quotes.
    if (inner.find("$$") != std::string_view::npos || has_kubernetes_variable(inner)) {
      word.literal = false;
    }
    word.value += inner;
    at_ = end + 1;
  }

  [[nodiscard]] bool has_kubernetes_variable(std::string_view text) const {
    const std::size_t last = text.rfind(')');
    if (last == std::string_view::npos) return false;
    for (std::size_t at = 0; (at = text.find("$(", at)) < last; at += 2) {
      const std::string_view name = kubernetes_variable_at(text.substr(at));
      // A name that is too long cannot be checked.
      if (name.empty() ? text[at + 2] != ')' : environment_.may_have(name)) return true;
    }
    return false;
  }

  void read_double_quotes(ShellWord& word) {
    const Level level(*this);
    ++at_;
    while (true) {
      if (at_end()) refuse("a quote that is not closed");
      const char c = script_[at_];
      if (c == '"') break;
      if (c == '`') {
        read_backticks(word);
      } else if (c == '$') {
        read_dollar(word, true);
      } else if (c == '\\' && at_ + 1 < script_.size() &&
                 std::string_view("$`\"\\\n").find(script_[at_ + 1]) != std::string_view::npos) {
        if (script_[at_ + 1] != '\n') word.value += script_[at_ + 1];
        at_ += 2;
      } else {
        word.value += c;
        ++at_;
      }
    }
    ++at_;
  }

  void read_escape(ShellWord& word) {
    if (at_ + 1 == script_.size()) refuse("a '\\' at the end");
    if (script_[at_ + 1] != '\n') word.value += script_[at_ + 1];
    at_ += 2;
  }

  void read_backticks(ShellWord& word) {
    const std::size_t begin = at_++;
    while (!at_end() && script_[at_] != '`') at_ += script_[at_] == '\\' ? 2U : 1U;
    if (at_end()) refuse("a quote that is not closed");
    ++at_;
    word.literal = false;
    word.value += script_.substr(begin, at_ - begin);
  }

  // `quoted` means within double quotes.
  void read_dollar(ShellWord& word, bool quoted) {
    const std::size_t begin = at_++;
    if (at_end() || is_blank(script_[at_]) || sees("\n") || (quoted && sees("\""))) {
      word.value += '$';
      return;
    }
    word.literal = false;
    if (sees("((")) {
      skip_arithmetic();
    } else if (sees("(")) {
      skip_parentheses(Parentheses::kCommands);
    } else if (sees("{")) {
      read_braces(word, quoted);
    } else if (const std::string_view name = shell_name_at(rest()); !name.empty()) {
      at_ += name.size();
    } else {
      read_special(word, quoted);
    }
    word.value += script_.substr(begin, at_ - begin);
  }

  // Reads "${NAME}", "${NAME:-plain}" and other expansions.
  void read_braces(ShellWord& word, bool quoted) {
    const Level level(*this);
    const std::size_t begin = ++at_;
    while (!at_end() && script_[at_] != '}') {
      const char c = script_[at_];
      // A single quote within double quotes is a plain character.
      if (c == '\'' && !quoted) {
        at_ = find_closing('\'', at_ + 1) + 1;
      } else if (c == '"') {
        ShellWord ignored;
        read_double_quotes(ignored);
      } else if (c == '\\') {
        at_ += 2;
      } else if (c == '$') {
        ShellWord ignored;
        read_dollar(ignored, quoted);
      } else {
        ++at_;
      }
    }
    if (at_end()) refuse("a variable expansion that is not closed");
    const std::string_view inner = script_.substr(begin, at_ - begin);
    ++at_;
    // "${NAME:=value}"
    const std::string_view name = shell_name_at(inner);
    const std::string_view use = inner.substr(name.size());
    if (use.starts_with(":=") || use.starts_with('=')) assigned_.emplace_back(name);
    // An array expands to several words, even in quotes.
    if (inner.find("[@]") != std::string_view::npos) word.splits = true;
    if (inner.starts_with('@') || inner.starts_with('*') ||
        (!inner.empty() && text::is_digit(inner[0]))) {
      unsupported_ = "arguments of the script: '$" + std::string(1, inner[0]) + "'";
    }
  }

  // Reads "$@", "$1", "$?", "$$", at the character after the "$".
  void read_special(ShellWord& word, bool quoted) {
    const char c = script_[at_];
    if (!quoted && (c == '\'' || c == '"')) {
      unsupported_ = "a '$" + std::string(1, c) + "'";
      ShellWord ignored;
      if (c == '"') return read_double_quotes(ignored);
      ++at_;
      while (!at_end() && script_[at_] != '\'') at_ += script_[at_] == '\\' ? 2U : 1U;
      if (at_end()) refuse("a quote that is not closed");
      ++at_;
      return;
    }
    unsupported_ = "a '$" + std::string(1, c) + "'";
    if (c == '@' || c == '*' || text::is_digit(c)) {
      unsupported_ = "arguments of the script: '$" + std::string(1, c) + "'";
      word.splits = true;
    }
    if (std::string_view("@*#?-$!").find(c) != std::string_view::npos || text::is_digit(c)) ++at_;
  }

  // Counts the nesting level.
  class Level {
   public:
    explicit Level(Reader& reader) : reader_(reader) {
      if (++reader_.levels_ > kMaxDepth) refuse("commands nested too deeply");
    }
    ~Level() { --reader_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Reader& reader_;
  };

  std::string_view script_;
  const Environment& environment_;
  std::size_t at_ = 0;
  int levels_ = 0;
  // The unsupported part of the current word, if any.
  std::string unsupported_;
  // Variables set by words of the current command.
  std::vector<std::string> assigned_;
  // Here-documents whose bodies begin on the next line.
  std::vector<Document> documents_;
};

}  // namespace

std::vector<ShellCommand> read_shell_commands(std::string_view script,
                                              const Environment& environment) {
  return Reader(script, environment).read();
}

}  // namespace fo::pod
