// The ConfigMaps among the documents of an input. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "pod/node.h"

namespace fo::pod {

class ConfigMaps {
 public:
  /// Takes what the document says, if it is one; of two with one name the later one counts. Lists
  /// (kind: List) are looked into.
  void add(const Node& document);

  /// The map `data` of one; nullptr where none of that name was seen. A namespace that is not said,
  /// here or there, is any.
  [[nodiscard]] const Node* data(std::string_view name_space, std::string_view name) const;

 private:
  struct Found {
    std::string name_space;
    Node data;
  };
  std::map<std::string, Found, std::less<>> maps_;
};

}  // namespace fo::pod
