#include "pod/engine_command.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/error.h"

namespace fo::pod {
namespace {

constexpr std::array<std::string_view, 5> kShells = {"sh", "bash", "dash", "ash", "ksh"};

std::string_view base_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_shell(std::string_view program) {
  return std::find(kShells.begin(), kShells.end(), base_name(program)) != kShells.end();
}

// The index of the script in ["sh", "-ec", SCRIPT, …].
std::optional<std::size_t> find_script(const std::vector<Node>& items) {
  if (items.empty() || !is_shell(items.front().text())) return std::nullopt;
  bool has_script = false;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const std::string_view word = items[i].text();
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) {
      return has_script ? std::optional(i) : std::nullopt;
    }
    if (word == "--")
      return has_script && i + 1 < items.size() ? std::optional(i + 1) : std::nullopt;
    if (word.starts_with("--")) continue;
    if (word.find('c') != std::string_view::npos) has_script = true;
    // "-o pipefail", "-O extglob"
    if (word.find_first_of("oO") != std::string_view::npos) ++i;
  }
  return std::nullopt;
}

// "--kv_events_config=x" as "--kv-events-config=x".
std::string with_dashes(std::string_view word) {
  std::string text(word.substr(0, std::min(word.find('='), word.size())));
  if (text.starts_with("--")) std::replace(text.begin(), text.end(), '_', '-');
  return text + std::string(word.substr(text.size()));
}

// Of a script that is not understood: whether "NAME=" is anywhere in it.
bool has_assignment(std::string_view script, std::string_view name) {
  const std::string assignment = std::string(name) + "=";
  for (std::size_t at = 0; (at = script.find(assignment, at)) != std::string_view::npos; ++at) {
    const char before = at == 0 ? ' ' : script[at - 1];
    if (std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_') return true;
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

}  // namespace

EngineCommand::EngineCommand(const Node& container) {
  if (const Node* command = container.find("command")) items_ = command->items();
  command_items_ = items_.size();
  if (const Node* args = container.find("args")) {
    items_.insert(items_.end(), args->items().begin(), args->items().end());
  }
  std::vector<std::string> names;
  if (const Node* env = container.find("env")) {
    for (const Node& one : env->items()) {
      if (const Node* name = one.find("name")) names.push_back(name->text());
    }
  }
  is_variable_ = [names = std::move(names)](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has_command()) script_item_ = find_script(items_);
  read_script();
  find_program();
}

void EngineCommand::read_script() {
  if (script_item_) {
    script_ = read_shell_script(items_[*script_item_].text(), is_variable_);
  }
  read_words();
}

void EngineCommand::read_words() {
  words_.clear();
  if (script_item_) {
    const Position position = items_[*script_item_].position();
    for (const ShellWord& word : script_.words) {
      words_.push_back({word.value, word.literal, position});
    }
    return;
  }
  for (const Node& item : items_) {
    words_.push_back({item.text(), item.text().find("$(") == std::string::npos, item.position()});
  }
}

void EngineCommand::find_program() {
  for (std::size_t i = 0; i + 1 < words_.size(); ++i) {
    const std::string& word = words_[i].value;
    const std::string& next = words_[i + 1].value;
    if (word == "-m") {
      program_ = program_of_module(next);
    } else if (next == "serve" && base_name(word) == "vllm") {
      program_ = EngineProgram::kVllm;
    } else if (next == "serve" && base_name(word) == "fo-refengine") {
      program_ = EngineProgram::kRefEngine;
    }
    if (program_ != EngineProgram::kUnknown) return;
  }
}

std::vector<EngineCommand::Place> EngineCommand::places(std::string_view option) const {
  std::vector<Place> found;
  const std::string start = std::string(option) + "=";
  for (std::size_t i = 0; i < words_.size(); ++i) {
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
  if (script_item_ && !script_.refusal.empty()) {
    // The arguments of the script too, which it may pass on.
    for (std::size_t i = *script_item_; i < items_.size(); ++i) {
      std::string text = items_[i].text();
      std::replace(text.begin(), text.end(), '_', '-');
      if (text.find(option) == std::string::npos) continue;
      value.position = items_[i].position();
      be_unknown("the script has " + script_.refusal);
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
  if (script_item_ && !script_.refusal.empty()) return "the script has " + script_.refusal;
  const std::vector<Place> all = places(option);
  if (all.empty()) {
    if (script_item_) {
      Node& script = items_[*script_item_];
      std::string text = script.text();
      text.insert(script_.words.back().end, " " + std::string(option) + " " + shell_word(value));
      script = Node::string(std::move(text)).at(script.position());
      read_script();
    } else {
      // They would take the place of the image's arguments.
      if (items_.empty()) return "the image's own arguments are not known";
      items_.push_back(Node::string(std::string(option)));
      items_.push_back(Node::string(value));
      read_words();
    }
    changed_ = true;
    return std::nullopt;
  }
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

void EngineCommand::replace_word(std::size_t index, const std::string& value) {
  if (!script_item_) {
    items_[index] = Node::string(value).at(items_[index].position());
    return read_words();
  }
  Node& script = items_[*script_item_];
  const ShellWord& word = script_.words[index];
  std::string text = script.text();
  text.replace(word.begin, word.end - word.begin, shell_word(value));
  script = Node::string(std::move(text)).at(script.position());
  read_script();
}

bool EngineCommand::sets_variable(std::string_view name) const {
  if (script_item_ && !script_.refusal.empty()) {
    return has_assignment(items_[*script_item_].text(), name);
  }
  const std::vector<std::string>& set = script_.variables;
  if (std::find(set.begin(), set.end(), name) != set.end()) return true;
  const std::string assignment = std::string(name) + "=";
  return !words_.empty() && base_name(words_.front().value) == "env" &&
         std::any_of(words_.begin(), words_.end(),
                     [&](const Word& word) { return word.value.starts_with(assignment); });
}

void EngineCommand::write_to(Node& container) const {
  if (!changed_) return;
  const auto split = items_.begin() + static_cast<std::ptrdiff_t>(command_items_);
  const auto put = [&container](std::string_view key, std::vector<Node> items) {
    const Node* old = container.find(key);
    if (old == nullptr && items.empty()) return;
    const Position position = old == nullptr ? Position{} : old->position();
    container.set(key, Node::list(std::move(items)).at(position));
  };
  put("command", std::vector<Node>(items_.begin(), split));
  put("args", std::vector<Node>(split, items_.end()));
}

}  // namespace fo::pod
