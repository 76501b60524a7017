// A DynamoGraphDeployment, of either version, as a list of services. Pure.
#pragma once

#include <cstdint>
#include <memory>
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
  /// Path of its description in the document: "spec.services.VllmWorker", "spec.components[1]".
  std::string path;
  yaml::Position position;
  /// "worker", "prefill", "decode", "frontend" …
  std::string component_type;
  /// Only in version 1alpha1: "prefill", "decode"; may be empty.
  std::string sub_component_type;
  std::int64_t replicas = 1;
  bool failover = false;
  std::int64_t gpus = 0;
  std::string device_class = "gpu.nvidia.com";
  /// The service registers in Dynamo's global namespace, not in that of its deployment.
  bool global_namespace = false;
  /// The input requests that nothing is mounted at /dev/shm.
  bool wants_no_shared_memory = false;
  /// Other containers that use the GMS, by name (gpuMemoryService.extraClientContainers).
  std::vector<std::string> gms_clients;
  /// A PodTemplateSpec (metadata, spec) with all other fields of version 1alpha1 merged in, as by
  /// Dynamo's operator: the main container is named "main" and comes first; the user's init
  /// containers and sidecars keep their order. Values from the input have their positions. GPUs are
  /// limits (nvidia.com/gpu) of the main container. A null without failover.
  yaml::Node pod_template;
};

/// An entry of v1alpha1's spec.pvcs with create: true.
struct NewVolumeClaim {
  std::string path;
  /// The fields as the input has them: name, size, storageClass, volumeAccessMode.
  yaml::Node fields;
};

struct Dgd {
  DgdVersion version = DgdVersion::kV1Alpha1;
  std::string name;
  /// May be empty.
  std::string name_space;
  /// The annotations in its metadata; a null if it has none.
  yaml::Node annotations;
  std::vector<Service> services;
  std::vector<NewVolumeClaim> volume_claims;
  /// Objects that it may refer to; read_dgd does not use them. Never null.
  std::shared_ptr<const InputObjects> inputs = std::make_shared<const InputObjects>();
};

bool is_main(const yaml::Node& container);

/// Whether a document is a DynamoGraphDeployment of any version.
bool is_dgd(const yaml::Node& document);

/// `document` must satisfy is_dgd. Fields that are invalid or cannot be supported are added to
/// `findings` in document order; with an error among them, the result is for display only. In a
/// service without failover, the only errors are values that hide whether it has failover. An
/// unknown field gets a warning with the nearest known name.
Dgd read_dgd(const yaml::Node& document, Findings& findings);

}  // namespace fo::pod
