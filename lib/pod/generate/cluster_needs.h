// What a failover pod asks of its cluster and images beside what is written, in words.
#pragma once

#include <string>
#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// A line each: API versions and feature gates, the GPU driver, what has to be in the images, who
/// makes the service account, and the Secrets, InputObjects and volume claims that the pod names.
/// What the input brings along, or `made` has, is left out.
std::vector<std::string> cluster_needs(const yaml::Node& pod_spec, const yaml::Node& main,
                                       const std::vector<yaml::Node>& made, const PodPlan& plan);

}  // namespace fo::pod
