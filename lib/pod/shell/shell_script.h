// Parses a shell script that prepares and runs an engine, so that the engine's arguments can be
// changed. It is not a shell: ambiguous constructs are refused.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

struct ShellScript {
  /// The words of the engine's command, without leading assignments and without exec.
  std::vector<ShellWord> words;
  /// Every variable that the script sets, for the command or before it.
  std::vector<ShellVariable> variables;
  /// If not empty, why the script is not supported: "a pipe". Then the rest is empty.
  std::string refusal;
};

/// Whether a command with these words runs an engine.
using IsEngine = std::function<bool(const std::vector<std::string>&)>;

/// The last command of the script must be the engine: `is_engine` recognises it, or it replaces the
/// shell (exec), or only preparations precede it (assignments, set, export, cd and others that
/// leave no running process). Other commands may precede it, also in conditions, loops and
/// functions, and its output may go to a filter such as tee. A second engine, a background command,
/// and commands after the engine are refused. `environment` tells which $(NAME) Kubernetes expands
/// before the shell reads the script, and has the values of variables that the script does not set.
ShellScript read_shell_script(std::string_view script, const Environment& environment,
                              const IsEngine& is_engine);

}  // namespace fo::pod
