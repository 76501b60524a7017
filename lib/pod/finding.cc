#include "pod/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fo::pod {
namespace {

bool is_simple(std::string_view key) {
  return !key.empty() && key.size() <= 256 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

}  // namespace

void add(Findings& findings, Finding finding) {
  if (findings.size() >= kMostFindings &&
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
  if (!is_simple(key)) return fmt::format("{}[{}]", path, base::quoted(key));
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
