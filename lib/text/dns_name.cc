#include "text/dns_name.h"

#include <algorithm>
#include <vector>

#include "text/ascii.h"

namespace fo::text {

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

bool is_dns_subdomain(std::string_view text) {
  if (text.size() > 253) return false;
  const std::vector<std::string_view> labels = split(text, '.');
  return std::all_of(labels.begin(), labels.end(), is_dns_label);
}

}  // namespace fo::text
