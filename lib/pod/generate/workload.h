// The objects around a failover pod: the template of its claim, and the Pod or Deployment.
#pragma once

#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The PersistentVolumeClaims that the deployment asks for and this service is the first to use;
/// none while the deployment stays, whose operator makes them. What they lack is added to the
/// findings.
std::vector<yaml::Node> make_volume_claims(const PodPlan& plan);

/// The ResourceClaimTemplate, in the API's version of the cluster. One that is too old is added to
/// the findings.
yaml::Node make_claim_template(const PodPlan& plan);

/// The pod template (metadata, spec) as what is applied.
yaml::Node make_workload(yaml::Node pod_template, const PodPlan& plan);

}  // namespace fo::pod
