#include "pod/cluster_needs.h"

#include <set>

namespace fo::pod {
namespace {

using Lines = std::vector<std::string>;

void add_gpu_needs(Lines& lines, const PodPlan& plan) {
  const std::int64_t gpus = plan.service.gpus;
  if (plan.options.gpu_sharing == GpuSharing::kDevicePlugin) {
    lines.push_back("NVIDIA's device plugin, with each GPU shared by time-slicing or MPS: " +
                    std::to_string(kEngines + 1) + " containers ask for " + std::to_string(gpus) +
                    " each");
    return;
  }
  if (plan.options.kube_version >= KubeVersion{1, 34}) {
    lines.push_back("Kubernetes 1.34 or later, which serves resource.k8s.io/v1 by default");
  } else {
    lines.push_back(plan.kubernetes() + " with the feature gate DynamicResourceAllocation and " +
                    (plan.options.kube_version == KubeVersion{1, 33} ? "resource.k8s.io/v1beta2"
                                                                     : "resource.k8s.io/v1beta1") +
                    " switched on, which it has off by default");
  }
  lines.push_back("NVIDIA's DRA driver for GPUs, and its DeviceClass " + plan.service.device_class);
}

void add_image_needs(Lines& lines, const Node& main, const PodPlan& plan) {
  const std::string programs = std::string("gms-serve, gms-probe") +
                               (plan.options.supervise ? ", fo-shadow" : "") +
                               (plan.options.lock == LockKind::kLockd ? ", gms-lockd" : "");
  const std::string image = "image " + main.text_at({"image"});
  if (plan.has_tools()) {
    lines.push_back("image " + plan.options.tools_image + " with fo-podgen, " + programs);
  } else if (plan.gms == GmsProgram::kOurs) {
    lines.push_back(image + " with " + programs);
  }
  if (plan.gms == GmsProgram::kUpstream) {
    lines.push_back(image + " with the module gpu_memory_service, which Dynamo's have");
  }
}

// Of what a pod's env, envFrom, volumes and secrets name.
void find_references(const Node& node, std::set<std::string>& found) {
  struct Reference {
    const char* key;
    const char* name;
    const char* kind;
  };
  constexpr Reference kReferences[] = {
      {"secretRef", "name", "Secret"},
      {"secretKeyRef", "name", "Secret"},
      {"secret", "secretName", "Secret"},
      {"configMapRef", "name", "ConfigMap"},
      {"configMapKeyRef", "name", "ConfigMap"},
      {"configMap", "name", "ConfigMap"},
      {"persistentVolumeClaim", "claimName", "PersistentVolumeClaim"},
  };
  for (const Node& item : node.items()) find_references(item, found);
  for (const Node::Member& member : node.members()) {
    for (const Reference& reference : kReferences) {
      if (member.key != reference.key) continue;
      const std::string& name = member.value.text_at({reference.name});
      const Node* optional = member.value.find("optional");
      const bool is_optional = optional != nullptr && optional->text() == "true";
      if (!name.empty() && !is_optional) found.insert(std::string(reference.kind) + " " + name);
    }
    find_references(member.value, found);
  }
}

}  // namespace

std::vector<std::string> cluster_needs(const Node& pod_spec, const Node& main,
                                       const std::vector<Node>& made, const PodPlan& plan) {
  Lines lines;
  add_gpu_needs(lines, plan);
  add_image_needs(lines, main, plan);
  if (plan.is_found_by_kubernetes) {
    lines.push_back("Dynamo's operator, which makes the service account " +
                    pod_spec.text_at({"serviceAccountName"}));
  }
  std::set<std::string> references;
  find_references(pod_spec, references);
  for (const Node& one : made) {
    references.erase(one.text_at({"kind"}) + " " + one.text_at({"metadata", "name"}));
  }
  for (const std::string& reference : references) {
    constexpr std::string_view kMap = "ConfigMap ";
    const bool is_here =
        reference.starts_with(kMap) &&
        plan.dgd.config_maps.data(plan.dgd.name_space, reference.substr(kMap.size())) != nullptr;
    if (!is_here) lines.push_back(reference);
  }
  return lines;
}

}  // namespace fo::pod
