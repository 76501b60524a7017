// Kubernetes' own rules for a pod: names, ports, and references within the pod. pod_schema.h checks
// the kinds of values. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "pod/located.h"

namespace fo::pod {

/// At most 63 of a-z, 0-9 and "-", no "-" at either end.
bool is_dns_label(std::string_view text);
/// DNS labels separated by ".", at most 253 characters.
bool is_dns_subdomain(std::string_view text);
/// The rule of is_dns_label, for remedies.
inline constexpr const char* kDnsLabelRule = "at most 63 of a-z, 0-9 and -, no - at either end";
/// A port name: at most 15 of a-z, 0-9 and "-", with at least one letter, and no "-" at either end
/// or twice in a row.
bool is_port_name(std::string_view text);
/// A label value: empty, or at most 63 of letters, digits, "-", "_" and ".", with a letter or digit
/// at both ends.
bool is_label_value(std::string_view text);
/// Adds a label unless it exists. Returns false and does nothing for an invalid value.
bool add_label(yaml::Node& labels, std::string_view key, const std::string& value);
/// A non-negative quantity: "2", "500m", "8Gi", "1e3".
bool is_quantity(std::string_view text);

/// The parts of a pod, which a DGD has in several places.
struct PodParts {
  /// The main container first, then init containers and the others.
  std::vector<Located> containers;
  /// Port names of the main container that are not in the input.
  std::vector<std::string> more_ports;
  /// Lists; without nodes if the input has none.
  Located volumes;
  Located resource_claims;
  /// Names of volumes from elsewhere in the input.
  std::vector<std::string> more_volumes;
  /// Claims of the main container from elsewhere in the input.
  Located more_claims;
  Located restart_policy;
};

/// Adds an error for everything that Kubernetes would refuse, and a warning for valid but
/// unintended settings.
void check_pod(const PodParts& pod, Findings& findings);

/// Checks labels alone.
void check_labels(const Located& labels, Findings& findings);
/// Checks a list of EnvVar alone.
void check_env(const Located& env, Findings& findings);
/// Checks a probe of a container with these ports and additional port names.
void check_probe(const Located& probe, const Located& ports,
                 const std::vector<std::string>& more_ports, Findings& findings);

}  // namespace fo::pod
