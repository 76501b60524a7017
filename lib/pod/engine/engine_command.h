// What an engine's container runs, and its options: read and changed where they stand, in the
// command, in its arguments, or in the script of a shell that is the command.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_script.h"
#include "yaml/node.h"

namespace fo::pod {

/// What a command line says of one option.
struct OptionValue {
  enum class State { kAbsent, kKnown, kUnknown };
  State state = State::kAbsent;
  /// Of a known one.
  std::string text;
  /// Why it is not known: "its value is a variable".
  std::string reason;
  yaml::Position position;
};

enum class EngineProgram {
  kVllm,       // "vllm serve", or its module
  kSglang,     // "sglang serve", or sglang.launch_server
  kRefEngine,  // "fo-refengine serve", whose API is vLLM's
  kDynamoVllm,
  kDynamo,  // another worker of Dynamo's: dynamo.sglang …
  kUnknown,
};

/// What a command itself runs its engine under.
struct EngineWaiter {
  enum class Kind {
    kNone,
    kLock,    // "gms-lock acquire": the engine starts when the lock is held
    kShadow,  // "fo-shadow", but not one without failover
  };
  Kind kind = Kind::kNone;
  /// Its --engine, where it says one: "cold".
  std::string engine;
};

class EngineCommand {
 public:
  /// Of a container, whose environment says what variables in the words stand for.
  EngineCommand(const yaml::Node& container, Environment environment);
  explicit EngineCommand(const yaml::Node& container)
      : EngineCommand(container, Environment(container)) {}

  /// Whether the container says what runs; else it is the image's entrypoint, with its arguments.
  [[nodiscard]] bool has_command() const { return command_items_ > 0; }
  /// Of a script that is not understood, what its words look like.
  [[nodiscard]] EngineProgram program() const { return program_; }
  /// Whether one of the words is this: the module of a worker, "dynamo.sglang".
  [[nodiscard]] bool runs(std::string_view module) const;
  /// Found among the words before the engine's. Of a script that is not understood, one that stands
  /// in another command than the engine does not count.
  [[nodiscard]] const EngineWaiter& waiter() const { return waiter_; }
  /// "the script has a pipe": why no option can be changed; "" where that is not so.
  [[nodiscard]] std::string refusal() const;
  /// A variable of a script, "$ARGS", that may become options which are not known here; "" where
  /// there is none.
  [[nodiscard]] std::string open_variable() const;

  /// The last "--option VALUE" or "--option=VALUE"; an underscore is as good as a dash. In a script
  /// that is not understood, an option whose name is nowhere in it is absent.
  [[nodiscard]] OptionValue find(std::string_view option) const;
  [[nodiscard]] bool has(std::string_view option) const;
  /// Changes the value where find() finds it, or adds the option behind the others. nullopt: done.
  /// Else why it can't be, and nothing is changed.
  std::optional<std::string> set(std::string_view option, const std::string& value);
  /// Adds an option without a value behind the others, unless it is there. As set().
  std::optional<std::string> set_flag(std::string_view option);

  /// What the container's env, and what it takes from InputObjects, says.
  [[nodiscard]] const Environment& environment() const { return *environment_; }
  /// What the command sets this variable to itself, over what the container's env says.
  [[nodiscard]] OptionValue variable(std::string_view name) const;
  [[nodiscard]] bool sets_variable(std::string_view name) const;

  /// Puts command and args, as far as they changed, into a container.
  void write_to(yaml::Node& container) const;

 private:
  struct Word {
    std::string value;
    bool literal = true;
    yaml::Position position;
    bool splits = false;
  };
  // Where an option stands among the words.
  struct Place {
    std::size_t word;
    // Of the value within its word: 0 where it is a word of its own, the one after `word`.
    std::size_t value_at;
  };

  [[nodiscard]] bool is_refused() const { return script_item_ && !script_.refusal.empty(); }
  void find_script();
  void read_script();
  void read_words();
  void find_program();
  void find_waiter(const std::vector<std::string>& words, std::size_t before_script);
  [[nodiscard]] std::size_t options_end() const;
  std::optional<std::string> add(const std::vector<std::string>& words);
  [[nodiscard]] std::vector<Place> places(std::string_view option) const;
  void replace_word(std::size_t index, const std::string& value);
  void write_in_script(std::size_t begin, std::size_t end, std::string text);

  // Command and args as they are, one after the other; the first `command_items_` are the command.
  std::vector<yaml::Node> items_;
  std::size_t command_items_ = 0;
  bool changed_ = false;
  // Of items_, where a shell runs one.
  std::optional<std::size_t> script_item_;
  // Not "": why that one is not read at all.
  std::string unread_;
  ShellScript script_;
  // Of the engine's command: items_, or those of the script.
  std::vector<Word> words_;
  EngineProgram program_ = EngineProgram::kUnknown;
  // Of words_, the last one that says which program it is; 0: unknown.
  std::size_t program_word_ = 0;
  EngineWaiter waiter_;
  // Shared by its copies.
  std::shared_ptr<const Environment> environment_;
};

}  // namespace fo::pod
