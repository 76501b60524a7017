// The volume at /dev/shm, through which an engine's processes exchange data. Pure.
#pragma once

#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::pod {

inline constexpr std::string_view kSharedMemoryVolume = "shared-memory";

/// The container's mount at /dev/shm; nullptr if it has none.
const yaml::Node* shared_memory_mount(const yaml::Node& container);

/// Removes that mount, and the pod's volume unless another container mounts it. Returns the
/// volume's name, or "" without a mount.
std::string remove_shared_memory(yaml::Node& pod_spec, yaml::Node& container);

/// Mounts an emptyDir in memory there; the default size is 8Gi, as in Dynamo's operator.
void add_shared_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size);

}  // namespace fo::pod
