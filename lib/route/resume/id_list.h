// Token ids as JSON.
#pragma once

#include <string>
#include <vector>

namespace fo::route {

/// "[1,2,3]".
template <typename Id>
std::string list_of_ids(const std::vector<Id>& ids) {
  std::string text = "[";
  for (const Id id : ids) text += (text.size() > 1 ? "," : "") + std::to_string(id);
  return text + "]";
}

}  // namespace fo::route
