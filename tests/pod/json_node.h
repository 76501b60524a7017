// Nodes from JSON text, for short tests.
#pragma once

#include <string>

#include "yaml/node.h"
#include "yaml/reader.h"

namespace fo::pod::test {

inline yaml::Node node(const std::string& json) { return yaml::read_yaml(json, "f").front().root; }

/// A list of strings as "a|b".
inline std::string words(const yaml::Node* list) {
  std::string text;
  if (list == nullptr) return "none";
  for (const yaml::Node& item : list->items()) text += (text.empty() ? "" : "|") + item.text();
  return text;
}

}  // namespace fo::pod::test
