// The private helper programs of this project: found relative to the running program, run to their
// end, with their output collected.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "os/process/process.h"

namespace fo::os {

/// Throws Error(kUnavailable) if the helper program `file` cannot be run.
void require_helper(const std::string& file);

/// The path of a private helper: $FO_LIBEXEC_DIR/name if that variable is set and not empty, else
/// ../libexec/fo/name relative to the running program's folder. Throws Error(kUnavailable) if it
/// cannot be run.
std::string find_sibling(std::string_view name);

struct Captured {
  WaitStatus status = 0;
  std::string out;
  std::string err;
};

/// Runs a program with an empty stdin, and keeps the first `max_output` bytes each of its stdout
/// and stderr. It dies with this process; processes that it left are not waited for. nullopt if it
/// was killed at `deadline`, or because `interrupt_fd` (if >= 0) became readable. Throws what
/// spawn() throws.
std::optional<Captured> run_captured(const std::vector<std::string>& argv,
                                     const base::Deadline& deadline, int interrupt_fd = -1,
                                     std::size_t max_output = std::size_t{64} * 1024);

/// Returns the error that the failed helper program `name` reported: `what` and the first line of
/// its stderr without "NAME: error: ", and its status if that is one of the table.
base::Error helper_error(const Captured& helper, std::string_view name,
                         const std::string& what = "");

}  // namespace fo::os
