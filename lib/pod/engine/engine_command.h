// The command of an engine's container and its options. Options are read and changed in place: in
// the command, in its arguments, or in the script of a shell.
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

/// The value of an option or a variable of a command, as far as it is known.
struct OptionValue {
  enum class State { kAbsent, kKnown, kUnknown };
  State state = State::kAbsent;
  /// The value, if it is known.
  std::string text;
  /// Why the value is not known: "a variable is in its value".
  std::string reason;
  yaml::Position position;
};

enum class EngineProgram {
  kVllm,       // "vllm serve", or its module
  kSglang,     // "sglang serve", or sglang.launch_server
  kRefEngine,  // "fo-refengine serve", whose API is vLLM's
  kDynamoVllm,
  kDynamo,  // another Dynamo worker: dynamo.sglang …
  kUnknown,
};

constexpr bool is_dynamo_worker(EngineProgram program) {
  return program == EngineProgram::kDynamoVllm || program == EngineProgram::kDynamo;
}

/// The program of this toolkit under which a command runs its engine.
struct EngineWaiter {
  enum class Kind {
    kNone,
    kLock,    // "gms-lock acquire": the engine starts when the lock is held
    kShadow,  // "fo-shadow", but not one without failover
  };
  Kind kind = Kind::kNone;
  /// The value of its --engine, if set: "cold".
  std::string engine;
};

class EngineCommand {
 public:
  /// `environment` supplies the values of variables in the words.
  EngineCommand(const yaml::Node& container, Environment environment);
  explicit EngineCommand(const yaml::Node& container)
      : EngineCommand(container, Environment(container)) {}

  /// Whether the container has a command; otherwise it runs the image's entrypoint.
  [[nodiscard]] bool has_command() const { return command_items_ > 0; }
  /// The engine's program; for a script that could not be parsed, a guess from its words.
  [[nodiscard]] EngineProgram program() const { return program_; }
  /// Whether one of the words is `module`, the module of a worker such as "dynamo.sglang".
  [[nodiscard]] bool runs(std::string_view module) const;
  /// The waiter among the words before the engine's. In a script that could not be parsed, only
  /// that of the engine's own command or of the whole script.
  [[nodiscard]] const EngineWaiter& waiter() const { return waiter_; }
  /// Why no option can be changed: "the script has a pipe"; "" if options can be changed.
  [[nodiscard]] std::string refusal() const;
  /// A variable of a script, "$ARGS", that may expand to unknown options; "" if there is none.
  [[nodiscard]] std::string open_variable() const;

  /// The last "--option VALUE" or "--option=VALUE", where underscores equal dashes. In a script
  /// that could not be parsed, an option whose name does not occur is absent.
  [[nodiscard]] OptionValue find(std::string_view option) const;
  [[nodiscard]] bool has(std::string_view option) const;
  /// Changes the value that find() finds, or adds the option after the others. Returns nullopt, or
  /// the reason why it is impossible; then nothing has changed.
  std::optional<std::string> set(std::string_view option, const std::string& value);
  /// Adds an option without a value after the others, unless it exists. Returns as set().
  std::optional<std::string> set_flag(std::string_view option);

  /// The variables that Kubernetes gives the container.
  [[nodiscard]] const Environment& environment() const { return *environment_; }
  /// The value that the command itself gives this variable; it overrides the container's env.
  [[nodiscard]] OptionValue variable(std::string_view name) const;
  [[nodiscard]] bool sets_variable(std::string_view name) const;

  /// Writes the changed command and args to a container.
  void write_to(yaml::Node& container) const;

 private:
  struct Word {
    std::string value;
    bool literal = true;
    yaml::Position position;
    bool splits = false;
  };
  // The position of an option among the words.
  struct Place {
    std::size_t word;
    // Offset of the value in its word; 0 if the value is the whole word after `word`.
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

  // Command and args, in this order; the first `command_items_` are the command.
  std::vector<yaml::Node> items_;
  std::size_t command_items_ = 0;
  bool changed_ = false;
  // Index into items_ of the script, if a shell runs one.
  std::optional<std::size_t> script_item_;
  // If not empty: why the script was not parsed.
  std::string unread_;
  ShellScript script_;
  // The words of the engine's command: items_, or those of the script.
  std::vector<Word> words_;
  EngineProgram program_ = EngineProgram::kUnknown;
  // Index into words_ of the last word that identifies the program; 0: unknown.
  std::size_t program_word_ = 0;
  EngineWaiter waiter_;
  // Shared by its copies.
  std::shared_ptr<const Environment> environment_;
};

}  // namespace fo::pod
