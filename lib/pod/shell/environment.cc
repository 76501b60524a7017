#include "pod/shell/environment.h"

#include <utility>

#include "yaml/scalar.h"

namespace fo::pod {

Environment::Environment(const yaml::Node& container, const InputObjects& inputs,
                         std::string_view name_space) {
  for (const yaml::Node& source : container.items_at({"envFrom"})) {
    take_source(source, inputs, name_space);
  }
  for (const yaml::Node& entry : container.items_at({"env"})) {
    const yaml::Node* name = entry.find("name");
    if (name == nullptr) continue;
    std::optional<std::string> value;
    if (entry.find("valueFrom") == nullptr) {
      value = expanded(entry.text_at({"value"}));
    } else if (const yaml::Node* reference = entry.find_path({"valueFrom", "configMapKeyRef"})) {
      const yaml::Node* data = inputs.config_map(name_space, reference->text_at({"name"}));
      const yaml::Node* found = data == nullptr ? nullptr : data->find(reference->text_at({"key"}));
      if (found != nullptr) value = yaml::as_string(*found);
    }
    put(name->text(), std::move(value));
  }
}

void Environment::take_source(const yaml::Node& source, const InputObjects& inputs,
                              std::string_view name_space) {
  const yaml::Node* reference = source.find("configMapRef");
  const yaml::Node* data =
      reference == nullptr ? nullptr : inputs.config_map(name_space, reference->text_at({"name"}));
  if (data == nullptr) {
    has_more_ = true;
    // The source may set variables of earlier sources, too, and the last value counts.
    for (auto& [name, value] : variables_) value.reset();
    return;
  }
  for (const yaml::Node::Member& member : data->members()) {
    put(source.text_at({"prefix"}) + member.key, yaml::as_string(member.value));
  }
}

void Environment::put(const std::string& name, std::optional<std::string> value) {
  // Variables that refer to others may grow exponentially.
  if (value) bytes_ += value->size();
  if (bytes_ > kMaxKnownBytes) value.reset();
  variables_.insert_or_assign(name, std::move(value));
}

const std::string* Environment::value(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() || !found->second ? nullptr : &*found->second;
}

bool Environment::has_any(std::string_view prefix) const {
  const auto found = variables_.lower_bound(prefix);
  return found != variables_.end() && found->first.starts_with(prefix);
}

std::optional<std::string> Environment::expanded(std::string_view text) const {
  std::string result;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.size() < 2) return result += text;
    if (text[1] == '$') {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    const std::string_view name = kubernetes_variable_at(text);
    if (name.empty()) {
      result += '$';
      text.remove_prefix(1);
      continue;
    }
    const std::size_t size = name.size() + 3;
    if (has(name)) {
      const std::string* known = value(name);
      if (known == nullptr || result.size() + known->size() > kMaxExpandedBytes) {
        return std::nullopt;
      }
      result += *known;
    } else if (has_more_) {
      return std::nullopt;
    } else {
      // A reference to an unset variable stays unchanged.
      result += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return result;
}

std::string_view kubernetes_variable_at(std::string_view text) {
  // A longer search would take quadratic time for a text of many "$(".
  constexpr std::size_t kMaxName = 1024;
  if (!text.starts_with("$(")) return {};
  const std::size_t end = text.substr(0, kMaxName).find(')');
  return end == std::string_view::npos ? std::string_view() : text.substr(2, end - 2);
}

}  // namespace fo::pod
