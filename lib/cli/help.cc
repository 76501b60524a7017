#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cli/config/settings.h"
#include "cli/config/variables.h"

namespace fo::cli {
namespace {

constexpr std::size_t kNamesColumns = 32;
constexpr std::size_t kColumns = 110;
constexpr std::ptrdiff_t kLines = 52;

// --quiet, --print-config and --version share a line with the option before them.
const char* companion_of(const CLI::Option& option) {
  if (option.check_lname("verbose")) return ", -q,--quiet";
  return option.check_lname("help") ? ", --version" : "";
}

bool is_companion(const CLI::Option& option) {
  return option.check_lname("quiet") || option.check_lname("print-config") ||
         option.check_lname("version");
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(Tool tool) : tool_(std::move(tool)) { column_width(kNamesColumns); }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    text.erase(text.find_last_not_of('\n') + 1);
    text += '\n';
    text = CLI::detail::find_and_replace(std::move(text), "\n\n\n", "\n\n");  // between groups
    // Blank lines are removed if the text does not fit the screen.
    if (std::count(text.begin(), text.end(), '\n') > kLines) {
      text = CLI::detail::find_and_replace(std::move(text), "\n\n", "\n");
    }
    return text;
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    // CLI11 does not know the command after "--" and the completion.
    usage.erase(usage.find_last_not_of('\n') + 1);
    if (takes_command(*app, tool_)) usage += " [-- COMMAND [ARG]...]";
    if (app->get_parent() == nullptr) {
      usage += "\n   or: " + tool_.name + " completion bash|zsh|fish";
    }
    return usage + "\n";
  }

  // An option without a description shares the line and the description of the one before it.
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    for (std::size_t i = 1; i < options.size(); ++i) {
      if (!options[i]->get_description().empty()) continue;
      companions_[options[i - 1]] = ", " + options[i]->get_name();
      options.erase(options.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return is_companion(*option) ? "" : CLI::Formatter::make_option(option, is_positional);
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const auto companion = companions_.find(option);
    return CLI::Formatter::make_option_name(option, is_positional) + companion_of(*option) +
           (companion == companions_.end() ? "" : companion->second);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_positional()) return "";
    // The text that validators add is removed: error messages name the range, and the description
    // the words.
    const std::string type = option->get_type_name();
    return " " + type.substr(0, std::min(type.find(":INT in ["), type.find(":{"))) +
           (option->check_lname("config") ? ", --print-config" : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    if (option->check_lname("verbose")) return "log more on stderr (twice: debug), or only errors";
    if (option->check_lname("config"))
      return "read options from a TOML or JSON file, or print their values";
    if (option->check_lname("help")) return "print this help, or the version, and exit";
    std::string notes;
    if (option->get_required()) notes = "required";
    const std::string value = option->get_type_size() == 0 ? "" : option->get_default_str();
    if (!value.empty()) notes = "default: " + value;
    if (!option->get_envname().empty()) {
      notes += (notes.empty() ? "env: " : ", env: ") + option->get_envname();
    }
    std::string text = option->get_description();
    if (notes.empty()) return text;
    // Inserted into the parentheses at the end of the description.
    const bool continues = text.ends_with(')');
    if (continues) text.pop_back();
    return text + (continues ? ", " : " (") + notes + ")";
  }

  std::string make_footer(const CLI::App* app) const override {
    std::string text;
    std::string line = "Environment:";
    std::vector<std::string> names = variables_of(*app);
    if (runs_itself(*app)) names.insert(names.begin(), option_variable(tool_.name, "*"));
    for (const std::string& name : names) {
      if (line.size() + name.size() + 2 > kColumns) {
        text += line + "\n";
        line = " ";
      }
      line += " " + name;
    }
    return line == "Environment:" ? "" : text + line + "\n";
  }

 private:
  const Tool tool_;
  // The names that share an option's line. make_group() sets them.
  mutable std::map<const CLI::Option*, std::string> companions_;
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter(const Tool& tool) {
  return std::make_shared<HelpFormatter>(tool);
}

bool runs_itself(const CLI::App& app) {
  return app.get_subcommands({}).empty() || app.get_require_subcommand_min() == 0;
}

bool takes_command(const CLI::App& app, const Tool& tool) {
  const auto& without = tool.without_command;
  return tool.takes_command && runs_itself(app) &&
         std::find(without.begin(), without.end(), app.get_name()) == without.end();
}

}  // namespace fo::cli
