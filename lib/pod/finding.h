// What is wrong with an input, where, and what to do about it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::pod {

/// An error is refused; a warning is said and passed on.
enum class Severity { kError, kWarning };

struct Finding {
  Severity severity = Severity::kError;
  yaml::Position position;
  /// Of the field: "spec.services.VllmWorker.failover.numShadows", lists as "containers[1]".
  std::string path;
  /// "2: one shadow is all that is built": the reason, the value in front where there is one.
  std::string reason;
  /// What to do: "leave it out, or say 1".
  std::string remedy;
};

using Findings = std::vector<Finding>;

/// The reason of those that are about a field that nobody knows.
inline constexpr std::string_view kUnknownField = "unknown field";

/// As many findings as anyone reads: past them, only a first error is still added.
inline constexpr std::size_t kMaxFindings = 1000;
void add(Findings& findings, Finding finding);

bool has_error(const Findings& findings);

/// PATH.KEY, with a key that is more than letters, digits, "-" and "_" as PATH['KEY'].
std::string member_path(std::string_view path, std::string_view key);
/// PATH[INDEX].
std::string item_path(std::string_view path, std::size_t index);

/// "FILE:LINE:COLUMN: PATH: REASON; REMEDY".
std::string format(const Finding& finding, std::string_view file);

}  // namespace fo::pod
