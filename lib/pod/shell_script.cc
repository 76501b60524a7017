#include "pod/shell_script.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "pod/ascii.h"

namespace fo::pod {
namespace {

// What may stand before the engine: none of them starts anything that goes on running, and after
// none of them the next command means something else.
constexpr std::array<std::string_view, 13> kPreparations = {
    ".",     "source", "set",  "unset",  "export", "cd", "ulimit",
    "umask", "mkdir",  "echo", "printf", "sleep",  ":"};

// What is no plain command, and commands whose words the shell reads a second time or elsewhere.
constexpr std::array<std::string_view, 23> kReserved = {
    "if",   "then", "else",   "elif", "fi",      "for",     "while",  "until",
    "do",   "done", "case",   "esac", "{",       "}",       "select", "function",
    "time", "[[",   "coproc", "eval", "command", "builtin", "trap"};

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_name_start(char c) { return is_letter(c) || c == '_'; }
bool is_name_character(char c) { return is_name_start(c) || is_digit(c); }

std::string_view name_at(std::string_view text) {
  if (text.empty() || !is_name_start(text.front())) return {};
  const auto* const end = std::find_if_not(text.begin(), text.end(), is_name_character);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

// The name in "NAME=…", in which nothing is quoted; "" where that is no assignment.
std::string_view assigned_name(std::string_view source) {
  const std::string_view name = name_at(source);
  const std::string_view rest = source.substr(name.size());
  return rest.starts_with('=') || rest.starts_with("+=") ? name : std::string_view();
}

struct Refusal {
  std::string reason;
};

[[noreturn]] void refuse(std::string reason) { throw Refusal{std::move(reason)}; }

class Reader {
 public:
  Reader(std::string_view script, const std::function<bool(std::string_view)>& is_variable)
      : script_(script), is_variable_(is_variable) {}

  ShellScript read() {
    while (true) {
      skip_between_commands();
      if (at_end()) break;
      if (!script_read_.words.empty()) {
        refuse_more(script_read_.words.front());
      }
      read_command();
    }
    if (script_read_.words.empty()) refuse("no command in it");
    return std::move(script_read_);
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ == script_.size(); }
  [[nodiscard]] std::string_view rest() const { return script_.substr(at_); }
  [[nodiscard]] bool sees(std::string_view text) const { return rest().starts_with(text); }

  void skip_blanks() {
    while (!at_end()) {
      if (is_blank(script_[at_])) {
        ++at_;
      } else if (sees("\\\n")) {
        at_ += 2;
      } else if (script_[at_] == '#') {
        // At the start of a word, which is where this is called.
        at_ = std::min(script_.find('\n', at_), script_.size());
      } else {
        return;
      }
    }
  }

  void skip_between_commands() {
    skip_blanks();
    while (!at_end() && script_[at_] == '\n') {
      ++at_;
      skip_blanks();
    }
  }

  // One simple command and what ends it.
  void read_command() {
    std::vector<ShellWord> words;
    std::vector<ShellVariable> assigned;
    while (true) {
      skip_blanks();
      if (at_end() || script_[at_] == '\n' || script_[at_] == ';') break;
      if (sees("&&")) break;
      if (read_redirection()) continue;
      refuse_operator();
      const std::size_t begin = at_;
      ShellWord word = read_word();
      const std::string_view name = assigned_name(script_.substr(begin, at_ - begin));
      if (words.empty() && !name.empty()) {
        assigned.push_back(variable_of(name, word));
        continue;
      }
      if (words.empty()) check_first(word);
      words.push_back(std::move(word));
    }
    const std::string_view end = rest();
    if (end.starts_with(";;")) refuse("a ';;'");
    const bool joined = end.starts_with("&&");
    if (!end.empty()) at_ += joined ? 2U : 1U;
    take_command(std::move(words), std::move(assigned), joined);
  }

  static ShellVariable variable_of(std::string_view name, const ShellWord& word) {
    const std::string_view rest = std::string_view(word.value).substr(name.size());
    // What "+=" adds to is not known.
    if (!word.literal || !rest.starts_with('=')) return {std::string(name), "", false};
    return {std::string(name), std::string(rest.substr(1)), true};
  }

  void take_command(std::vector<ShellWord> words, std::vector<ShellVariable> assigned,
                    bool joined) {
    std::move(assigned.begin(), assigned.end(), std::back_inserter(script_read_.variables));
    if (!words.empty() && words.front().value == "exec") {
      words.erase(words.begin());
      if (words.empty()) refuse("an 'exec' of nothing");
      if (words.front().value.starts_with('-')) refuse("options of 'exec'");
    }
    if (words.empty()) return;
    if (!is_one_of(words.front().value, kPreparations)) {
      if (joined) refuse_more(words.front());
      script_read_.words = std::move(words);
      return;
    }
    if (words.front().value != "export") return;
    for (const ShellWord& word : words) {
      const std::string_view name =
          assigned_name(script_.substr(word.begin, word.end - word.begin));
      if (!name.empty()) script_read_.variables.push_back(variable_of(name, word));
    }
  }

  [[noreturn]] static void refuse_more(const ShellWord& first) {
    refuse("more than one command: something follows " + base::quoted(first.value));
  }

  void check_first(const ShellWord& word) const {
    const std::string_view source = script_.substr(word.begin, word.end - word.begin);
    if (source == "!" || is_one_of(source, kReserved)) {
      refuse("more than plain commands: " + base::quoted(source));
    }
    if (!word.literal) refuse("a command whose name is a variable");
  }

  // Of "2>&1", ">log": what is sent where does not matter, only that it is no argument.
  bool read_redirection() {
    std::size_t at = at_;
    while (at < script_.size() && is_digit(script_[at])) ++at;
    if (at == at_ && sees("&>")) ++at;
    if (at == script_.size() || (script_[at] != '<' && script_[at] != '>')) return false;
    const std::string_view from = script_.substr(at);
    if (from.starts_with("<<")) refuse("a here-document");
    if (from.starts_with("<(") || from.starts_with(">(")) refuse("a process substitution");
    at_ = at + 1;
    if (!at_end() && (sees(">") || sees("&") || sees("|"))) ++at_;
    skip_blanks();
    if (at_end() || sees("\n")) refuse("a redirection to nowhere");
    refuse_operator();
    read_word();
    return true;
  }

  void refuse_operator() const {
    switch (script_[at_]) {
      case '|':
        refuse(sees("||") ? "an alternative: '||'" : "a pipe");
      case '&':
        refuse("a command in the background: '&'");
      case '(':
      case ')':
        refuse("parentheses");
      default:
        return;
    }
  }

  ShellWord read_word() {
    ShellWord word;
    word.begin = at_;
    bool brace = false;
    while (!at_end()) {
      const char c = script_[at_];
      if (is_blank(c) || std::string_view("\n;&|<>()").find(c) != std::string_view::npos) break;
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
        refuse("a command substitution");
      } else {
        // What a pattern, a brace expansion or a '~' becomes is not known here.
        brace = brace || c == '{';
        if (c == '*' || c == '?' || c == '[' || (c == '~' && at_ == word.begin) ||
            (brace && (c == ',' || sees("..")))) {
          word.literal = false;
        }
        word.value += c;
        ++at_;
      }
    }
    if (!at_end() && script_[at_] == '(') refuse("parentheses");
    word.end = at_;
    return word;
  }

  void read_single_quotes(ShellWord& word) {
    const std::size_t end = script_.find('\'', at_ + 1);
    if (end == std::string_view::npos) refuse("a quote that is not closed");
    const std::string_view inner = script_.substr(at_ + 1, end - at_ - 1);
    // Kubernetes does not know of quotes.
    if (inner.find("$$") != std::string_view::npos || has_kubernetes_variable(inner)) {
      word.literal = false;
    }
    word.value += inner;
    at_ = end + 1;
  }

  [[nodiscard]] bool has_kubernetes_variable(std::string_view text) const {
    // Looked for further, a text of "$(" alone takes quadratic time.
    constexpr std::size_t kLongestName = 1024;
    const std::size_t last = text.rfind(')');
    if (last == std::string_view::npos) return false;
    for (std::size_t at = 0; (at = text.find("$(", at)) < last; at += 2) {
      const std::string_view behind = text.substr(at + 2, kLongestName + 1);
      const std::size_t size = behind.find(')');
      if (size == std::string_view::npos || is_variable_(behind.substr(0, size))) return true;
    }
    return false;
  }

  void read_double_quotes(ShellWord& word) {
    ++at_;
    while (true) {
      if (at_end()) refuse("a quote that is not closed");
      const char c = script_[at_];
      if (c == '"') break;
      if (c == '`') refuse("a command substitution");
      if (c == '$') {
        read_dollar(word, true);
        continue;
      }
      if (c == '\\' && at_ + 1 < script_.size() &&
          std::string_view("$`\"\\\n").find(script_[at_ + 1]) != std::string_view::npos) {
        if (script_[at_ + 1] != '\n') word.value += script_[at_ + 1];
        at_ += 2;
        continue;
      }
      word.value += c;
      ++at_;
    }
    ++at_;
  }

  void read_escape(ShellWord& word) {
    if (at_ + 1 == script_.size()) refuse("a '\\' at the end");
    if (script_[at_ + 1] != '\n') word.value += script_[at_ + 1];
    at_ += 2;
  }

  // `quoted`: within double quotes.
  void read_dollar(ShellWord& word, bool quoted) {
    const std::size_t begin = at_++;
    if (at_end() || is_blank(script_[at_]) || sees("\n") || (quoted && sees("\""))) {
      word.value += '$';
      return;
    }
    word.literal = false;
    if (sees("(")) {
      const std::size_t end = script_.find(')', at_);
      const std::string_view name =
          end == std::string_view::npos ? "" : script_.substr(at_ + 1, end - at_ - 1);
      if (name.empty() || !is_variable_(name)) refuse("a command substitution");
      at_ = end + 1;
    } else if (sees("{")) {
      read_braces();
    } else if (const std::string_view name = name_at(rest()); !name.empty()) {
      at_ += name.size();
    } else {
      refuse_special();
    }
    word.value += script_.substr(begin, at_ - begin);
  }

  // "${NAME}" and "${NAME:-plain}".
  void read_braces() {
    const std::size_t end = script_.find('}', at_);
    const std::string_view inner =
        end == std::string_view::npos ? "" : script_.substr(at_ + 1, end - at_ - 1);
    const std::string_view name = name_at(inner);
    if (name.empty()) refuse("a variable that is no plain one");
    const std::string_view use = inner.substr(name.size());
    if (use.find_first_of("$`'\"\\{ \t\n(") != std::string_view::npos) {
      refuse("a variable that is no plain one");
    }
    at_ = end + 1;
  }

  [[noreturn]] void refuse_special() const {
    if (sees("@") || sees("*") || is_digit(script_[at_])) {
      refuse("arguments from behind the script: '$" + std::string(1, script_[at_]) + "'");
    }
    refuse("a '$" + std::string(1, script_[at_]) + "'");
  }

  std::string_view script_;
  const std::function<bool(std::string_view)>& is_variable_;
  std::size_t at_ = 0;
  ShellScript script_read_;
};

}  // namespace

ShellScript read_shell_script(std::string_view script,
                              const std::function<bool(std::string_view)>& is_variable) {
  try {
    return Reader(script, is_variable).read();
  } catch (const Refusal& refusal) {
    ShellScript refused;
    refused.refusal = refusal.reason;
    return refused;
  }
}

std::string shell_word(std::string_view text) {
  const auto is_safe = [](char c) {
    return is_name_character(c) || std::string_view("%+,-./:=@").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_safe)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace fo::pod
