#include "pod/environment.h"

#include <utility>

#include "pod/scalar.h"

namespace fo::pod {

Environment::Environment(const Node& container, const ConfigMaps& config_maps,
                         std::string_view name_space) {
  if (const Node* sources = container.find("envFrom")) {
    for (const Node& source : sources->items()) take_source(source, config_maps, name_space);
  }
  const Node* env = container.find("env");
  if (env == nullptr) return;
  for (const Node& entry : env->items()) {
    const Node* name = entry.find("name");
    if (name == nullptr) continue;
    std::optional<std::string> value;
    if (entry.find("valueFrom") == nullptr) {
      value = expanded(entry.text_at({"value"}));
    } else if (const Node* reference = entry.find_path({"valueFrom", "configMapKeyRef"})) {
      const Node* data = config_maps.data(name_space, reference->text_at({"name"}));
      const Node* found = data == nullptr ? nullptr : data->find(reference->text_at({"key"}));
      if (found != nullptr) value = as_string(*found);
    }
    variables_.insert_or_assign(name->text(), std::move(value));
  }
}

void Environment::take_source(const Node& source, const ConfigMaps& config_maps,
                              std::string_view name_space) {
  const Node* reference = source.find("configMapRef");
  const Node* data =
      reference == nullptr ? nullptr : config_maps.data(name_space, reference->text_at({"name"}));
  if (data == nullptr) {
    has_more_ = true;
    return;
  }
  for (const Node::Member& member : data->members()) {
    variables_.insert_or_assign(source.text_at({"prefix"}) + member.key, as_string(member.value));
  }
}

const std::string* Environment::value(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() || !found->second ? nullptr : &*found->second;
}

std::optional<std::string> Environment::expanded(std::string_view text) const {
  // Variables that stand for others grow twofold with each.
  constexpr std::size_t kMost = std::size_t{1} << 16;
  constexpr std::size_t kLongestName = 1024;
  std::string result;
  while (!text.empty()) {
    if (result.size() > kMost) return std::nullopt;
    const std::size_t dollar = std::min(text.find('$'), text.size());
    result += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.size() < 2) return result += text;
    if (text[1] == '$') {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    const std::size_t end =
        text[1] == '(' ? text.substr(0, kLongestName).find(')') : std::string_view::npos;
    if (end == std::string_view::npos) {
      result += '$';
      text.remove_prefix(1);
      continue;
    }
    const std::string_view name = text.substr(2, end - 2);
    if (has(name)) {
      const std::string* known = value(name);
      if (known == nullptr) return std::nullopt;
      result += *known;
    } else if (has_more_) {
      return std::nullopt;
    } else {
      // What is set nowhere stays as it stands.
      result += text.substr(0, end + 1);
    }
    text.remove_prefix(end + 1);
  }
  return result;
}

}  // namespace fo::pod
