#include "pod/shell/shell_expansion.h"

#include <algorithm>

#include "pod/shell/shell_word.h"

namespace fo::pod {
namespace {

class Expansion {
 public:
  Expansion(std::string_view source, const Environment& environment, const ShellValue& value)
      : rest_(source), environment_(environment), value_(value) {}

  std::optional<std::string> take() {
    while (!rest_.empty()) {
      if (!take_next() || result_.size() > kMaxExpandedBytes) return std::nullopt;
    }
    return std::move(result_);
  }

 private:
  enum class Quotes { kNone, kSingle, kDouble };

  // The take functions return whether the result is known.
  bool take_next() {
    const char c = rest_.front();
    if (quotes_ == Quotes::kSingle) {
      if (c == '\'') return set_quotes(Quotes::kNone);
      if (rest_.starts_with("$$")) return false;
      return rest_.starts_with("$(") ? take_kubernetes_variable() : take_character();
    }
    if (c == '"') return set_quotes(quotes_ == Quotes::kNone ? Quotes::kDouble : Quotes::kNone);
    if (c == '$') return take_dollar();
    if (c == '`') return false;
    if (c == '\\') return take_escape();
    if (quotes_ == Quotes::kDouble) return take_character();
    if (c == '\'') return set_quotes(Quotes::kSingle);
    // A pattern, a brace expansion, a home folder, a substitution.
    if (std::string_view("*?[{~<>()").find(c) != std::string_view::npos) return false;
    return take_character();
  }

  bool set_quotes(Quotes quotes) {
    quotes_ = quotes;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_character() {
    result_ += rest_.front();
    rest_.remove_prefix(1);
    return true;
  }

  bool take_escape() {
    if (rest_.size() < 2) return false;
    const char next = rest_[1];
    const bool escapes = quotes_ == Quotes::kNone ||
                         std::string_view("$`\"\\\n").find(next) != std::string_view::npos;
    if (!escapes) return take_character();
    rest_.remove_prefix(2);
    if (next != '\n') result_ += next;
    return true;
  }

  bool take_dollar() {
    if (rest_.starts_with("$(")) return take_kubernetes_variable();
    const bool has_braces = rest_.starts_with("${");
    const std::string_view name = shell_name_at(rest_.substr(has_braces ? 2 : 1));
    if (name.empty()) return false;
    std::string_view use;
    std::size_t size = 1 + name.size();
    if (has_braces) {
      const std::size_t end = rest_.find('}');
      if (end == std::string_view::npos) return false;
      use = rest_.substr(2 + name.size(), end - 2 - name.size());
      size = end + 1;
    }
    if (!use.empty() && !is_default(use)) return false;
    const std::string* const known = value_(name);
    if (known == nullptr) return false;
    rest_.remove_prefix(size);
    return put(known->empty() && !use.empty() ? use.substr(2) : std::string_view(*known));
  }

  // ":-plain"
  static bool is_default(std::string_view use) {
    return use.starts_with(":-") && std::all_of(use.begin() + 2, use.end(), is_plain_in_shell);
  }

  bool put(std::string_view text) {
    // Unquoted text may become several words, or none.
    if (quotes_ == Quotes::kNone &&
        (text.empty() || text.find_first_of(" \t\n*?[") != std::string_view::npos)) {
      return false;
    }
    result_ += text;
    return true;
  }

  // The shell parses the value as if it had been written in the script.
  bool take_kubernetes_variable() {
    const std::string_view name = kubernetes_variable_at(rest_);
    if (name.empty()) return quotes_ == Quotes::kSingle && take_character();
    if (!environment_.has(name)) {
      // Without a variable of this name it is literal in single quotes, and otherwise a command
      // substitution.
      return quotes_ == Quotes::kSingle && !environment_.may_have(name) && take_character();
    }
    const std::string* const known = environment_.value(name);
    if (known == nullptr) return false;
    const bool is_safe =
        quotes_ == Quotes::kSingle ? known->find('\'') == std::string::npos
        : quotes_ == Quotes::kDouble
            ? known->find_first_of("\"$`\\") == std::string::npos
            : !known->empty() && std::all_of(known->begin(), known->end(), is_plain_in_shell);
    if (!is_safe) return false;
    result_ += *known;
    rest_.remove_prefix(name.size() + 3);
    return true;
  }

  std::string_view rest_;
  const Environment& environment_;
  const ShellValue& value_;
  Quotes quotes_ = Quotes::kNone;
  std::string result_;
};

}  // namespace

std::optional<std::string> expand_shell_word(std::string_view source,
                                             const Environment& environment,
                                             const ShellValue& value) {
  return Expansion(source, environment, value).take();
}

}  // namespace fo::pod
