// The endpoint ids of a DynamoGraphDeployment, and the hash in them. The hash covers all workers
// together, so that prefill and decode change their namespace together. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fleet/record/endpoint_id.h"
#include "yaml/node.h"

namespace fo::fleet {

struct ServiceId {
  std::string service;
  EndpointId id;
};

struct DeploymentIds {
  std::string deployment;
  /// kHashDigits hex digits.
  std::string hash;
  /// Services in the order of their names.
  std::vector<ServiceId> services;
};

/// The ids of all services of a document that satisfies pod::is_dgd.
///
/// The hash is the first kHashDigits digits of the SHA-256 over the canonical JSON of all services
/// except frontends and planners, by name, with the deployment's environment and backend. Members
/// that do not change what a worker runs are left out: replicas, autoscaling, ingress, labels and
/// annotations. Neither the order of members and services nor anchors change it.
///
/// The component is TYPE, or TYPE-SUBTYPE. Without a subtype, the types "prefill" and "decode" are
/// subtypes of "worker"; a missing type is "default". The namespace of a service with
/// globalDynamoNamespace is kGlobalNamespace.
///
/// `endpoint` must be a DNS label, `file` is a name for messages. Throws Error(kBadData)
/// "FILE:LINE:COLUMN: path: reason" for an unknown version, an invalid or missing name, a service
/// name that appears twice, and a type that cannot be part of an id.
DeploymentIds deployment_ids(const yaml::Node& dgd, std::string_view endpoint,
                             const std::string& file);

}  // namespace fo::fleet
