#include "pod/kube_names.h"

#include <algorithm>
#include <cstddef>

#include "text/ascii.h"

namespace fo::pod {

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return text::is_lower(c) || text::is_digit(c) || c == '-'; });
}

bool is_dns_subdomain(std::string_view text) {
  if (text.size() > 253) return false;
  while (true) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    if (!is_dns_label(text.substr(0, dot))) return false;
    if (dot == text.size()) return true;
    text.remove_prefix(dot + 1);
  }
}

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
