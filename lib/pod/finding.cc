#include "pod/finding.h"

#include <fmt/format.h>

#include <algorithm>

namespace fo::pod {

bool has_error(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.severity == Severity::kError; });
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
