// The probes of an engine's container. They use its system port, which has its own number and name
// for each engine.
#pragma once

#include <string>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The name of an engine's system port: "system-0".
std::string system_port_name(int engine);

/// Adds findings for probes and hooks of the user that do not work at that port.
void check_probes(const yaml::Node& main, const PodPlan& plan);

/// Adds missing probes, and points all probes, and hooks at a port of the main container, to the
/// engine's port.
void set_probes(yaml::Node& container, const yaml::Node& main, int engine);

}  // namespace fo::pod
