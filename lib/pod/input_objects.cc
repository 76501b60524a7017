#include "pod/input_objects.h"

namespace fo::pod {

void InputObjects::add(const yaml::Node& document) {
  const std::string& kind = document.text_at({"kind"});
  if (kind == "List") {
    for (const yaml::Node& item : document.items_at({"items"})) add(item);
    return;
  }
  const yaml::Node* data = kind == "ConfigMap" ? document.find("data") : nullptr;
  objects_[{kind, document.text_at({"metadata", "name"})}].insert_or_assign(
      document.text_at({"metadata", "namespace"}), data == nullptr ? yaml::Node::map() : *data);
}

const InputObjects::Namespaces* InputObjects::find(std::string_view kind,
                                                   std::string_view name) const {
  const auto found = objects_.find({std::string(kind), std::string(name)});
  return found == objects_.end() ? nullptr : &found->second;
}

bool InputObjects::has(std::string_view kind, std::string_view name_space,
                       std::string_view name) const {
  const Namespaces* found = find(kind, name);
  return found != nullptr &&
         (name_space.empty() || found->contains(name_space) || found->contains(""));
}

const yaml::Node* InputObjects::config_map(std::string_view name_space,
                                           std::string_view name) const {
  const Namespaces* found = find("ConfigMap", name);
  if (found == nullptr) return nullptr;
  if (name_space.empty()) return found->size() == 1 ? &found->begin()->second : nullptr;
  auto one = found->find(name_space);
  if (one == found->end()) one = found->find("");
  return one == found->end() ? nullptr : &one->second;
}

}  // namespace fo::pod
