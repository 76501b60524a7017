// Parses a shell script into commands, lists and groups of them. Internal to shell_script.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_lexer.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

struct ShellCommand {
  enum class Kind {
    kSimple,
    kCompound,  // a condition, a loop, a group, a function
  };
  Kind kind = Kind::kSimple;
  /// The keyword of a compound command: "if", "(", "name()".
  std::string keyword;
  /// The words of a simple command, without leading assignments and without exec.
  std::vector<ShellWord> words;
  bool is_exec = false;
  /// The variables that it sets, for itself or for the rest of the script.
  std::vector<ShellVariable> variables;
  bool sets_for_the_rest = false;
  /// Whether it has a redirection.
  bool redirects = false;
  /// The variables whose values are unknown after the command. With `may_set_any` all are unknown,
  /// because it runs another script.
  std::vector<std::string> may_set;
  bool may_set_any = false;
  /// Why its arguments cannot be changed; "" if they can.
  std::string unsupported;
  /// Its terminator: "&&", "||", "|", "&", "\n" for a newline or ";", "" at the end.
  std::string end;
  /// All simple commands inside a compound command, including nested ones.
  std::vector<ShellCommand> inner;
};

/// The commands of a script. `environment` has the names that Kubernetes expands. Throws
/// ShellRefusal.
std::vector<ShellCommand> read_shell_commands(std::string_view script,
                                              const Environment& environment);

}  // namespace fo::pod
