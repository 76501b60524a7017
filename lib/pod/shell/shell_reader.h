// The commands of a shell script, with what their words say and where they stand. Internal to
// shell_script.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

/// Why a script can't be read; its text is ShellScript's.
struct ShellRefusal {
  std::string reason;
};

struct ShellCommand {
  enum class Kind {
    kSimple,
    kCompound,  // a condition, a loop, a group, a function
  };
  Kind kind = Kind::kSimple;
  /// Of a compound command: "if", "(", "name()".
  std::string keyword;
  /// Without variables that are set before it and without exec.
  std::vector<ShellWord> words;
  bool is_exec = false;
  /// Those that it sets, for itself or for the rest of the script.
  std::vector<ShellVariable> variables;
  bool sets_for_the_rest = false;
  /// It has a redirection.
  bool redirects = false;
  /// Variables whose values are not known behind it; `may_set_any`: all, since it runs another
  /// script.
  std::vector<std::string> may_set;
  bool may_set_any = false;
  /// Why its arguments can't be changed; "" where they can.
  std::string unsupported;
  /// What stands behind it: "&&", "||", "|", "&", "\n" for a line's end or ";", "" at the end.
  std::string end;
  /// Of a compound one: the simple ones in it, those of others in it too.
  std::vector<ShellCommand> inner;
};

/// Throws ShellRefusal. `environment` tells for which names Kubernetes puts values in.
std::vector<ShellCommand> read_shell_commands(std::string_view script,
                                              const Environment& environment);

}  // namespace fo::pod
