// Turns the main container into the two engines of a failover pod.
#pragma once

#include <vector>

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

struct Engines {
  /// engine-0 and engine-1.
  std::vector<yaml::Node> containers;
  /// All ports that they listen on.
  std::vector<PortUse> ports;
};

/// Clones `main`, whose command is `command`; with --supervise, the container must have one.
/// Problems are added to the findings.
Engines make_engines(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// Adds the GPUs (the claim, or limits), the shared folder and GMS_SOCKET_DIR to a container.
/// `path` is its path, for findings.
void add_gms_access(yaml::Node& container, const PodPlan& plan, const std::string& path);

/// Adds an entry to the container's volumeMounts; refuses a mount of the user's at the same path.
void mount_volume(yaml::Node& container, const PodPlan& plan, const std::string& path,
                  std::string_view volume, std::string_view folder, bool read_only);

}  // namespace fo::pod
