// A DynamoGraphDeployment, of either version, as what its services want to run. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pod/finding.h"
#include "pod/input_objects.h"
#include "yaml/node.h"

namespace fo::pod {

inline constexpr std::string_view kGpuResource = "nvidia.com/gpu";
/// The name of the container that runs the engine.
inline constexpr std::string_view kMainContainer = "main";

enum class DgdVersion { kV1Alpha1, kV1Beta1 };

struct Service {
  std::string name;
  /// Of its description in the document: "spec.services.VllmWorker", "spec.components[1]".
  std::string path;
  yaml::Position position;
  /// "worker", "prefill", "decode", "frontend" …
  std::string component_type;
  /// Version 1alpha1's: "prefill", "decode"; "" when it says none.
  std::string sub_component_type;
  std::int64_t replicas = 1;
  bool failover = false;
  std::int64_t gpus = 0;
  std::string device_class = "gpu.nvidia.com";
  /// It registers in Dynamo's namespace for all, not in that of its deployment.
  bool global_namespace = false;
  /// It says itself that nothing is to be mounted at /dev/shm.
  bool wants_no_shared_memory = false;
  /// Other containers, by name, that use the GMS (gpuMemoryService.extraClientContainers).
  std::vector<std::string> gms_clients;
  /// A PodTemplateSpec (metadata, spec) with all that version 1alpha1 says beside it merged in, as
  /// Dynamo's operator does: the main container is the one named "main", first in the list; the
  /// user's own init containers and sidecars keep their order. What comes from the input has its
  /// position. GPUs are limits (nvidia.com/gpu) of the main container. A null without failover.
  yaml::Node pod_template;
};

/// An entry of v1alpha1's spec.pvcs with create: true.
struct NewVolumeClaim {
  std::string path;
  /// As written: name, size, storageClass, volumeAccessMode.
  yaml::Node fields;
};

struct Dgd {
  DgdVersion version = DgdVersion::kV1Alpha1;
  std::string name;
  /// "" when it says none.
  std::string name_space;
  /// Of its metadata; a null where it has none.
  yaml::Node annotations;
  std::vector<Service> services;
  std::vector<NewVolumeClaim> volume_claims;
  /// What it may refer to, which read_dgd does not see; never null.
  std::shared_ptr<const InputObjects> inputs = std::make_shared<const InputObjects>();
};

bool is_main(const yaml::Node& container);

/// Whether a document is one, of any version.
bool is_dgd(const yaml::Node& document);

/// Only for what is_dgd. What can't be generated from, or is wrong in itself, is added to
/// `findings` in the order of the document; with an error among them, what is returned is good for
/// looking at only. Of services without failover only what hides whether they have it is an error.
/// Warnings name unknown fields with the nearest known one.
Dgd read_dgd(const yaml::Node& document, Findings& findings);

}  // namespace fo::pod
