// Generates the manifests of a service with failover: two engines and a GMS in one pod. Pure; equal
// input gives equal output.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "yaml/node.h"

namespace fo::pod {

/// The names that this toolkit chooses, or those of Dynamo's operator.
enum class PodLayout { kPlan, kDynamo };
enum class GpuSharing { kDra, kDevicePlugin };
enum class LockKind { kFlock, kLockd };
/// gms-serve, or the module in Dynamo's image.
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
  /// Default: gms-serve if it is known to be in the pod; else the module, for a Dynamo worker that
  /// waits for the lock itself.
  std::optional<GmsProgram> gms;
  WorkloadKind kind = WorkloadKind::kDeployment;
  /// An init container of this image installs our programs; "": they are in the engine's image.
  std::string tools_image;
  /// Run every engine's command under fo-shadow.
  bool supervise = false;
  /// The value of fo-shadow's --engine; "": derived from the command. Without `supervise`, "dynamo"
  /// declares an unknown program to be a worker dynamo.vllm.
  std::string engine;
  /// Add the settings that Dynamo's operator adds to every pod (operator_defaults.h).
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
  /// In the order in which to apply them: volume claims that nothing else creates, the claim
  /// template, then the Pod or Deployment.
  std::vector<yaml::Node> manifests;
  /// Requirements besides these objects (cluster_needs.h).
  std::vector<std::string> needs;
  /// True if the engines register by container; the rest of the deployment needs an annotation with
  /// that.
  bool registers_by_container = false;
};

/// Generates the objects of `service`, which must have failover and no error from read_dgd.
/// Problems that only show here (a shell command that cannot be edited, ports that collide) are
/// added to `findings`.
FailoverPod generate(const Dgd& dgd, const Service& service, const GenerateOptions& options,
                     Findings& findings);

}  // namespace fo::pod
