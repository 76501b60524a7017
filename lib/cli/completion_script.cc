#include "cli/completion_script.h"

#include <fmt/format.h>

#include <algorithm>

namespace fo::cli {
namespace {

using Files = CompletionValue::Files;

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

// The name of the shell function: "gms-lock" becomes _gms_lock.
std::string function_name(const CompletionModel& model) {
  std::string name = "_" + model.tool.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string escaped(std::string_view text, std::string_view special, std::string_view before) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += before;
    out += c;
  }
  return out;
}

// Calls `each` for the tool itself, with an empty name, and for its subcommands.
template <typename Each>
void for_each_command(const CompletionModel& model, Each each) {
  each(std::string(), model.tool);
  for (const CompletionCommand& sub : model.subcommands) each(sub.name, sub);
}

std::vector<std::string> subcommand_names(const CompletionModel& model) {
  std::vector<std::string> names;
  for (const CompletionCommand& sub : model.subcommands) names.push_back(sub.name);
  return names;
}

// ---- bash ----

constexpr std::string_view kBashHead =
    R"(# Completes command lines of @TOOL@ in bash. Made by "@TOOL@ completion bash".
@NAME@() {
  local current=${COMP_WORDS[COMP_CWORD]-} command='' option='' kind='' words='' prefix='' word
  local -i i arguments=0 end=0
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ -n $option ]]; then
      # The value of the option before; '=' is a word of its own.
      if [[ $word != = ]]; then option=''; fi
      continue
    fi
    if ((end)); then arguments+=1 && continue; fi
    case $command/$word in
      */--) end=i ;;
@WALK@      */-* | */=) ;;
      *) arguments+=1 ;;
    esac
  done
  if [[ $current == = ]]; then current=''; fi
)";

constexpr std::string_view kBashCommand = R"(  if ((end)); then
    if ((COMP_CWORD == end + 1)); then
      mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
    return
  fi
)";

constexpr std::string_view kBashTail =
    R"(  if [[ $kind == *list* && $current == *,* ]]; then prefix=${current%,*},; fi
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "${current#"$prefix"}")
  fi
  if [[ $kind == *files* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
  elif [[ $kind == *folders* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current")
  fi
}
complete -o nosort -F @NAME@ @TOOL@
)";

// Sets `words` and `kind` for the possible values.
std::string bash_value(const CompletionValue& value) {
  std::string kind;
  if (value.is_list) kind += "list ";
  if (value.files == Files::kAll) kind += "files";
  if (value.files == Files::kFolders) kind += "folders";
  std::string text;
  if (!value.words.empty()) text += fmt::format(" words='{}'", joined(value.words, " "));
  if (!kind.empty()) text += fmt::format(" kind='{}'", kind);
  return text.empty() ? " :" : text;
}

// The cases of bash's loop over the words: the subcommands, and the options whose value is the next
// word.
std::string bash_walk(const CompletionModel& model) {
  std::string text;
  for (const std::string& name : subcommand_names(model)) {
    text += fmt::format("      /{0}) if ((!arguments)); then command={0}; fi ;;\n", name);
  }
  for_each_command(model, [&](const std::string& name, const CompletionCommand& command) {
    std::vector<std::string> patterns;
    for (const CompletionOption& option : command.options) {
      if (!option.value || option.is_value_optional) continue;
      for (const std::string& one : option.names) patterns.push_back(name + "/" + one);
    }
    if (patterns.empty()) return;
    text += fmt::format("      {}) option=$word ;;\n", joined(patterns, " | "));
  });
  return text;
}

std::string bash_options(const CompletionModel& model) {
  std::string text = "  case $command/$option in\n";
  for_each_command(model, [&](const std::string& name, const CompletionCommand& command) {
    for (const CompletionOption& option : command.options) {
      if (!option.value || option.is_value_optional) continue;
      std::vector<std::string> patterns;
      for (const std::string& one : option.names) patterns.push_back(name + "/" + one);
      text += fmt::format("    {}){} ;;\n", joined(patterns, " | "), bash_value(*option.value));
    }
  });
  text += "    *)\n      case $command/$end/$current in\n";
  for_each_command(model, [&](const std::string& name, const CompletionCommand& command) {
    std::vector<std::string> names;
    for (const CompletionOption& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
    text += fmt::format("        {}/0/-*) words='{}' ;;\n", name, joined(names, " "));
  });
  text += "        *)\n          case $command/$arguments in\n";
  for_each_command(model, [&](const std::string& name, const CompletionCommand& command) {
    if (name.empty() && command.arguments.empty()) {
      text += fmt::format("            /0) words='{}' ;;\n", joined(subcommand_names(model), " "));
    }
    for (std::size_t i = 0; i < command.arguments.size(); ++i) {
      text += fmt::format("            {}/{}){} ;;\n", name, i, bash_value(command.arguments[i]));
    }
  });
  return text + "          esac ;;\n      esac ;;\n  esac\n";
}

// ---- zsh ----

// A description for an _arguments specification, which is in single quotes.
std::string zsh_text(std::string_view text) {
  std::string out = escaped(text, "\\[]:", "\\");
  for (std::size_t at = 0; (at = out.find('\'', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "'\\''");
  }
  return out;
}

std::string zsh_action(const CompletionValue& value) {
  const std::string words = joined(value.words, " ");
  if (value.files == Files::kAll) {
    return words.empty()
               ? "_files"
               : fmt::format("_alternative words\\:word\\:\"({})\" files\\:file\\:_files", words);
  }
  if (value.files == Files::kFolders) return "_files -/";
  if (words.empty()) return " ";
  return value.is_list ? fmt::format("_sequence compadd - {}", words) : fmt::format("({})", words);
}

std::string zsh_options(const CompletionCommand& command) {
  std::string text;
  for (const CompletionOption& option : command.options) {
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      text += fmt::format("    '*{}", name);
      if (option.value) text += is_long ? (option.is_value_optional ? "=-" : "=") : "+";
      text += fmt::format("[{}]", zsh_text(option.description));
      if (option.value) {
        text += fmt::format("{}value:{}", option.is_value_optional ? "::" : ":",
                            zsh_action(*option.value));
      }
      text += "' \\\n";
    }
  }
  return text;
}

std::string zsh_arguments(const CompletionCommand& command) {
  std::string text = "  _arguments -s -S \\\n" + zsh_options(command);
  for (const CompletionValue& argument : command.arguments) {
    text += fmt::format("    ':argument:{}' \\\n", zsh_action(argument));
  }
  return text + "    && return\n";
}

constexpr std::string_view kZshCommand = R"(  # What follows the first "--" is a command.
  local -i dashes=${words[(i)--]}
  if ((dashes < CURRENT)); then
    shift $dashes words
    ((CURRENT -= dashes))
    _normal
    return
  fi
)";

std::string zsh_script(const CompletionModel& model) {
  const std::string& tool = model.tool.name;
  std::string text = fmt::format(
      "#compdef {0}\n# Completes command lines of {0} in zsh. Made by \"{0} completion zsh\".\n"
      "_{0}() {{\n  local context state state_descr line\n  typeset -A opt_args\n",
      tool);
  if (model.takes_command) text += kZshCommand;
  if (model.subcommands.empty()) {
    text += zsh_arguments(model.tool);
  } else {
    text += "  local -a commands=(\n";
    for (const CompletionCommand& sub : model.subcommands) {
      text += fmt::format("    '{}:{}'\n", sub.name, zsh_text(sub.description));
    }
    text += "  )\n  _arguments -s -S -C \\\n" + zsh_options(model.tool);
    text += "    '1: :->command' \\\n    '*:: :->arguments' && return\n";
    text += "  case $state in\n    command) _describe command commands ;;\n    arguments)\n";
    text += "      case $words[1] in\n";
    for (const CompletionCommand& sub : model.subcommands) {
      text += fmt::format("        {})\n{}          ;;\n", sub.name, zsh_arguments(sub));
    }
    text += "      esac\n      ;;\n  esac\n";
  }
  // The script is either loaded by its name from $fpath, or sourced.
  return text + fmt::format(
                    "}}\nif [[ ${{funcstack[1]-}} == _{0} ]]; then\n  _{0} \"$@\"\nelse\n"
                    "  compdef _{0} {0}\nfi\n",
                    tool);
}

// ---- fish ----

std::string fish_text(std::string_view text) { return escaped(text, "\\'", "\\"); }

std::string fish_value(const CompletionValue& value) {
  if (value.files == Files::kFolders) return " -x -a '(__fish_complete_directories)'";
  std::string text = value.files == Files::kAll ? " -r -F" : " -x";
  const std::string words = joined(value.words, " ");
  if (words.empty()) return text;
  return text + (value.is_list ? fmt::format(" -a '(__fish_append , {})'", words)
                               : fmt::format(" -a '{}'", words));
}

std::string fish_option(const CompletionOption& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.value && !option.is_value_optional) text += fish_value(*option.value);
  return text + fmt::format(" -d '{}'", fish_text(option.description));
}

constexpr std::string_view kFishCommand = R"(function @NAME@_command
  set -l words (commandline -opc)
  set -e words[1..(contains -i -- -- $words)]
  complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c @TOOL@ -n 'contains -- -- (commandline -opc)' -x -a '(@NAME@_command)'
)";

std::string fish_script(const CompletionModel& model) {
  const std::string& tool = model.tool.name;
  std::string text = fmt::format(
      "# Completes command lines of {0} in fish. Made by \"{0} completion fish\".\n"
      "complete -c {0} -f\n",
      tool);
  if (model.takes_command) text += kFishCommand;
  const auto start_of = [&](const std::string& command) {
    std::vector<std::string> conditions;
    if (model.takes_command) conditions.emplace_back("not contains -- -- (commandline -opc)");
    if (!command.empty()) {
      conditions.push_back("__fish_seen_subcommand_from " + command);
    } else if (!model.subcommands.empty()) {
      conditions.push_back("not __fish_seen_subcommand_from " +
                           joined(subcommand_names(model), " "));
    }
    const std::string start = "complete -c " + tool;
    return conditions.empty() ? start : start + " -n '" + joined(conditions, "; and ") + "'";
  };
  for_each_command(model, [&](const std::string& name, const CompletionCommand& command) {
    const std::string start = start_of(name);
    if (name.empty()) {
      for (const CompletionCommand& sub : model.subcommands) {
        text += fmt::format("{} -a {} -d '{}'\n", start, sub.name, fish_text(sub.description));
      }
    }
    for (const CompletionOption& option : command.options) {
      text += start + fish_option(option) + "\n";
    }
    for (const CompletionValue& argument : command.arguments) {
      // The leading -r or -x is removed, because it is for values of options.
      const std::string value = fish_value(argument).substr(3);
      if (!value.empty()) text += start + value + "\n";
    }
  });
  return text;
}

std::string filled(std::string_view text, const CompletionModel& model,
                   const std::string& walk = "") {
  std::string out(text);
  const std::pair<std::string, std::string> gaps[] = {
      {"@TOOL@", model.tool.name}, {"@NAME@", function_name(model)}, {"@WALK@", walk}};
  for (const auto& [gap, with] : gaps) {
    for (std::size_t at = 0; (at = out.find(gap, at)) != std::string::npos; at += with.size()) {
      out.replace(at, gap.size(), with);
    }
  }
  return out;
}

std::string bash_script(const CompletionModel& model) {
  std::string text = filled(kBashHead, model, bash_walk(model));
  if (model.takes_command) text += kBashCommand;
  return text + bash_options(model) + filled(kBashTail, model);
}

}  // namespace

std::optional<std::string> completion_script(const CompletionModel& model, std::string_view shell) {
  if (shell == "bash") return bash_script(model);
  if (shell == "zsh") return zsh_script(model);
  if (shell == "fish") return filled(fish_script(model), model);
  return std::nullopt;
}

}  // namespace fo::cli
