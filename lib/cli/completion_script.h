// Scripts that complete a tool's command line in bash, zsh and fish. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::cli {

/// What may be typed for an option or an argument.
struct CompletionValue {
  enum class Files { kNone, kFolders, kAll };
  /// The words that are known; more of them after commas if it is a list.
  std::vector<std::string> words;
  bool is_list = false;
  Files files = Files::kNone;
};

struct CompletionOption {
  /// With their dashes.
  std::vector<std::string> names;
  std::string description;
  /// nullopt: none.
  std::optional<CompletionValue> value;
  /// Only after '=', or as a word that nothing is known of.
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
  /// What follows "--" is a command.
  bool takes_command = false;
};

/// "bash", "zsh" or "fish"; nullopt for any other shell.
std::optional<std::string> completion_script(const CompletionModel& model, std::string_view shell);

}  // namespace fo::cli
