#include "pod/shell/shell_expansion.h"

#include <algorithm>

namespace fo::pod {
namespace {

using Quotes = ShellPart::Quotes;

// Whether the text stays as it is. Unquoted text may become several words, or none.
bool is_one_word(std::string_view text, Quotes quotes) {
  return quotes != Quotes::kNone ||
         (!text.empty() && text.find_first_of(" \t\n*?[") == std::string_view::npos);
}

// Whether the text means itself where Kubernetes writes it into a script.
bool is_safe(std::string_view text, Quotes quotes) {
  switch (quotes) {
    case Quotes::kSingle:
      return text.find('\'') == std::string_view::npos;
    case Quotes::kDouble:
      return text.find_first_of("\"$`\\") == std::string_view::npos;
    case Quotes::kNone:
      break;
  }
  return !text.empty() && std::all_of(text.begin(), text.end(), is_plain_in_shell);
}

// The expansion of a part; nullopt if it is unknown, may be several words or none, or has
// characters that the shell would interpret.
std::optional<std::string_view> expansion_of(const ShellPart& part, const Environment& environment,
                                             const ShellValue& value) {
  switch (part.kind) {
    case ShellPart::Kind::kText:
      return part.text;
    case ShellPart::Kind::kKubernetes: {
      const std::string* const known = environment.value(part.text);
      if (known == nullptr || !is_safe(*known, part.quotes)) return std::nullopt;
      return *known;
    }
    case ShellPart::Kind::kVariable: {
      const std::string_view name = shell_name_at(part.text);
      const std::string* const known = value(name);
      if (known == nullptr) return std::nullopt;
      std::string_view text = *known;
      // The default value is after ":-".
      if (text.empty() && name.size() < part.text.size()) {
        text = std::string_view(part.text).substr(name.size() + 2);
      }
      if (!is_one_word(text, part.quotes)) return std::nullopt;
      return text;
    }
    case ShellPart::Kind::kUnknown:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> expand_shell_word(const std::vector<ShellPart>& parts,
                                             const Environment& environment,
                                             const ShellValue& value) {
  std::string result;
  for (const ShellPart& part : parts) {
    const std::optional<std::string_view> text = expansion_of(part, environment, value);
    if (!text || result.size() + text->size() > kMaxExpandedBytes) return std::nullopt;
    result += *text;
  }
  return result;
}

}  // namespace fo::pod
