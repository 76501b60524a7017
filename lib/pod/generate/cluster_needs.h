// Describes the requirements of a failover pod for its cluster and images.
#pragma once

#include <string>
#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// One line each: API versions and feature gates, the GPU driver, contents of images, the creator
/// of the service account, and the Secrets, ConfigMaps and volume claims that the pod refers to.
/// Objects of the input and of `made` are left out.
std::vector<std::string> cluster_needs(const yaml::Node& pod_spec, const yaml::Node& main,
                                       const std::vector<yaml::Node>& made, const PodPlan& plan);

}  // namespace fo::pod
