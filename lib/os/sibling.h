// The private helper programs of this project: found beside the running program, run to their end,
// what they print collected.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "os/process.h"

namespace fo::os {

/// The path of a private helper: $FO_LIBEXEC_DIR/name where that variable is set and not empty,
/// else ../libexec/fo/name as seen from the running program's folder. Throws Error(kUnavailable)
/// when nothing can be run there.
std::string find_sibling(std::string_view name);

struct Captured {
  WaitStatus status = 0;
  std::string out;
  std::string err;
};

/// Runs a program with nothing on stdin, and keeps the first 64 KiB of its stdout and its stderr
/// each. It dies with us; what it leaves behind is not waited for. nullopt when it was killed
/// because it still ran at `deadline`, or when `interrupt_fd` (where >= 0) became readable. Errors
/// of spawn().
std::optional<Captured> run_captured(const std::vector<std::string>& argv,
                                     const base::Deadline& deadline, int interrupt_fd = -1);

}  // namespace fo::os
