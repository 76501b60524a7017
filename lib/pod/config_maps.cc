#include "pod/config_maps.h"

namespace fo::pod {

void ConfigMaps::add(const Node& document) {
  const std::string& kind = document.text_at({"kind"});
  if (kind == "List") {
    const Node* items = document.find("items");
    if (items == nullptr) return;
    for (const Node& item : items->items()) add(item);
  } else if (kind == "ConfigMap") {
    const Node* data = document.find("data");
    maps_.insert_or_assign(
        document.text_at({"metadata", "name"}),
        Found{document.text_at({"metadata", "namespace"}), data == nullptr ? Node::map() : *data});
  }
}

const Node* ConfigMaps::data(std::string_view name_space, std::string_view name) const {
  const auto found = maps_.find(name);
  if (found == maps_.end()) return nullptr;
  const std::string& other = found->second.name_space;
  const bool is_another = !name_space.empty() && !other.empty() && name_space != other;
  return is_another ? nullptr : &found->second.data;
}

}  // namespace fo::pod
