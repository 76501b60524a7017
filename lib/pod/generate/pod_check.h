// What can't be together in one pod: names, volumes, claims and ports of the user's that are those
// of a failover pod.
#pragma once

#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// Of the user's pod spec, as it came: what collides with what is going to be added, and settings
/// of the whole pod with which a failover pod can't be run.
void check_pod_spec(const yaml::Node& spec, const PodPlan& plan);

/// Of the user's containers but the main one, and of what the engines listen on.
void check_ports(const yaml::Node& spec, const std::vector<PortUse>& engine_ports,
                 const PodPlan& plan);

}  // namespace fo::pod
