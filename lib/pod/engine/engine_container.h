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
  /// All ports that the engines and fo-shadow listen on.
  std::vector<PortUse> ports;
};

/// Creates two engines from `main`, whose command is `command`. Problems are added to the findings,
/// among them, with --supervise, that the container has no command.
Engines make_engines(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// Adds the GPUs (the claim, or limits), the shared folder and GMS_SOCKET_DIR to a container.
/// `path` is its path, for findings.
void add_gms_access(yaml::Node& container, const PodPlan& plan, const std::string& path);

/// Adds an entry to the container's volumeMounts. Refuses a mount of the user at `folder`, or at a
/// path in it where it would hide files of the toolkit. `path` is the container's, for findings.
void mount_volume(yaml::Node& container, const PodPlan& plan, const std::string& path,
                  std::string_view volume, std::string_view folder, bool read_only);

}  // namespace fo::pod
