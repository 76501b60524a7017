// The main container as the two engines of a failover pod.
#pragma once

#include <vector>

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

struct Engines {
  /// engine-0 and engine-1.
  std::vector<yaml::Node> containers;
  /// All that they listen on.
  std::vector<PortUse> ports;
};

/// Clones `main`, whose command that is, and which has to be one that says what it runs where it is
/// to be supervised. What can't be made of it is added to the findings.
Engines make_engines(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// Gives a container the GPUs (the claim, or limits of its own), the shared folder and
/// GMS_SOCKET_DIR. `path` is the container's, for what is wrong in it.
void add_gms_access(yaml::Node& container, const PodPlan& plan, const std::string& path);

/// Adds an entry to the container's volumeMounts, unless something of the user's is mounted there
/// already, which is refused.
void mount_volume(yaml::Node& container, const PodPlan& plan, const std::string& path,
                  std::string_view volume, std::string_view folder, bool read_only);

}  // namespace fo::pod
