// Replaces this program by another one. Only this file clears CLOEXEC.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fo::os {

/// Replaces this process by `argv` (searched in PATH). Signals are restored first
/// (restore_signals), and `keep_fds` lose CLOEXEC; the environment is kept. Never returns; throws
/// Error(kNotFound) or Error(kCannotRun) with "run 'argv[0]'".
[[noreturn]] void exec_command(const std::vector<std::string>& argv,
                               std::span<const int> keep_fds = {});

/// The value of an environment variable; empty if it is unset.
std::string variable(const char* name);
/// setenv(3), for the environment that exec_command and spawn pass on.
void set_environment(const std::string& name, const std::string& value);

}  // namespace fo::os
