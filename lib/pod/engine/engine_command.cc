#include "pod/engine/engine_command.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

// The shells whose scripts are parsed, and those whose scripts are not.
constexpr std::array<std::string_view, 5> kShells = {"sh", "bash", "dash", "ash", "ksh"};
constexpr std::array<std::string_view, 6> kOtherShells = {"zsh",  "fish", "csh",
                                                          "tcsh", "mksh", "rbash"};

std::string_view base_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_read(std::string_view program) { return text::is_one_of(base_name(program), kShells); }

bool is_shell(std::string_view program) {
  return is_read(program) || text::is_one_of(base_name(program), kOtherShells);
}

// The index of the script in [… "sh", "-ec", SCRIPT, …] with the shell at `shell`.
std::optional<std::size_t> script_of(const std::vector<std::string_view>& words,
                                     std::size_t shell) {
  if (!is_shell(words[shell])) return std::nullopt;
  bool has_script = false;
  for (std::size_t i = shell + 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) {
      return has_script ? std::optional(i) : std::nullopt;
    }
    if (word == "--")
      return has_script && i + 1 < words.size() ? std::optional(i + 1) : std::nullopt;
    if (word.starts_with("--")) continue;
    if (word.find('c') != std::string_view::npos) has_script = true;
    // "-o pipefail", "-O extglob"
    if (word.find_first_of("oO") != std::string_view::npos) ++i;
  }
  return std::nullopt;
}

struct FoundScript {
  std::size_t shell;
  std::size_t script;
};

// The first script of a shell, at the front or after other words.
std::optional<FoundScript> first_script(const std::vector<std::string_view>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const auto script = script_of(words, i)) return FoundScript{i, *script};
  }
  return std::nullopt;
}

// Separates commands in the result of rough_words().
constexpr std::string_view kNextCommand = ";";

// Approximates the words of a script that could not be parsed. Quoted text, which may be a script
// for another shell, does not separate commands.
std::vector<std::string> rough_words(std::string_view script) {
  std::vector<std::string> words;
  char quote = '\0';
  while (!script.empty()) {
    const std::size_t end = std::min(script.find_first_of(" \t\n\"'`;&|(){}\\"), script.size());
    if (end > 0) words.emplace_back(script.substr(0, end));
    const char c = end < script.size() ? script[end] : ' ';
    std::size_t taken = std::min(end + 1, script.size());
    if (c == '\\' && quote != '\'') {
      // An escaped character neither separates nor quotes.
      if (taken < script.size() &&
          std::string_view("\n\"';&|").find(script[taken]) != std::string_view::npos) {
        ++taken;
      }
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (std::string_view("\n;&|").find(c) != std::string_view::npos) {
      words.emplace_back(kNextCommand);
    }
    script.remove_prefix(taken);
  }
  return words;
}

// Escapes `text`, so that Kubernetes' expansion of "$(NAME)" and "$$" results in `text`.
std::string kubernetes_word(std::string_view text) {
  std::string word;
  for (std::size_t i = 0; i < text.size(); ++i) {
    word += text[i];
    if (text[i] != '$' || i + 1 == text.size()) continue;
    if (text[i + 1] == '$' || text[i + 1] == '(') word += '$';
  }
  return word;
}

// Converts "--kv_events_config=x" to "--kv-events-config=x".
std::string with_dashes(std::string_view word) {
  std::string text(word.substr(0, std::min(word.find('='), word.size())));
  if (text.starts_with("--")) std::replace(text.begin(), text.end(), '_', '-');
  return text + std::string(word.substr(text.size()));
}

// For a script that could not be parsed: whether it contains "NAME=".
bool has_assignment(std::string_view script, std::string_view name) {
  const std::string assignment = std::string(name) + "=";
  for (std::size_t at = 0; (at = script.find(assignment, at)) != std::string_view::npos; ++at) {
    const char before = at == 0 ? ' ' : script[at - 1];
    if (!text::is_letter_or_digit(before) && before != '_') return true;
  }
  return false;
}

EngineProgram program_of_module(std::string_view module) {
  if (module == "vllm.entrypoints.openai.api_server") return EngineProgram::kVllm;
  if (module == "sglang.launch_server") return EngineProgram::kSglang;
  if (module == "dynamo.vllm" || module.starts_with("dynamo.vllm.")) {
    return EngineProgram::kDynamoVllm;
  }
  return module.starts_with("dynamo.") ? EngineProgram::kDynamo : EngineProgram::kUnknown;
}

// The program that the two words name, or the first alone ("-mMODULE").
EngineProgram program_of(std::string_view word, std::string_view next) {
  if (word == "-m") return program_of_module(next);
  if (word.starts_with("-m")) return program_of_module(word.substr(2));
  if (next != "serve") return EngineProgram::kUnknown;
  const std::string_view name = base_name(word);
  if (name == "vllm") return EngineProgram::kVllm;
  if (name == "sglang") return EngineProgram::kSglang;
  return name == "fo-refengine" ? EngineProgram::kRefEngine : EngineProgram::kUnknown;
}

// A program, and the index of the first word that identifies it; the number of words if no program
// was found.
struct FoundProgram {
  EngineProgram program = EngineProgram::kUnknown;
  std::size_t at = 0;
};
FoundProgram find_program_in(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const EngineProgram program =
        program_of(words[i], i + 1 < words.size() ? std::string_view(words[i + 1]) : "");
    if (program != EngineProgram::kUnknown) return {program, i};
  }
  return {EngineProgram::kUnknown, words.size()};
}

// Whether a word is an option that may be followed by its value.
bool takes_value(std::string_view word) {
  constexpr std::array<std::string_view, 6> kFlags = {
      "--enforce-eager",    "--trust-remote-code", "--is-prefill-worker",
      "--is-decode-worker", "--headless",          "--skip-tokenizer-init"};
  constexpr std::array<std::string_view, 3> kFlagPrefixes = {"--enable-", "--disable-", "--no-"};
  return word.starts_with("--") && word.find('=') == std::string_view::npos &&
         !text::is_one_of(word, kFlags) &&
         std::none_of(kFlagPrefixes.begin(), kFlagPrefixes.end(),
                      [word](std::string_view prefix) { return word.starts_with(prefix); });
}

bool is_engine(const std::vector<std::string>& words) {
  return find_program_in(words).program != EngineProgram::kUnknown;
}

}  // namespace

EngineCommand::EngineCommand(const yaml::Node& container, Environment environment)
    : environment_(std::make_shared<const Environment>(std::move(environment))) {
  items_ = container.items_at({"command"});
  command_items_ = items_.size();
  const std::vector<yaml::Node>& args = container.items_at({"args"});
  items_.insert(items_.end(), args.begin(), args.end());
  find_script();
  read_script();
  find_program();
}

void EngineCommand::find_script() {
  std::vector<std::string_view> words;
  words.reserve(items_.size());
  for (const yaml::Node& item : items_) words.emplace_back(item.text());
  const std::optional<FoundScript> found = first_script(words);
  if (!found) return;
  script_item_ = found->script;
  if (!is_read(words[found->shell])) {
    unread_ = "another shell than sh or bash: " + base::quoted(words[found->shell]);
  } else if (found->shell > 0) {
    // Options must be added inside the script, and the program that runs it may have arguments of
    // its own.
    unread_ = "a command before its shell: " + base::quoted(words.front());
  }
}

void EngineCommand::read_script() {
  if (!script_item_) return read_words();
  script_ = ShellScript();
  script_.refusal = unread_;
  if (unread_.empty()) {
    script_ = read_shell_script(items_[*script_item_].text(), *environment_, is_engine);
    std::vector<std::string_view> words;
    for (const ShellWord& word : script_.words) words.emplace_back(word.value);
    if (const std::optional<FoundScript> inner = first_script(words)) {
      const std::string shell(words[inner->shell]);
      script_ = ShellScript();
      script_.refusal = "a nested script, of " + base::quoted(shell);
    }
  }
  read_words();
}

void EngineCommand::read_words() {
  words_.clear();
  if (script_item_) {
    const yaml::Position position = items_[*script_item_].position();
    for (const ShellWord& word : script_.words) {
      const bool is_known = word.literal || word.known;
      words_.push_back(
          {word.known ? *word.known : word.value, is_known, position, word.splits && !is_known});
    }
    return;
  }
  std::size_t bytes = 0;
  for (const yaml::Node& item : items_) {
    const std::optional<std::string> known = environment_->expanded(item.text());
    if (known) bytes += known->size();
    // A variable that is not set has no known value.
    const bool is_known =
        known && known->find("$(") == std::string::npos && bytes <= kMaxKnownBytes;
    words_.push_back({is_known ? *known : item.text(), is_known, item.position()});
  }
}

void EngineCommand::find_program() {
  std::vector<std::string> rough;
  std::size_t before_script = 0;
  if (is_refused()) {
    for (; before_script < *script_item_; ++before_script) {
      rough.push_back(items_[before_script].text());
    }
    for (std::size_t i = *script_item_; i < items_.size(); ++i) {
      for (std::string& word : rough_words(items_[i].text())) rough.push_back(std::move(word));
    }
  } else {
    for (const Word& word : words_) rough.push_back(word.value);
  }
  const FoundProgram found = find_program_in(rough);
  program_ = found.program;
  if (program_ != EngineProgram::kUnknown) {
    const std::string& word = rough[found.at];
    program_word_ = word.starts_with("-m") && word.size() > 2 ? found.at : found.at + 1;
    rough.resize(found.at);
  }
  find_waiter(rough, before_script);
}

// `words` are the words before the engine's, or all words if the engine is unknown. The first
// `before_script` of them run the whole script.
void EngineCommand::find_waiter(const std::vector<std::string>& words, std::size_t before_script) {
  constexpr std::string_view kOption = "--engine";
  EngineWaiter of_script;
  // The waiter whose options are being read, up to its "--".
  EngineWaiter found;
  bool waits = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (i == before_script) of_script = waiter_;
    if (i >= before_script && word == kNextCommand) {
      waiter_ = of_script;
      found = {};
    } else if (found.kind == EngineWaiter::Kind::kNone) {
      const std::string_view name = base_name(word);
      if (name == "gms-lock") found.kind = EngineWaiter::Kind::kLock;
      if (name == "fo-shadow") found.kind = EngineWaiter::Kind::kShadow;
      waits = name == "fo-shadow";
    } else if (word == "--") {
      if (waits) waiter_ = found;
      found = {};
    } else if (found.kind == EngineWaiter::Kind::kLock) {
      // The other subcommands of gms-lock do not wait.
      waits = waits || word == "acquire";
    } else if (word == "--no-failover") {
      waits = false;
    } else if (word.starts_with("--engine=")) {
      found.engine = word.substr(kOption.size() + 1);
    } else if (words[i - 1] == kOption) {
      found.engine = word;
    }
  }
}

bool EngineCommand::runs(std::string_view module) const {
  return std::any_of(words_.begin(), words_.end(),
                     [module](const Word& word) { return word.value == module; });
}

std::string EngineCommand::refusal() const {
  return is_refused() ? "the script has " + script_.refusal : std::string();
}

std::string EngineCommand::open_variable() const {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    if (!word.splits) continue;
    const std::size_t begin = word.value.find_first_not_of("${(", word.value.find('$'));
    const std::string_view name =
        shell_name_at(std::string_view(word.value).substr(std::min(begin, word.value.size())));
    const std::string* const known = environment_->value(name);
    if (known != nullptr && !sets_variable(name)) {
      // A longer value counts as several words without a check.
      constexpr std::size_t kMaxWord = 4096;
      if (known->size() > kMaxWord || known->find_first_of(" \t\n") != std::string::npos ||
          known->starts_with('-')) {
        return word.value;
      }
    } else if (i > 0 && !takes_value(words_[i - 1].value) && word.value.starts_with('$')) {
      // After an option, the variable is its value; elsewhere it may be another option.
      return word.value;
    }
  }
  return "";
}

// The index of the "--" that ends the engine's options; the number of words if there is none.
std::size_t EngineCommand::options_end() const {
  if (program_ == EngineProgram::kUnknown) return words_.size();
  for (std::size_t i = program_word_ + 1; i < words_.size(); ++i) {
    if (words_[i].value == "--") return i;
  }
  return words_.size();
}

std::vector<EngineCommand::Place> EngineCommand::places(std::string_view option) const {
  std::vector<Place> found;
  const std::string start = std::string(option) + "=";
  const std::size_t end = options_end();
  for (std::size_t i = 0; i < end; ++i) {
    const std::string word = with_dashes(words_[i].value);
    if (word == option) found.push_back({i, 0});
    if (word.starts_with(start)) found.push_back({i, start.size()});
  }
  return found;
}

OptionValue EngineCommand::find(std::string_view option) const {
  OptionValue value;
  const auto be_unknown = [&value](std::string reason) {
    value.state = OptionValue::State::kUnknown;
    value.reason = std::move(reason);
  };
  if (is_refused()) {
    // The search includes the script's arguments, which the script may pass to the engine.
    for (std::size_t i = *script_item_; i < items_.size(); ++i) {
      std::string text = items_[i].text();
      std::replace(text.begin(), text.end(), '_', '-');
      if (text.find(option) == std::string::npos) continue;
      value.position = items_[i].position();
      be_unknown(refusal());
    }
    return value;
  }
  const std::vector<Place> all = places(option);
  if (all.empty()) return value;
  const Place last = all.back();
  const std::size_t index = last.value_at > 0 ? last.word : last.word + 1;
  value.position = words_[last.word].position;
  if (index >= words_.size()) {
    be_unknown("it has no value");
  } else if (!words_[index].literal) {
    be_unknown("a variable is in its value");
  } else {
    value.state = OptionValue::State::kKnown;
    value.text = words_[index].value.substr(last.value_at);
  }
  return value;
}

bool EngineCommand::has(std::string_view option) const {
  return find(option).state != OptionValue::State::kAbsent;
}

std::optional<std::string> EngineCommand::set(std::string_view option, const std::string& value) {
  if (is_refused()) return refusal();
  const std::vector<Place> all = places(option);
  if (all.empty()) return add({std::string(option), value});
  const OptionValue now = find(option);
  if (now.state == OptionValue::State::kUnknown) return now.reason;
  if (now.text == value) return std::nullopt;
  const Place last = all.back();
  if (last.value_at > 0) {
    replace_word(last.word, words_[last.word].value.substr(0, last.value_at) + value);
  } else {
    replace_word(last.word + 1, value);
  }
  changed_ = true;
  return std::nullopt;
}

std::optional<std::string> EngineCommand::set_flag(std::string_view option) {
  if (is_refused()) return refusal();
  if (!places(option).empty()) return std::nullopt;
  return add({std::string(option)});
}

std::optional<std::string> EngineCommand::add(const std::vector<std::string>& words) {
  // New arguments would replace the image's arguments.
  if (items_.empty()) return "the image's own arguments are not known";
  changed_ = true;
  const std::size_t end = options_end();
  if (!script_item_) {
    std::vector<yaml::Node> added;
    for (const std::string& word : words)
      added.push_back(yaml::Node::string(kubernetes_word(word)));
    items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(end), added.begin(), added.end());
    if (end < command_items_) command_items_ += words.size();
    read_words();
    return std::nullopt;
  }
  std::string added;
  for (const std::string& word : words) {
    added += (added.empty() ? "" : " ") + kubernetes_word(shell_word(word));
  }
  if (end < script_.words.size()) {
    const std::size_t at = script_.words[end].begin;
    write_in_script(at, at, added + " ");
  } else {
    const std::size_t at = script_.words.back().end;
    write_in_script(at, at, " " + added);
  }
  return std::nullopt;
}

void EngineCommand::write_in_script(std::size_t begin, std::size_t end, std::string text) {
  yaml::Node& script = items_[*script_item_];
  std::string all = script.text();
  // "8001>log" would be a descriptor, not an argument.
  if (end < all.size() && (all[end] == '<' || all[end] == '>') && text::is_digit(text.back()))
    text += ' ';
  all.replace(begin, end - begin, text);
  script = yaml::Node::string(std::move(all)).at(script.position());
  read_script();
}

void EngineCommand::replace_word(std::size_t index, const std::string& value) {
  if (!script_item_) {
    items_[index] = yaml::Node::string(kubernetes_word(value)).at(items_[index].position());
    return read_words();
  }
  const ShellWord& word = script_.words[index];
  write_in_script(word.begin, word.end, kubernetes_word(shell_word(value)));
}

OptionValue EngineCommand::variable(std::string_view name) const {
  OptionValue value;
  const auto take = [&value](bool is_known, std::string_view text) {
    value.state = is_known ? OptionValue::State::kKnown : OptionValue::State::kUnknown;
    value.text = is_known ? text : std::string_view();
    if (!is_known) value.reason = "a variable is in its value";
  };
  for (const ShellVariable& one : script_.variables) {
    if (one.name == name) take(one.literal, one.value);
  }
  const std::string assignment = std::string(name) + "=";
  const auto take_from_env = [&](std::string_view word, bool is_literal) {
    if (word.starts_with(assignment)) take(is_literal, word.substr(assignment.size()));
  };
  if (is_refused()) {
    // The words before the script, as in "env NAME=value sh -c …".
    for (std::size_t i = 0; i < *script_item_; ++i) take_from_env(items_[i].text(), true);
    if (has_assignment(items_[*script_item_].text(), name)) {
      value.state = OptionValue::State::kUnknown;
      value.reason = refusal();
    }
    return value;
  }
  const std::size_t end = program_ == EngineProgram::kUnknown ? words_.size() : program_word_;
  bool is_env = false;
  for (std::size_t i = 0; i < end; ++i) {
    if (is_env) take_from_env(words_[i].value, words_[i].literal);
    is_env = is_env || base_name(words_[i].value) == "env";
  }
  return value;
}

bool EngineCommand::sets_variable(std::string_view name) const {
  return variable(name).state != OptionValue::State::kAbsent;
}

void EngineCommand::write_to(yaml::Node& container) const {
  if (!changed_) return;
  const auto split = items_.begin() + static_cast<std::ptrdiff_t>(command_items_);
  const auto put = [&container](std::string_view key, std::vector<yaml::Node> items) {
    const yaml::Node* old = container.find(key);
    if (old == nullptr && items.empty()) return;
    const yaml::Position position = old == nullptr ? yaml::Position{} : old->position();
    container.set(key, yaml::Node::list(std::move(items)).at(position));
  };
  put("command", std::vector<yaml::Node>(items_.begin(), split));
  put("args", std::vector<yaml::Node>(split, items_.end()));
}

}  // namespace fo::pod
