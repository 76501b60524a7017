// Nodes from JSON text, for tests that say what they want in few lines.
#pragma once

#include <string>

#include "pod/node.h"
#include "pod/yaml_reader.h"

namespace fo::pod::test {

inline Node node(const std::string& json) { return read_yaml(json, "f").front().root; }

/// Of a list of strings: "a|b".
inline std::string words(const Node* list) {
  std::string text;
  if (list == nullptr) return "none";
  for (const Node& item : list->items()) text += (text.empty() ? "" : "|") + item.text();
  return text;
}

}  // namespace fo::pod::test
