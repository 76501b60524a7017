// The objects of an input that others in it refer to, and what its ConfigMaps say. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "yaml/node.h"

namespace fo::pod {

class InputObjects {
 public:
  /// Takes a document; of two objects with one kind, namespace and name the later one counts. Lists
  /// (kind: List) are looked into.
  void add(const yaml::Node& document);

  /// A namespace that is not said, here or there, is any.
  [[nodiscard]] bool has(std::string_view kind, std::string_view name_space,
                         std::string_view name) const;
  /// The map `data` of a ConfigMap; nullptr where none of that name was seen, or several namespaces
  /// have one and none is said.
  [[nodiscard]] const yaml::Node* config_map(std::string_view name_space,
                                             std::string_view name) const;

 private:
  // By kind and name, then by namespace: `data` of ConfigMaps.
  using Namespaces = std::map<std::string, yaml::Node, std::less<>>;
  [[nodiscard]] const Namespaces* find(std::string_view kind, std::string_view name) const;

  std::map<std::pair<std::string, std::string>, Namespaces> objects_;
};

}  // namespace fo::pod
