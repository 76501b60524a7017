// Kubernetes' own limits on what a pod says: names, ports, and references within the pod. Kinds of
// values are pod_schema.h's. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "pod/located.h"

namespace fo::pod {

/// At most 63 of a-z, 0-9 and "-", no "-" at either end.
bool is_dns_label(std::string_view text);
/// Those with "." between them, at most 253 characters in all.
bool is_dns_subdomain(std::string_view text);
/// The first as a remedy.
inline constexpr const char* kDnsLabelRule = "at most 63 of a-z, 0-9 and -, no - at either end";
/// Of a port: at most 15 of a-z, 0-9 and "-", one letter at least, no "-" at either end or twice.
bool is_port_name(std::string_view text);
/// Of a label: nothing, or at most 63 of letters, digits, "-", "_" and "." between two of the
/// first two kinds.
bool is_label_value(std::string_view text);
/// Sets a label that is not there. False, and nothing is done, for what is no value of a label.
bool add_label(yaml::Node& labels, std::string_view key, const std::string& value);
/// "2", "500m", "8Gi", "1e3"; not below nothing.
bool is_quantity(std::string_view text);

/// A pod as the parts that the input says it in: a DGD has them in several places.
struct PodParts {
  /// The main one first, then init containers and the others.
  std::vector<Located> containers;
  /// Of the main one, beside those that it says.
  std::vector<std::string> more_ports;
  /// Lists; without nodes where the input has none.
  Located volumes;
  Located resource_claims;
  /// Of volumes that come from elsewhere.
  std::vector<std::string> more_volumes;
  /// Claims that the main container is said to use elsewhere.
  Located more_claims;
  Located restart_policy;
};

/// Adds an error for everything that Kubernetes would refuse, and a warning for what it would take
/// though it can't be meant.
void check_pod(const PodParts& pod, Findings& findings);

/// Labels by themselves.
void check_labels(const Located& labels, Findings& findings);
/// A list of EnvVar by itself.
void check_env(const Located& env, Findings& findings);
/// A probe of a container that has those ports, and more by name.
void check_probe(const Located& probe, const Located& ports,
                 const std::vector<std::string>& more_ports, Findings& findings);

}  // namespace fo::pod
