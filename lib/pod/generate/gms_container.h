// The service containers of a failover pod: the GMS, the lock server, and the one that installs our
// programs.
#pragma once

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The program from the options; else gms-serve if the toolkit is known to be in the pod, and the
/// module of Dynamo's images for a Dynamo worker that waits for the lock itself. If neither is
/// known to be there, a finding is added.
GmsProgram choose_gms(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// These containers run as the main container's user, because servers and engines accept only peers
/// of their own user.
yaml::Node make_gms_container(const yaml::Node& main, const PodPlan& plan);
yaml::Node make_lockd_container(const yaml::Node& main, const PodPlan& plan);
/// An init container that ends when our programs are in the volume.
yaml::Node make_tools_container(const yaml::Node& main, const PodPlan& plan);

}  // namespace fo::pod
