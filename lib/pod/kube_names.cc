#include "pod/kube_names.h"

#include <algorithm>

#include "text/ascii.h"

namespace fo::pod {

bool is_label_value(std::string_view text) {
  return text.empty() || (text.size() <= 63 && text::is_letter_or_digit(text.front()) &&
                          text::is_letter_or_digit(text.back()) &&
                          std::all_of(text.begin(), text.end(), [](char c) {
                            return text::is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
                          }));
}

bool add_label(yaml::Node& labels, std::string_view key, const std::string& value) {
  if (!is_label_value(value)) return false;
  if (labels.find(key) == nullptr) labels.set(key, yaml::Node::string(value));
  return true;
}

}  // namespace fo::pod
