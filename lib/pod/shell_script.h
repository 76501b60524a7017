// A shell script that prepares and then runs one command, taken apart so far that this command's
// arguments can be changed. No shell: what could mean anything else than it seems to is refused.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::pod {

struct ShellWord {
  /// Its bytes in the script: from `begin` to before `end`.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// What the shell makes of it; of one that is not literal, what is known of it.
  std::string value;
  /// No variable, pattern or brace expansion is in it: it is one word, `value`.
  bool literal = true;
  /// It has a variable that is not quoted, which may become several words.
  bool splits = false;
};

struct ShellVariable {
  std::string name;
  /// Of a literal one.
  std::string value;
  /// What it is set to is known.
  bool literal = true;
};

struct ShellScript {
  /// Of the command at the end, without variables that are set before it and without exec.
  std::vector<ShellWord> words;
  /// Every variable that the script sets, for the command or before it.
  std::vector<ShellVariable> variables;
  /// Not "": why this is no such script: "a pipe". The rest is empty then.
  std::string refusal;
};

/// A script of this kind is lines of comments, assignments, and set, export, cd, source and a few
/// others that start nothing that goes on running, followed by one simple command, its redirections
/// included. `is_variable` tells for which names Kubernetes puts a value in place of $(NAME) before
/// the shell sees the script; any other $(…) is refused.
ShellScript read_shell_script(std::string_view script,
                              const std::function<bool(std::string_view)>& is_variable);

/// The text as one word of a script, in single quotes where it needs any.
std::string shell_word(std::string_view text);

}  // namespace fo::pod
