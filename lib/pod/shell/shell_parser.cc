#include "pod/shell/shell_parser.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

constexpr std::array<std::string_view, 5> kDeclarations = {"export", "declare", "typeset", "local",
                                                           "readonly"};
constexpr std::array<std::string_view, 3> kOtherScripts = {".", "source", "eval"};
constexpr std::array<std::string_view, 6> kSetters = {"read",      "unset",   "mapfile",
                                                      "readarray", "getopts", "let"};
// Keywords between the commands of a compound command.
constexpr std::array<std::string_view, 4> kDividers = {"then", "else", "elif", "do"};

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

[[noreturn]] void refuse_character(char c) {
  refuse_script("a " + base::quoted(std::string(1, c)) + " in the wrong place");
}

// The parts of "NAME=…" without the first `size` characters, the name and the "=", which are plain
// text.
std::vector<ShellPart> parts_after(std::size_t size, std::vector<ShellPart> parts) {
  if (parts.front().kind == ShellPart::Kind::kText) {
    parts.front().text.erase(0, size);
    if (parts.front().text.empty()) parts.erase(parts.begin());
  }
  return parts;
}

// The variable that `word` sets, which is "NAME=…" or "NAME+=…".
ShellVariable variable_of(std::string_view name, const ShellWord& word, std::string_view script) {
  const std::string_view rest = std::string_view(word.value).substr(name.size());
  // The result of "+=" is unknown.
  if (!rest.starts_with('=')) return {std::string(name), "", false};
  if (word.literal) return {std::string(name), std::string(rest.substr(1)), true};
  // The values of an array follow the word, in parentheses.
  if (word.end < script.size() && script[word.end] == '(') return {std::string(name), "", false};
  return {std::string(name), "", false, parts_after(name.size() + 1, word.parts)};
}

// Adds the variables that a declaration, such as export, sets.
void take_declarations(ShellCommand& command, std::string_view script) {
  const std::vector<ShellWord>& words = command.words;
  command.sets_for_the_rest = true;
  // These options turn a value into a number, change its case, or make it the name of another
  // variable.
  const bool changes = std::any_of(words.begin(), words.end(), [](const ShellWord& word) {
    return word.value.starts_with('-') && word.value.find_first_of("ilnu") != std::string::npos;
  });
  for (const ShellWord& word : words) {
    const std::string_view name = assigned_name(script.substr(word.begin, word.end - word.begin));
    if (name.empty()) continue;
    command.variables.push_back(changes ? ShellVariable{std::string(name), "", false}
                                        : variable_of(name, word, script));
  }
}

// Determines which variables of the script a simple command sets.
void finish_simple(ShellCommand& command, std::string_view script) {
  std::vector<ShellWord>& words = command.words;
  if (!words.empty() && words.front().value == "exec") {
    words.erase(words.begin());
    // With redirections only, exec starts no program.
    command.is_exec = !words.empty();
    if (words.empty() && !command.redirects) refuse_script("an 'exec' without a command");
  }
  if (words.empty()) {
    command.sets_for_the_rest = true;
    return;
  }
  const std::string& first = words.front().value;
  command.may_set_any = text::is_one_of(first, kOtherScripts);
  if (text::is_one_of(first, kSetters)) {
    // A word may be an assignment, such as an argument of let.
    for (const ShellWord& word : words) command.may_set.emplace_back(shell_name_at(word.value));
  }
  if (first == "printf" && words.size() > 2 && words[1].value.starts_with("-v")) {
    command.may_set.push_back(words[1].value == "-v" ? words[2].value : words[1].value.substr(2));
  }
  if (text::is_one_of(first, kDeclarations)) take_declarations(command, script);
}

// Moves the commands of nested compound commands, such as a loop, behind those.
void flatten(ShellCommand& command) {
  std::vector<ShellCommand> all;
  for (ShellCommand& one : command.inner) {
    std::vector<ShellCommand> deeper = std::move(one.inner);
    one.inner.clear();
    all.push_back(std::move(one));
    std::move(deeper.begin(), deeper.end(), std::back_inserter(all));
  }
  command.inner = std::move(all);
}

class Parser {
 public:
  Parser(std::string_view script, const Environment& environment) : lexer_(script, environment) {}

  std::vector<ShellCommand> read() {
    std::vector<ShellCommand> commands;
    read_commands("", commands);
    return commands;
  }

 private:
  // Reads up to and including `closer`, where "" is the end of the script. False at ";;", the end
  // of one branch of a case.
  bool read_commands(std::string_view closer, std::vector<ShellCommand>& commands) {
    while (true) {
      lexer_.skip_lines();
      if (lexer_.at_end()) {
        if (closer.empty()) return true;
        refuse_script("a command without its " + base::quoted(closer));
      }
      if (closer == ")" && lexer_.here() == ')') {
        lexer_.skip(1);
        return true;
      }
      const std::string_view word = lexer_.bare_word();
      if (!closer.empty() && word == closer) {
        lexer_.skip(word.size());
        return true;
      }
      if (!closer.empty() && text::is_one_of(word, kDividers)) {
        lexer_.skip(word.size());
        continue;
      }
      if (closer == "esac" && lexer_.sees(";;")) return false;
      read_one(commands);
    }
  }

  void read_one(std::vector<ShellCommand>& commands) {
    ShellCommand command;
    std::vector<std::string> outer = lexer_.exchange_assigned({});
    const std::string_view word = lexer_.bare_word();
    if (word == "!" || word == "time") {
      lexer_.skip(word.size());
      lexer_.skip_blanks();
      command.unsupported = "an unsupported command: " + base::quoted(word);
    }
    if (!read_compound(command)) read_simple(command);
    read_end(command);
    for (std::string& name : lexer_.exchange_assigned(std::move(outer))) {
      command.may_set.push_back(std::move(name));
    }
    commands.push_back(std::move(command));
  }

  void read_end(ShellCommand& command) {
    lexer_.skip_blanks();
    if (lexer_.at_end() || lexer_.here() == ')' || lexer_.sees(";;")) return;
    if (lexer_.sees("&&") || lexer_.sees("||")) {
      command.end = lexer_.rest().substr(0, 2);
      lexer_.skip(2);
    } else if (lexer_.here() == '|') {
      command.end = "|";
      lexer_.skip(lexer_.sees("|&") ? 2U : 1U);
    } else if (lexer_.here() == '&') {
      command.end = "&";
      lexer_.skip(1);
    } else {
      command.end = "\n";
      if (lexer_.here() == '\n') {
        lexer_.skip_line_end();
      } else if (lexer_.here() == ';') {
        lexer_.skip(1);
      } else {
        refuse_character(lexer_.here());
      }
    }
  }

  // Whether a compound command begins here.
  bool read_compound(ShellCommand& command) {
    if (lexer_.sees("((")) return read_arithmetic(command);
    constexpr std::array<std::string_view, 6> kKeywords = {"if",  "while",  "until",
                                                           "for", "select", "{"};
    const std::string_view word = lexer_.bare_word();
    const bool is_group = word.empty() && lexer_.here() == '(';
    if (!is_group && word != "case" && word != "function" && word != "coproc" &&
        !text::is_one_of(word, kKeywords)) {
      return false;
    }
    command.kind = ShellCommand::Kind::kCompound;
    command.keyword = is_group ? "(" : std::string(word);
    lexer_.skip(is_group ? std::size_t{1} : word.size());
    const ShellLexer::Level level(lexer_);
    if (word == "coproc") refuse_script("a command in the background: 'coproc'");
    if (word == "function") {
      lexer_.skip_blanks();
      read_function(command, std::string(lexer_.bare_word()));
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
    lexer_.skip_arithmetic();
    read_redirections(command);
    return true;
  }

  // Reads "NAME()" or "NAME", at the name, and the body.
  void read_function(ShellCommand& command, const std::string& name) {
    lexer_.skip(name.size());
    lexer_.skip_blanks();
    if (lexer_.here() == '(') {
      lexer_.skip(1);
      lexer_.skip_blanks();
      if (lexer_.here() != ')') refuse_script("parentheses");
      lexer_.skip(1);
    }
    lexer_.skip_lines();
    command.kind = ShellCommand::Kind::kCompound;
    ShellCommand body;
    if (!read_compound(body)) refuse_script("a function without a body");
    command.keyword = name + "()";
    command.inner = std::move(body.inner);
    command.variables.clear();
  }

  void read_loop_variable(ShellCommand& command) {
    lexer_.skip_blanks();
    if (lexer_.sees("((")) {
      lexer_.skip_arithmetic();
    } else {
      const std::string_view name = shell_name_at(lexer_.rest());
      if (name.empty()) refuse_script("a loop without a variable");
      command.may_set.emplace_back(name);
      lexer_.skip(name.size());
      lexer_.skip_blanks();
      if (lexer_.bare_word() == "in") {
        while (!lexer_.at_end() && !lexer_.sees_one_of(";\n")) {
          lexer_.read_word();
          lexer_.skip_blanks();
          if (lexer_.sees_one_of("()&|<>")) refuse_script("parentheses");
        }
      }
    }
    lexer_.skip_blanks();
    if (lexer_.sees(";")) lexer_.skip(1);
  }

  void read_case(ShellCommand& command) {
    lexer_.skip_blanks();
    lexer_.read_word();
    lexer_.skip_lines();
    if (lexer_.bare_word() != "in") refuse_script("a 'case' without 'in'");
    lexer_.skip(2);
    while (true) {
      lexer_.skip_lines();
      if (lexer_.bare_word() == "esac") {
        lexer_.skip(4);
        return;
      }
      if (lexer_.here() == '(') lexer_.skip(1);
      read_pattern();
      if (read_commands("esac", command.inner)) return;
      lexer_.skip(2);
      if (lexer_.here() == '&') lexer_.skip(1);
    }
  }

  // "a|b)"
  void read_pattern() {
    while (lexer_.here() != ')') {
      const std::size_t before = lexer_.position();
      if (lexer_.sees_one_of("| \t")) {
        lexer_.skip(1);
      } else {
        lexer_.read_word();
      }
      if (lexer_.position() == before) refuse_script("a pattern that is not closed");
    }
    lexer_.skip(1);
  }

  void read_redirections(ShellCommand& command) {
    lexer_.skip_blanks();
    while (read_redirection(command)) lexer_.skip_blanks();
  }

  // Reads one simple command, up to its terminator.
  void read_simple(ShellCommand& command) {
    if (lexer_.bare_word() == "[[") return read_test(command);
    const std::size_t start = lexer_.position();
    while (true) {
      lexer_.skip_blanks();
      if (lexer_.at_end() || (lexer_.sees_one_of("\n;&|)") && !lexer_.sees("&>"))) break;
      if (read_redirection(command)) continue;
      if (lexer_.here() == '(' && is_array(command)) {
        lexer_.skip_commands();
        command.words.back().literal = false;
        command.words.back().parts.clear();
        continue;
      }
      if (lexer_.here() == '(') {
        if (command.words.size() != 1 || !command.variables.empty()) refuse_script("parentheses");
        const ShellLexer::Level level(lexer_);
        const std::string name = command.words.front().value;
        lexer_.move_to(command.words.front().begin);
        command = {};
        return read_function(command, name);
      }
      ShellWord word = lexer_.read_word();
      const std::string_view source = source_of(word);
      const std::string_view name = assigned_name(source);
      if (command.words.empty() && !name.empty()) {
        if (lexer_.here() == '(' && source.ends_with('=')) {
          lexer_.skip_commands();
          command.variables.push_back({std::string(name), "", false});
        } else {
          command.variables.push_back(variable_of(name, word, lexer_.script()));
        }
        continue;
      }
      if (command.unsupported.empty()) command.unsupported = lexer_.unsupported();
      command.words.push_back(std::move(word));
    }
    if (lexer_.position() == start) refuse_character(lexer_.here());
    finish_simple(command, lexer_.script());
  }

  // Whether this is the parenthesis of "declare -a NAME=(…)".
  [[nodiscard]] bool is_array(const ShellCommand& command) const {
    return command.words.size() > 1 &&
           text::is_one_of(command.words.front().value, kDeclarations) &&
           command.words.back().end == lexer_.position() &&
           source_of(command.words.back()).ends_with('=');
  }

  // Reads "[[ … ]]", whose operators are not those of the shell.
  void read_test(ShellCommand& command) {
    ShellWord word;
    word.begin = lexer_.position();
    word.value = "[[";
    lexer_.skip(2);
    bool is_after_blank = false;
    while (!lexer_.at_end() && !(is_after_blank && lexer_.sees("]]"))) {
      is_after_blank = lexer_.sees_one_of(" \t");
      if (ends_shell_word(lexer_.here())) {
        lexer_.skip(1);
      } else {
        lexer_.read_word();
      }
    }
    if (lexer_.at_end()) refuse_script("a '[[' that is not closed");
    lexer_.skip(2);
    word.end = lexer_.position();
    command.words.push_back(std::move(word));
  }

  // Skips a redirection such as "2>&1" or ">log", which is not an argument. Returns false if the
  // next word is not a redirection.
  bool read_redirection(ShellCommand& command) {
    std::string_view from = lexer_.rest();
    while (!from.empty() && text::is_digit(from.front())) from.remove_prefix(1);
    if (lexer_.sees("&>")) from.remove_prefix(1);
    if (!from.starts_with('<') && !from.starts_with('>')) return false;
    // A process substitution is an argument, the name of a file.
    if (from.starts_with("<(") || from.starts_with(">(")) return false;
    command.redirects = true;
    lexer_.skip(lexer_.rest().size() - from.size() + 1);
    if (from.starts_with("<<") && !from.starts_with("<<<")) {
      lexer_.skip(1);
      lexer_.read_document();
      return true;
    }
    if (from.starts_with("<<<")) {
      lexer_.skip(2);
    } else if (lexer_.sees_one_of(">&|")) {
      lexer_.skip(1);
    }
    lexer_.skip_blanks();
    const ShellWord target = lexer_.read_word();
    if (target.begin == target.end) refuse_script("a redirection without a target");
    return true;
  }

  [[nodiscard]] std::string_view source_of(const ShellWord& word) const {
    return lexer_.script().substr(word.begin, word.end - word.begin);
  }

  ShellLexer lexer_;
};

}  // namespace

std::vector<ShellCommand> read_shell_commands(std::string_view script,
                                              const Environment& environment) {
  return Parser(script, environment).read();
}

}  // namespace fo::pod
