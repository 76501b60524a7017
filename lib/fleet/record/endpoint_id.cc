#include "fleet/record/endpoint_id.h"

#include <algorithm>
#include <vector>

#include "base/hex.h"
#include "fleet/card/digest.h"
#include "text/ascii.h"
#include "text/dns_name.h"

namespace fo::fleet {
namespace {

using text::is_dns_label;

constexpr std::size_t kMaxPrefix = 46;
constexpr std::size_t kCutPrefix = 37;
constexpr std::size_t kCutDigits = 8;

constexpr std::string_view kAnyHash = "-*";

/// The NAME of a namespace NAME-HASH; nullopt for a namespace without a hash.
std::optional<std::string_view> name_of(std::string_view name_space) {
  if (name_space.size() < kHashDigits + 2) return std::nullopt;
  const std::size_t dash = name_space.size() - kHashDigits - 1;
  if (name_space[dash] != '-' || !base::is_hex(name_space.substr(dash + 1))) return std::nullopt;
  return name_space.substr(0, dash);
}

}  // namespace

std::optional<EndpointId> parse_endpoint_id(std::string_view text) {
  const std::vector<std::string_view> parts = text::split(text, '/');
  if (parts.size() != 3 || !std::ranges::all_of(parts, is_dns_label)) return std::nullopt;
  return EndpointId{std::string(parts[0]), std::string(parts[1]), std::string(parts[2])};
}

std::string to_string(const EndpointId& id) {
  return id.name_space + "/" + id.component + "/" + id.endpoint;
}

std::optional<std::string> component_name(std::string_view type, std::string_view subtype) {
  if (type.find('-') != type.npos) return std::nullopt;
  std::string name(type);
  if (!subtype.empty()) name.append("-").append(subtype);
  if (!is_dns_label(name)) return std::nullopt;
  return name;
}

std::optional<std::string> namespace_prefix(std::string_view deployment) {
  std::string name(deployment);
  std::replace(name.begin(), name.end(), '.', '-');
  if (name.size() > kMaxPrefix) {
    name.resize(kCutPrefix);
    name += "-" + sha256_hex(deployment).substr(0, kCutDigits);
  }
  if (!is_dns_label(name)) return std::nullopt;
  return name;
}

std::optional<NamespacePattern> NamespacePattern::parse(std::string_view text) {
  const bool has_any_hash = text.ends_with(kAnyHash);
  std::string_view name = text;
  if (has_any_hash) name.remove_suffix(kAnyHash.size());
  if (!is_dns_label(name) || (has_any_hash && name.size() > kMaxPrefix)) return std::nullopt;
  return NamespacePattern(text);
}

bool NamespacePattern::matches(std::string_view name_space) const {
  if (text_ == kGlobalNamespace || text_ == name_space) return true;
  const std::optional<std::string_view> name = name_of(name_space);
  return name && text_ == std::string(*name).append(kAnyHash);
}

}  // namespace fo::fleet
