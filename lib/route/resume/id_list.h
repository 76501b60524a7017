// Token ids as JSON.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <vector>

namespace fo::route {

/// "[1,2,3]".
template <typename Id>
std::string list_of_ids(const std::vector<Id>& ids) {
  std::array<char, 20> digits;
  std::string text = "[";
  for (const Id id : ids) {
    if (text.size() > 1) text += ',';
    text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), id).ptr);
  }
  text += ']';
  return text;
}

}  // namespace fo::route
