// A shell script that prepares and then runs an engine, taken apart so far that the engine's
// arguments can be changed. No shell: what could mean anything else than it seems to is refused.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

struct ShellScript {
  /// Of the engine's command, without variables that are set before it and without exec.
  std::vector<ShellWord> words;
  /// Every variable that the script sets, for the command or before it.
  std::vector<ShellVariable> variables;
  /// Not "": why this is no such script: "a pipe". The rest is empty then.
  std::string refusal;
};

/// Whether a command of these words runs an engine.
using IsEngine = std::function<bool(const std::vector<std::string>&)>;

/// A script whose last command is the engine: the one that `is_engine` knows, or that takes the
/// place of the shell (exec), or before which only preparations stand (assignments, set, export, cd
/// and others that start nothing that goes on running). Other commands may stand before it, also in
/// conditions, loops and functions, and a filter of its output, such as tee, behind it. Refused are
/// another engine anywhere, a command in the background, and what comes behind the engine.
/// `environment` tells for which names Kubernetes puts a value in place of $(NAME) before the shell
/// sees the script, and what variables say that the script does not set.
ShellScript read_shell_script(std::string_view script, const Environment& environment,
                              const IsEngine& is_engine);

}  // namespace fo::pod
