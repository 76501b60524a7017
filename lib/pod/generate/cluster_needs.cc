#include "pod/generate/cluster_needs.h"

#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "pod/dgd/discovery.h"

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

// The programs of this toolkit that the pod's containers run.
std::string programs_of(const PodPlan& plan) {
  const bool is_ours = plan.gms == GmsProgram::kOurs;
  const bool has_lockd = plan.options.lock == LockKind::kLockd;
  std::string names;
  const auto add = [&names](bool is_run, const char* name) {
    if (is_run) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(is_ours, "gms-serve");
  add(is_ours || has_lockd || plan.options.supervise, "gms-probe");
  add(plan.options.supervise, "fo-shadow");
  add(has_lockd, "gms-lockd");
  return names;
}

void add_image_needs(Lines& lines, const yaml::Node& main, const PodPlan& plan) {
  const std::string programs = programs_of(plan);
  const std::string image = "image " + main.text_at({"image"});
  if (plan.has_tools()) {
    lines.push_back("image " + plan.options.tools_image + " with fo-podgen" +
                    (programs.empty() ? "" : ", " + programs));
  } else if (!programs.empty()) {
    lines.push_back(image + " with " + programs);
  }
  if (plan.gms == GmsProgram::kUpstream) {
    lines.push_back(image + " with the module gpu_memory_service, as in Dynamo's images");
  }
}

using References = std::set<std::pair<std::string, std::string>>;

void find_reference(const yaml::Node& node, const char* name_field, const char* kind,
                    References& found) {
  const std::string& name = node.text_at({name_field});
  const yaml::Node* optional = node.find("optional");
  const bool is_optional = optional != nullptr && optional->text() == "true";
  if (!name.empty() && !is_optional) found.emplace(kind, name);
}

// The objects that a pod's env, envFrom, volumes and pull secrets refer to, by kind and name.
void find_references(const yaml::Node& node, References& found) {
  struct Reference {
    std::string_view key;
    const char* name;
    const char* kind;
  };
  constexpr std::array<Reference, 8> kReferences = {{
      {"secretRef", "name", "Secret"},
      {"secretKeyRef", "name", "Secret"},
      {"secret", "secretName", "Secret"},
      // The form in a projected volume.
      {"secret", "name", "Secret"},
      {"configMapRef", "name", "ConfigMap"},
      {"configMapKeyRef", "name", "ConfigMap"},
      {"configMap", "name", "ConfigMap"},
      {"persistentVolumeClaim", "claimName", "PersistentVolumeClaim"},
  }};
  for (const yaml::Node& item : node.items()) find_references(item, found);
  for (const yaml::Node::Member& member : node.members()) {
    for (const Reference& reference : kReferences) {
      if (member.key == reference.key) {
        find_reference(member.value, reference.name, reference.kind, found);
      }
    }
    if (member.key == "imagePullSecrets") {
      for (const yaml::Node& item : member.value.items())
        find_reference(item, "name", "Secret", found);
    }
    find_references(member.value, found);
  }
}

void add_account_need(Lines& lines, const yaml::Node& pod_spec, const PodPlan& plan) {
  const yaml::Node* account = pod_spec.find("serviceAccountName");
  if (account == nullptr) account = pod_spec.find("serviceAccount");
  if (account == nullptr ||
      plan.dgd.inputs->has("ServiceAccount", plan.dgd.name_space, account->text())) {
    return;
  }
  const bool is_operators = account->text() == discovery_account(plan);
  lines.push_back((is_operators ? "Dynamo's operator, which creates the service account "
                                : "service account ") +
                  account->text());
}

}  // namespace

std::vector<std::string> cluster_needs(const yaml::Node& pod_spec, const yaml::Node& main,
                                       const std::vector<yaml::Node>& made, const PodPlan& plan) {
  Lines lines;
  add_gpu_needs(lines, plan);
  add_image_needs(lines, main, plan);
  add_account_need(lines, pod_spec, plan);
  References references;
  find_references(pod_spec, references);
  for (const yaml::Node& one : made) {
    references.erase({one.text_at({"kind"}), one.text_at({"metadata", "name"})});
  }
  for (const auto& [kind, name] : references) {
    if (!plan.dgd.inputs->has(kind, plan.dgd.name_space, name)) lines.push_back(kind + " " + name);
  }
  return lines;
}

}  // namespace fo::pod
