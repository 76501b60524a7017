#include "text/dns_name.h"

#include <algorithm>
#include <cstddef>

#include "text/ascii.h"

namespace fo::text {

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
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

}  // namespace fo::text
