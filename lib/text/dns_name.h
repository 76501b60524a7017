// The syntax of DNS names, which Kubernetes requires of most names. Pure.
#pragma once

#include <string_view>

namespace fo::text {

/// True for at most 63 of a-z, 0-9 and "-", no "-" at either end.
bool is_dns_label(std::string_view text);
/// DNS labels separated by ".", at most 253 characters.
bool is_dns_subdomain(std::string_view text);
/// The rule of is_dns_label, for error messages.
inline constexpr const char* kDnsLabelRule = "at most 63 of a-z, 0-9 and -, no - at either end";

}  // namespace fo::text
