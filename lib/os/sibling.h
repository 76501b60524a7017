// The private helper programs of this project: found relative to the running program, run to their
// end, with their output collected.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "os/process.h"

namespace fo::os {

/// The path of a private helper: $FO_LIBEXEC_DIR/name if that variable is set and not empty, else
/// ../libexec/fo/name relative to the running program's folder. Throws Error(kUnavailable) if it
/// cannot be run.
std::string find_sibling(std::string_view name);

struct Captured {
  WaitStatus status = 0;
  std::string out;
  std::string err;
};

/// Runs a program with an empty stdin, and keeps the first 64 KiB each of its stdout and stderr. It
/// dies with this process; processes that it left are not waited for. nullopt if it was killed at
/// `deadline`, or because `interrupt_fd` (if >= 0) became readable. Throws what spawn() throws.
std::optional<Captured> run_captured(const std::vector<std::string>& argv,
                                     const base::Deadline& deadline, int interrupt_fd = -1);

}  // namespace fo::os
