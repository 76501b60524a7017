// Conflicts of the user's names, volumes, claims and ports with those of a failover pod.
#pragma once

#include <vector>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// Checks the user's original pod spec for conflicts with the generated parts, and for settings of
/// the whole pod that a failover pod does not support.
void check_pod_spec(const yaml::Node& spec, const PodPlan& plan);

/// Refuses a port of an engine that the other engine or a container of the user has, too.
void check_ports(const yaml::Node& spec, const std::vector<PortUse>& engine_ports,
                 const PodPlan& plan);

}  // namespace fo::pod
