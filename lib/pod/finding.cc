#include "pod/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

bool is_simple(std::string_view key) {
  return !key.empty() && key.size() <= 256 && std::all_of(key.begin(), key.end(), [](char c) {
    return text::is_letter_or_digit(c) || c == '-' || c == '_';
  });
}

// Whether a terminal only displays the character; ASCII is left to base::quoted, which escapes
// control characters.
bool is_shown(char32_t code) {
  const bool turns_text = code == 0x61c || code == 0x200e || code == 0x200f ||
                          (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return code < 0x80 || (yaml::is_printable(code) && !turns_text);
}

// The key in quotes, on one line, with escapes for characters that are not shown.
std::string quoted_key(std::string_view key) {
  // base::quoted cuts longer keys.
  constexpr std::size_t kMax = 257;
  key = key.substr(0, kMax);
  std::string shown;
  while (!key.empty()) {
    const yaml::Character character = yaml::first_character(key);
    const std::size_t size = std::max<std::size_t>(character.size, 1);
    if (character.size == 0 || is_shown(character.code)) {
      shown += key.substr(0, size);
    } else {
      shown += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character.code));
    }
    key.remove_prefix(size);
  }
  return base::quoted(shown);
}

}  // namespace

void add(Findings& findings, Finding finding) {
  if (findings.size() >= kMaxFindings &&
      (finding.severity == Severity::kWarning || has_error(findings))) {
    return;
  }
  findings.push_back(std::move(finding));
}

bool has_error(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kError; });
}

std::string member_path(std::string_view path, std::string_view key) {
  if (!is_simple(key)) return fmt::format("{}[{}]", path, quoted_key(key));
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::string item_path(std::string_view path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

std::string format(const Finding& finding, std::string_view file) {
  std::string line(file);
  if (finding.position.line > 0) {
    line += fmt::format(":{}:{}", finding.position.line, finding.position.column);
  }
  for (const std::string* part : {&finding.path, &finding.reason}) {
    if (!part->empty()) line += ": " + *part;
  }
  return finding.remedy.empty() ? line : line + "; " + finding.remedy;
}

}  // namespace fo::pod
