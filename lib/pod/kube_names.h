// Kubernetes' rules for the names and labels of what is generated. Pure.
#pragma once

#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::pod {

/// At most 63 of a-z, 0-9 and "-", no "-" at either end.
bool is_dns_label(std::string_view text);
/// DNS labels separated by ".", at most 253 characters.
bool is_dns_subdomain(std::string_view text);
/// The rule of is_dns_label, for remedies.
inline constexpr const char* kDnsLabelRule = "at most 63 of a-z, 0-9 and -, no - at either end";
/// A label value: empty, or at most 63 of letters, digits, "-", "_" and ".", with a letter or digit
/// at both ends.
bool is_label_value(std::string_view text);
/// Adds a label unless it exists. Returns false and does nothing for an invalid value.
bool add_label(yaml::Node& labels, std::string_view key, const std::string& value);

}  // namespace fo::pod
