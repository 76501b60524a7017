// The containers of a failover pod that serve its engines: the GMS, the lock server, and the one
// that brings our programs.
#pragma once

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The one of the options; else gms-serve where the toolkit is known to be in the pod, and the
/// module of Dynamo's images for a worker of Dynamo's that waits for the lock by itself. Where
/// neither is known to be there, that is added to the findings.
GmsProgram choose_gms(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// They run as the main container's user: servers and engines only talk to their own.
yaml::Node make_gms_container(const yaml::Node& main, const PodPlan& plan);
yaml::Node make_lockd_container(const yaml::Node& main, const PodPlan& plan);
/// A plain init container: it ends once our programs are in the volume.
yaml::Node make_tools_container(const yaml::Node& main, const PodPlan& plan);

}  // namespace fo::pod
