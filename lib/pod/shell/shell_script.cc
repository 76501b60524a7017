#include "pod/shell/shell_script.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "pod/shell/shell_expansion.h"
#include "pod/shell/shell_lexer.h"
#include "pod/shell/shell_parser.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

// Commands that may precede an unknown program: none of them leaves a running process, and none
// changes the meaning of the next command.
constexpr std::array<std::string_view, 14> kPreparations = {
    ".",     "source", "set",  "unset",  "export", "cd",   "ulimit",
    "umask", "mkdir",  "echo", "printf", "sleep",  "true", ":"};

// Commands that only forward or store the engine's output.
constexpr std::array<std::string_view, 8> kFilters = {"tee", "cat", "grep",   "sed",
                                                      "awk", "ts",  "logger", "stdbuf"};

// Commands that evaluate their words again, or run them in another way.
constexpr std::array<std::string_view, 5> kReaders = {"eval", "command", "builtin", "trap", "[["};

// Commands whose arguments only look like a command.
constexpr std::array<std::string_view, 4> kPrinters = {"echo", "printf", "grep", "pkill"};

bool is_preparation(const ShellCommand& command) {
  return command.kind == ShellCommand::Kind::kSimple && !command.is_exec &&
         (command.words.empty() || text::is_one_of(command.words.front().value, kPreparations));
}

std::string name_of(const ShellCommand& command) {
  if (command.kind != ShellCommand::Kind::kSimple) return command.keyword;
  return command.words.empty() ? "exec" : command.words.front().value;
}

class Judge {
 public:
  explicit Judge(const IsEngine& is_engine) : is_engine_(is_engine) {}

  // The index of the engine in a script's commands.
  [[nodiscard]] std::size_t engine_of(const std::vector<ShellCommand>& commands) const {
    check_inner(commands);
    if (std::all_of(commands.begin(), commands.end(), is_preparation))
      refuse_script("no command in it");
    const std::size_t head = head_of(commands);
    const ShellCommand& engine = commands[head];
    for (std::size_t i = 0; i < head; ++i) {
      if (commands[i].end == "&") refuse_script("a command in the background: '&'");
      if (runs_engine(commands[i])) refuse_more(commands[i]);
    }
    if (engine.kind != ShellCommand::Kind::kSimple) {
      refuse_script("an unsupported command: " + base::quoted(engine.keyword));
    }
    if (head > 0 && commands[head - 1].end == "||") refuse_script("an alternative: '||'");
    if (!runs_engine(engine) && !engine.is_exec) check_preparations(commands, head);
    if (engine.words.empty()) refuse_script("an 'exec' without a command");
    if (text::is_one_of(engine.words.front().value, kReaders)) {
      refuse_script("an unsupported command: " + base::quoted(engine.words.front().value));
    }
    if (engine.words.front().value.starts_with('-')) refuse_script("options of 'exec'");
    if (!engine.words.front().literal && !runs_engine(engine)) {
      refuse_script("a command whose name is a variable");
    }
    return head;
  }

 private:
  [[nodiscard]] bool runs_engine(const ShellCommand& command) const {
    if (command.kind != ShellCommand::Kind::kSimple || command.words.empty() ||
        text::is_one_of(command.words.front().value, kPrinters)) {
      return false;
    }
    std::vector<std::string> words;
    for (const ShellWord& word : command.words) words.push_back(word.value);
    return is_engine_(words);
  }

  // The index of the first command of the last pipeline, whose other commands must be filters.
  [[nodiscard]] std::size_t head_of(const std::vector<ShellCommand>& commands) const {
    const std::size_t last = commands.size() - 1;
    std::size_t head = last;
    while (head > 0 && commands[head - 1].end == "|") --head;
    const bool is_tail_known = std::all_of(
        commands.begin() + static_cast<std::ptrdiff_t>(head) + 1, commands.end(),
        [](const ShellCommand& command) {
          return command.kind == ShellCommand::Kind::kSimple && !command.words.empty() &&
                 text::is_one_of(command.words.front().value, kFilters);
        });
    if (commands[last].end == "&") refuse_script("a command in the background: '&'");
    if (!is_tail_known) refuse_script("a pipe");
    return head;
  }

  // Checks the commands in conditions, loops and functions.
  void check_inner(const std::vector<ShellCommand>& commands) const {
    for (const ShellCommand& command : commands) {
      for (const ShellCommand& inner : command.inner) {
        if (runs_engine(inner)) {
          refuse_script("an unsupported command: " + base::quoted(name_of(inner)) + " within " +
                        base::quoted(command.keyword));
        }
      }
    }
  }

  static void check_preparations(const std::vector<ShellCommand>& commands, std::size_t head) {
    for (std::size_t i = 0; i < head; ++i) {
      const ShellCommand& command = commands[i];
      if (command.kind != ShellCommand::Kind::kSimple) {
        refuse_script("an unsupported command: " + base::quoted(command.keyword));
      }
      if (!is_preparation(command)) refuse_more(command);
      if (command.end == "||") refuse_script("an alternative: '||'");
      if (command.end == "|") refuse_script("a pipe");
    }
  }

  [[noreturn]] static void refuse_more(const ShellCommand& first) {
    refuse_script("more than one command: something follows " + base::quoted(name_of(first)));
  }

  const IsEngine& is_engine_;
};

// The script's own variables at its end, combined with the environment.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  void take(const ShellCommand& command, bool is_certain) {
    for (const ShellVariable& one : command.variables) {
      // A variable that is set twice, conditionally, or for one command only has an unknown value.
      const bool is_first = !own_.contains(one.name);
      std::optional<std::string> value;
      if (is_certain && is_first && one.literal && command.sets_for_the_rest) value = one.value;
      own_.insert_or_assign(one.name, std::move(value));
    }
    forget(command);
    for (const ShellCommand& inner : command.inner) take(inner, false);
  }

  // Drops variables that the words of the command itself may set.
  void forget(const ShellCommand& command) {
    for (const std::string& name : command.may_set) own_.insert_or_assign(name, std::nullopt);
    sets_any_ = sets_any_ || command.may_set_any;
  }

  [[nodiscard]] const std::string* value(std::string_view name) const {
    if (sets_any_) return nullptr;
    const auto own = own_.find(name);
    if (own == own_.end()) return environment_.value(name);
    return own->second ? &*own->second : nullptr;
  }

 private:
  const Environment& environment_;
  std::map<std::string, std::optional<std::string>, std::less<>> own_;
  bool sets_any_ = false;
};

void add_variables(const ShellCommand& command, bool is_certain, ShellScript& script) {
  for (const ShellVariable& one : command.variables) {
    script.variables.push_back(is_certain ? one : ShellVariable{one.name, "", false});
  }
  for (const ShellCommand& inner : command.inner) add_variables(inner, false, script);
}

// Whether a command has certainly run, so that its variables are set, when the engine starts.
bool is_certain_to_run(const std::vector<ShellCommand>& commands, std::size_t index,
                       std::size_t engine) {
  if (index == engine) return true;
  const auto ends_with = [&](std::size_t i, std::string_view end) {
    return commands[i].end == end;
  };
  // Commands of a pipe or in the background run in other processes.
  if (index > engine || ends_with(index, "|") || ends_with(index, "&")) return false;
  if (index > 0 && ends_with(index - 1, "|")) return false;
  if (index == 0 || ends_with(index - 1, "\n") || ends_with(index - 1, "&")) return true;
  // After "&&": if the engine runs, all earlier commands of its list have succeeded.
  return std::all_of(commands.begin() + static_cast<std::ptrdiff_t>(index) - 1,
                     commands.begin() + static_cast<std::ptrdiff_t>(engine),
                     [](const ShellCommand& one) { return one.end == "&&"; });
}

}  // namespace

ShellScript read_shell_script(std::string_view script, const Environment& environment,
                              const IsEngine& is_engine) {
  ShellScript result;
  try {
    std::vector<ShellCommand> commands = read_shell_commands(script, environment);
    const std::size_t engine = Judge(is_engine).engine_of(commands);
    if (!commands[engine].unsupported.empty()) refuse_script(commands[engine].unsupported);
    Variables variables(environment);
    std::size_t bytes = 0;
    const auto expanded = [&](const std::vector<ShellPart>& parts) -> std::optional<std::string> {
      if (parts.empty() || bytes > kMaxKnownBytes) return std::nullopt;
      std::optional<std::string> known =
          expand_shell_word(parts, environment,
                            [&variables](std::string_view name) { return variables.value(name); });
      if (known) bytes += known->size();
      return known;
    };
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const bool is_certain = is_certain_to_run(commands, i, engine);
      for (ShellVariable& one : commands[i].variables) {
        if (one.literal || i > engine) continue;
        if (std::optional<std::string> value = expanded(one.parts)) {
          one.value = *std::move(value);
          one.literal = true;
        }
      }
      add_variables(commands[i], is_certain, result);
      if (i < engine) variables.take(commands[i], is_certain);
    }
    variables.forget(commands[engine]);
    result.words = std::move(commands[engine].words);
    for (ShellWord& word : result.words) {
      if (!word.literal) word.known = expanded(word.parts);
    }
  } catch (const ShellRefusal& refusal) {
    result = ShellScript();
    result.refusal = refusal.reason;
  }
  return result;
}

}  // namespace fo::pod
