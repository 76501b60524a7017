// Scripts that complete a tool's command line in bash, zsh and fish. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::cli {

/// The possible values of an option or an argument.
struct CompletionValue {
  enum class Files { kNone, kFolders, kAll };
  /// The known words; for a list, separated by commas.
  std::vector<std::string> words;
  bool is_list = false;
  Files files = Files::kNone;
};

struct CompletionOption {
  /// The names, including their dashes.
  std::vector<std::string> names;
  std::string description;
  /// nullopt: the option takes no value.
  std::optional<CompletionValue> value;
  /// A value is accepted after '=', or as the next word if that is not a known one.
  bool is_value_optional = false;
};

/// The tool itself, or a subcommand.
struct CompletionCommand {
  std::string name;
  std::string description;
  std::vector<CompletionOption> options;
  std::vector<CompletionValue> arguments;
};

struct CompletionModel {
  CompletionCommand tool;
  std::vector<CompletionCommand> subcommands;
  /// The words after "--" are a command.
  bool takes_command = false;
};

/// "bash", "zsh" or "fish"; nullopt for any other shell.
std::optional<std::string> completion_script(const CompletionModel& model, std::string_view shell);

}  // namespace fo::cli
