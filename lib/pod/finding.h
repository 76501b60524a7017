// What is wrong with an input, where, and what to do about it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/node.h"

namespace fo::pod {

/// An error is refused; a warning is said and passed on.
enum class Severity { kError, kWarning };

struct Finding {
  Severity severity = Severity::kError;
  Position position;
  /// Of the field: "spec.services.VllmWorker.failover.numShadows", lists as "containers[1]".
  std::string path;
  /// "2: one shadow is all that is built": the reason, the value in front where there is one.
  std::string reason;
  /// What to do: "leave it out, or say 1".
  std::string remedy;
};

using Findings = std::vector<Finding>;

bool has_error(const Findings& findings);

/// "FILE:LINE:COLUMN: PATH: REASON; REMEDY".
std::string format(const Finding& finding, std::string_view file);

}  // namespace fo::pod
