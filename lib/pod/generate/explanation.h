// The result for a graph deployment, service by service, for display.
#pragma once

#include <string>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

struct ServiceExplanation {
  std::string name;
  /// "worker", "frontend" …; may be empty.
  std::string component_type;
  bool failover = false;
  /// Whether the service, or the whole deployment, was refused.
  bool refused = false;
  /// One line for each object: "Deployment chat-worker: 1 replica of engine-0, engine-1,
  /// gms-weights".
  std::vector<std::string> writes;
  /// Requirements besides these objects (cluster_needs.h).
  std::vector<std::string> needs;
  Findings findings;
};

struct DgdExplanation {
  std::string name;
  std::string name_space;
  std::vector<ServiceExplanation> services;
  /// First unknown fields, including those of services, because they may change the meaning of
  /// others; then findings outside any service.
  Findings findings;
};

/// One line for a generated object: "Deployment chat-worker: 2 replicas of engine-0, engine-1,
/// gms-weights".
std::string describe(const yaml::Node& manifest);

/// The explanation of a deployment, without `writes` and `needs`. Findings other than unknown
/// fields are assigned to services by their path.
DgdExplanation explain(const Dgd& dgd, const Findings& findings);

}  // namespace fo::pod
