// The objects of an input that others refer to, and the data of its ConfigMaps. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "yaml/node.h"

namespace fo::pod {

class InputObjects {
 public:
  /// Adds a document; a later object replaces an earlier one with the same kind, namespace and
  /// name. Lists (kind: List) are expanded.
  void add(const yaml::Node& document);

  /// An empty namespace, here or in the object, matches any.
  [[nodiscard]] bool has(std::string_view kind, std::string_view name_space,
                         std::string_view name) const;
  /// The map `data` of a ConfigMap; nullptr if there is none of that name, or if `name_space` is
  /// empty and several match.
  [[nodiscard]] const yaml::Node* config_map(std::string_view name_space,
                                             std::string_view name) const;

 private:
  // By kind and name, then by namespace; with `data` for ConfigMaps.
  using Namespaces = std::map<std::string, yaml::Node, std::less<>>;
  [[nodiscard]] const Namespaces* find(std::string_view kind, std::string_view name) const;

  std::map<std::pair<std::string, std::string>, Namespaces> objects_;
};

}  // namespace fo::pod
