#include "cli/completion.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/help.h"

namespace fo::cli {
namespace {

constexpr const char* kName = "completion";
const std::vector<std::string> kShells{"bash", "zsh", "fish"};

// The words in CLI11's description of a check: "{auto,cuda,sim}", at the end of the type name.
std::vector<std::string> words_in(const std::string& type) {
  const std::size_t from = type.find(":{");
  const std::size_t to = type.find('}', from);
  if (from == std::string::npos || to == std::string::npos) return {};
  return CLI::detail::split(type.substr(from + 2, to - from - 2), ',');
}

CompletionValue value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string kind = type.substr(0, std::min(type.find(":{"), type.find(',')));
  CompletionValue value;
  value.words = words_in(type);
  value.is_list = type.substr(0, type.find(":{")).ends_with(",...");
  using Files = CompletionValue::Files;
  if (kind == "DIR") value.files = Files::kFolders;
  for (const char* const file : {"FILE", "PATH", "SOCKET", "DRIVER"}) {
    if (kind == file) value.files = Files::kAll;
  }
  return value;
}

CompletionCommand command_of(const CLI::App& app) {
  CompletionCommand command;
  command.name = app.get_name();
  command.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    // An option without a group is hidden; --help does not list it either.
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      command.arguments.push_back(value_of(*option));
      continue;
    }
    CompletionOption& known = command.options.emplace_back();
    for (const std::string& name : option->get_snames()) known.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) known.names.push_back("--" + name);
    known.description = option->get_description();
    if (option->get_items_expected_max() > 0) known.value = value_of(*option);
    known.is_value_optional = option->get_items_expected_min() == 0;
  }
  return command;
}

}  // namespace

CompletionModel completion_model(const CLI::App& app, const Tool& tool) {
  CompletionModel model;
  model.takes_command = tool.takes_command;
  model.tool = command_of(app);
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_group().empty()) model.subcommands.push_back(command_of(*sub));
  }
  // For a tool with arguments, "completion" may be one of these, so it is not offered.
  if (model.tool.arguments.empty()) {
    CompletionCommand& own = model.subcommands.emplace_back();
    own.name = kName;
    own.description = "print a script that completes command lines";
    own.arguments.push_back({.words = kShells});
  }
  return model;
}

std::optional<ParseResult> answer_completion(const CLI::App& app, const Tool& tool,
                                             const std::vector<std::string>& words) {
  if (words.empty() || words.front() != kName) return std::nullopt;
  if (words.size() == 2) {
    if (words[1] == "--help" || words[1] == "-h") {
      return ParseResult{ParseResult::Kind::kPrint,
                         "Usage: " + tool.name + " completion bash|zsh|fish\n" +
                             "Prints a script that completes command lines.\n"};
    }
    if (auto script = completion_script(completion_model(app, tool), words[1])) {
      return ParseResult{ParseResult::Kind::kPrint, std::move(*script)};
    }
  }
  // The words may be arguments of the tool, such as the names of files.
  if (!command_of(app).arguments.empty()) return std::nullopt;
  const std::string wrong = words.size() < 2 ? "" : " " + base::quoted(words.back());
  return ParseResult{ParseResult::Kind::kUsageError,
                     kName + wrong + ": expected bash, zsh or fish"};
}

}  // namespace fo::cli
