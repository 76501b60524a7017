// Kubernetes' rules for the names and labels of the generated objects. Pure.
#pragma once

#include <string>
#include <string_view>

#include "text/dns_name.h"
#include "yaml/node.h"

namespace fo::pod {

using text::is_dns_label;
using text::is_dns_subdomain;
using text::kDnsLabelRule;

/// A label value: empty, or at most 63 of letters, digits, "-", "_" and ".", with a letter or digit
/// at both ends.
bool is_label_value(std::string_view text);
/// Adds a label unless it exists. Returns false and does nothing for an invalid value.
bool add_label(yaml::Node& labels, std::string_view key, const std::string& value);

}  // namespace fo::pod
