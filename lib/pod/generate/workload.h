// The objects around a failover pod: its claim template, and the Pod or Deployment.
#pragma once

#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The PersistentVolumeClaims that the deployment requests and this service is the first to use;
/// none if the deployment stays, because its operator creates them. Missing fields are added to the
/// findings.
std::vector<yaml::Node> make_volume_claims(const PodPlan& plan);

/// The ResourceClaimTemplate, in the API version of the cluster. A cluster that is too old is added
/// to the findings.
yaml::Node make_claim_template(const PodPlan& plan);

/// The Pod or Deployment with the pod template (metadata, spec).
yaml::Node make_workload(yaml::Node pod_template, const PodPlan& plan);

}  // namespace fo::pod
