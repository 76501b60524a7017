#include "fleet/record/endpoint_id.h"

#include <algorithm>

#include "base/hex.h"
#include "fleet/card/digest.h"
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
  const std::size_t first = text.find('/');
  const std::size_t last = text.rfind('/');
  if (first == text.npos || first == last) return std::nullopt;
  EndpointId id{std::string(text.substr(0, first)),
                std::string(text.substr(first + 1, last - first - 1)),
                std::string(text.substr(last + 1))};
  for (const std::string* part : {&id.name_space, &id.component, &id.endpoint}) {
    if (!is_dns_label(*part)) return std::nullopt;
  }
  return id;
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
  if (text == kGlobalNamespace) return NamespacePattern(Kind::kAll, text);
  if (is_dns_label(text)) return NamespacePattern(Kind::kExact, text);
  if (!text.ends_with(kAnyHash)) return std::nullopt;
  text.remove_suffix(kAnyHash.size());
  if (!is_dns_label(text) || text.size() > kMaxPrefix) return std::nullopt;
  return NamespacePattern(Kind::kAnyHash, text);
}

bool NamespacePattern::matches(std::string_view name_space) const {
  switch (kind_) {
    case Kind::kAll:
      return true;
    case Kind::kExact:
      return name_space == name_;
    case Kind::kAnyHash:
      break;
  }
  return name_of(name_space) == name_;
}

std::string NamespacePattern::text() const {
  return kind_ == Kind::kAnyHash ? name_ + std::string(kAnyHash) : name_;
}

}  // namespace fo::fleet
