// The commands of a shell script, with what their words say and where they stand. Internal to
// shell_script.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/environment.h"
#include "pod/shell_script.h"

namespace fo::pod {

/// Why a script can't be read; its text is ShellScript's.
struct ShellRefusal {
  std::string reason;
};

struct ShellSource {
  std::string_view text;
  const Environment& environment;
};

struct ShellCommand {
  enum class Kind {
    kSimple,
    kCompound,  // a condition, a loop, a group, a function
  };
  Kind kind = Kind::kSimple;
  /// Of what is no simple command: "if", "(", "name()".
  std::string keyword;
  /// Without variables that are set before it and without exec.
  std::vector<ShellWord> words;
  bool is_exec = false;
  /// Those that it sets, for itself or for the rest of the script.
  std::vector<ShellVariable> variables;
  bool sets_for_the_rest = false;
  /// What it reads or writes is somewhere else.
  bool redirects = false;
  /// Others that have another value behind it, and whether any may: it runs another script.
  std::vector<std::string> may_set;
  bool may_set_any = false;
  /// Not "": what in it stands against changing its arguments.
  std::string oddity;
  /// What stands behind it: "&&", "||", "|", "&", "\n" for a line's end or ";", "" at the end.
  std::string end;
  /// Of a compound one: the simple ones in it, those of others in it too.
  std::vector<ShellCommand> inner;
};

/// Throws ShellRefusal.
std::vector<ShellCommand> read_shell_commands(const ShellSource& source);

/// Whether the character stands for itself in a script, also without quotes.
bool is_plain_in_shell(char c);
/// The name at the front of a text, "" where none is.
std::string_view shell_name_at(std::string_view text);

}  // namespace fo::pod
