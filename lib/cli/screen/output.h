// Writes to stdout, which is for results only. A full or closed stdout is an error, detected at the
// latest by finish_output, which the run wrapper calls.
#pragma once

#include <string_view>

namespace fo::cli {

/// Writes `text` as it is. Throws Error(kIoError).
void print(std::string_view text);

/// Writes `text` and a newline, and flushes: for results that another process waits for.
void print_line(std::string_view text);

/// Flushes and checks stdout. Throws Error(kIoError): "write to standard output: reason".
void finish_output();

}  // namespace fo::cli
