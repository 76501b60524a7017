// Endpoint ids: NAMESPACE/COMPONENT/ENDPOINT, three DNS labels. They are compared as a whole and
// never by prefix, so that the namespace of "llama" does not match that of "llama-70b". Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fo::fleet {

/// A router whose namespace is this one uses the workers of every namespace.
inline constexpr std::string_view kGlobalNamespace = "dynamo";

struct EndpointId {
  std::string name_space;
  /// TYPE or TYPE-SUBTYPE.
  std::string component;
  std::string endpoint;

  bool operator==(const EndpointId&) const = default;
};

/// nullopt unless `text` is three DNS labels separated by "/".
std::optional<EndpointId> parse_endpoint_id(std::string_view text);
std::string to_string(const EndpointId& id);

/// TYPE, or TYPE-SUBTYPE if `subtype` is not empty; nullopt if `type` contains a "-", or the result
/// is not a DNS label.
std::optional<std::string> component_name(std::string_view type, std::string_view subtype);

/// The NAME in the namespaces of a deployment: dots become "-", and a name over 46 bytes is cut to
/// 37 and gets "-" and 8 hex digits of the SHA-256 of the whole name. nullopt if the result is not
/// a DNS label.
std::optional<std::string> namespace_prefix(std::string_view deployment);

/// Length of the hash in a namespace, in hex digits.
inline constexpr std::size_t kHashDigits = 16;

/// The value of an option that selects namespaces: a namespace; NAME-*, which stands for NAME, "-"
/// and one hash; or the global namespace, which selects all.
class NamespacePattern {
 public:
  /// nullopt if `text` is not one of these.
  static std::optional<NamespacePattern> parse(std::string_view text);

  [[nodiscard]] bool matches(std::string_view name_space) const;
  /// Returns the text that parse() reads.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  explicit NamespacePattern(std::string_view text) : text_(text) {}

  std::string text_;
};

}  // namespace fo::fleet
