// What a graph deployment becomes, service by service, in the order in which a user reads it.
#pragma once

#include <string>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

struct ServiceExplanation {
  std::string name;
  /// "worker", "frontend" …; "" where none is said.
  std::string component_type;
  bool failover = false;
  /// It, or the whole deployment.
  bool refused = false;
  /// A line for each object: "Deployment chat-worker: 1 replica of engine-0, engine-1,
  /// gms-weights".
  std::vector<std::string> writes;
  /// What has to be there beside them (cluster_needs.h).
  std::vector<std::string> needs;
  Findings findings;
};

struct DgdExplanation {
  std::string name;
  std::string name_space;
  std::vector<ServiceExplanation> services;
  /// Unknown fields, those of services too: what depends on them is not as it is meant. Then what
  /// is outside any service.
  Findings findings;
};

/// "Deployment chat-worker: 2 replicas of engine-0, engine-1, gms-weights".
std::string describe(const yaml::Node& manifest);

/// Everything but what is generated; each finding but unknown fields goes to the service whose path
/// it has.
DgdExplanation explain(const Dgd& dgd, const Findings& findings);

}  // namespace fo::pod
