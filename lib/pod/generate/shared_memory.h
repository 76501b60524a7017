// The volume at /dev/shm, by which the processes of an engine exchange data. Pure.
#pragma once

#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::pod {

inline constexpr std::string_view kSharedMemoryVolume = "shared-memory";

/// The container's mount at /dev/shm; nullptr where it has none.
const yaml::Node* shared_memory_mount(const yaml::Node& container);

/// Takes that mount away, and the volume of the pod that no other container mounts then. The
/// volume's name, or "" where there was no mount.
std::string remove_shared_memory(yaml::Node& pod_spec, yaml::Node& container);

/// Mounts an emptyDir in memory there; 8Gi for no size, as Dynamo's operator has it.
void add_shared_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size);

}  // namespace fo::pod
