// The probes of an engine's container. They go to its system port, which differs from engine to
// engine, under a name of its own.
#pragma once

#include <string>

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// "system-0".
std::string system_port_name(int engine);

/// Adds what the user's probes and hooks can't have at that port to the findings.
void check_probes(const yaml::Node& main, const PodPlan& plan);

/// Adds the probes that the container has none of, and has all of them, and hooks at a port that
/// the main container declares, go to the engine's port.
void set_probes(yaml::Node& container, const yaml::Node& main, int engine);

}  // namespace fo::pod
