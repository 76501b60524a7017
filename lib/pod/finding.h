// A problem of an input: its position, its reason and its remedy.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::pod {

/// An error refuses the input; a warning is only reported.
enum class Severity { kError, kWarning };

struct Finding {
  Severity severity = Severity::kError;
  yaml::Position position;
  /// Path of the field: "spec.services.VllmWorker.failover.numShadows"; items of lists as
  /// "containers[1]".
  std::string path;
  /// The reason, after the value if there is one: "2: only one shadow is supported".
  std::string reason;
  /// The remedy: "leave it out, or set it to 1".
  std::string remedy;
};

using Findings = std::vector<Finding>;

/// The reason of findings about unknown fields.
inline constexpr std::string_view kUnknownField = "unknown field";

/// Maximum number of findings; after that, only a first error is still added.
inline constexpr std::size_t kMaxFindings = 1000;
void add(Findings& findings, Finding finding);

bool has_error(const Findings& findings);

/// PATH.KEY, or PATH['KEY'] if the key contains anything but letters, digits, "-" and "_".
std::string member_path(std::string_view path, std::string_view key);
/// PATH[INDEX].
std::string item_path(std::string_view path, std::size_t index);

/// "FILE:LINE:COLUMN: PATH: REASON; REMEDY".
std::string format(const Finding& finding, std::string_view file);

}  // namespace fo::pod
