// Nodes from JSON text, for tests that say what they want in few lines.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "pod/node.h"

namespace fo::pod::test {

inline Node to_node(const nlohmann::ordered_json& json) {
  if (json.is_object()) {
    Node map = Node::map();
    for (const auto& [key, value] : json.items()) map.set(key, to_node(value));
    return map;
  }
  if (json.is_array()) {
    Node list = Node::list();
    for (const auto& item : json) list.push_back(to_node(item));
    return list;
  }
  if (json.is_string()) return Node::string(json.get<std::string>());
  return Node::plain(json.dump());
}

inline Node node(const std::string& json) { return to_node(nlohmann::ordered_json::parse(json)); }

inline nlohmann::ordered_json to_json(const Node& node) {
  if (node.is_null()) return nullptr;
  if (node.is_map()) {
    auto map = nlohmann::ordered_json::object();
    for (const Node::Member& member : node.members()) map[member.key] = to_json(member.value);
    return map;
  }
  if (node.is_list()) {
    auto list = nlohmann::ordered_json::array();
    for (const Node& item : node.items()) list.push_back(to_json(item));
    return list;
  }
  if (!node.is_plain()) return node.text();
  return nlohmann::ordered_json::parse(node.text());
}

/// Of a list of strings: "a|b".
inline std::string words(const Node* list) {
  std::string text;
  if (list == nullptr) return "none";
  for (const Node& item : list->items()) text += (text.empty() ? "" : "|") + item.text();
  return text;
}

}  // namespace fo::pod::test
