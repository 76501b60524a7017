// A service with failover as the manifests that run it: two engines and a GMS in one pod. Pure; the
// same input gives the same output.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// The seeds' plan, or what NVIDIA's operator writes.
enum class PodLayout { kPlan, kDynamo };
enum class GpuSharing { kDra, kDevicePlugin };
enum class LockKind { kFlock, kLockd };
/// gms-serve, or the module of Dynamo's image.
enum class GmsProgram { kOurs, kUpstream };
enum class WorkloadKind { kPod, kDeployment };

struct KubeVersion {
  int major = 1;
  int minor = 34;
  auto operator<=>(const KubeVersion&) const = default;
};

struct GenerateOptions {
  PodLayout layout = PodLayout::kPlan;
  KubeVersion kube_version;
  GpuSharing gpu_sharing = GpuSharing::kDra;
  LockKind lock = LockKind::kFlock;
  /// None: gms-serve where it is known to be in the pod, or else, for a worker of Dynamo's that
  /// waits for the lock by itself, the module.
  std::optional<GmsProgram> gms;
  WorkloadKind kind = WorkloadKind::kDeployment;
  /// An init container of this image brings our programs; "": they are in the engine's image.
  std::string tools_image;
  /// Every engine's command runs under fo-shadow.
  bool supervise = false;
  /// fo-shadow's --engine; "": by the command. Without `supervise`, "dynamo" says of a program that
  /// is not known that it is a worker dynamo.vllm.
  std::string engine;
  /// The pod gets what Dynamo's operator gives every pod (operator_defaults.h).
  bool operator_defaults = true;
};

/// The names that --layout chooses.
struct LayoutNames {
  std::string gms_container;
  std::string volume;
  std::string folder;
  std::string claim;
};
LayoutNames layout_names(PodLayout layout);

struct FailoverPod {
  /// In the order in which they are to be applied: volume claims that nobody else would make, the
  /// claim template, then the Pod or Deployment.
  std::vector<yaml::Node> manifests;
  /// What has to be there beside them (cluster_needs.h).
  std::vector<std::string> needs;
  /// Its engines are found by container, which those who look for them have to be told.
  bool registers_by_container = false;
};

/// For a service with failover of which read_dgd found nothing wrong. What only shows here (a
/// shell command that can't be edited, ports that collide) is added to `findings`.
FailoverPod generate(const Dgd& dgd, const Service& service, const GenerateOptions& options,
                     Findings& findings);

}  // namespace fo::pod
