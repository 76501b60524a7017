#include "pod/generate/workload.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "pod/dgd/discovery.h"
#include "pod/dgd/operator_defaults.h"
#include "pod/kube_names.h"

namespace fo::pod {
namespace {

constexpr std::string_view kGraphLabel = "nvidia.com/dynamo-graph-deployment-name";
constexpr std::string_view kComponentLabel = "nvidia.com/dynamo-component";

// The time that the startup probes of GMS and engine allow.
constexpr int kProgressSeconds = 150 * 2 + 720 * 10;

yaml::Node start_object(const char* version, const char* kind, std::string name,
                        const PodPlan& plan) {
  yaml::Node metadata = yaml::Node::map({{"name", yaml::Node::string(std::move(name))}});
  if (!plan.dgd.name_space.empty()) {
    metadata.set("namespace", yaml::Node::string(plan.dgd.name_space));
  }
  return yaml::Node::map({{"apiVersion", yaml::Node::string(version)},
                          {"kind", yaml::Node::string(kind)},
                          {"metadata", std::move(metadata)}});
}

// The labels that identify the pods permanently.
yaml::Node make_selector(const PodPlan& plan) {
  return yaml::Node::map({{std::string(kGraphLabel), yaml::Node::string(plan.dgd.name)},
                          {std::string(kComponentLabel), yaml::Node::string(plan.service.name)}});
}

yaml::Node make_labels(const yaml::Node* own, const PodPlan& plan) {
  yaml::Node labels = own == nullptr ? yaml::Node::map() : *own;
  if (!plan.is_dynamo() && !plan.is_found_by_kubernetes) {
    // The engines are discovered through etcd.
    for (const char* const key : {"dynamo-discovery-backend", "dynamo-discovery-enabled"}) {
      labels.remove(key);
      labels.remove("nvidia.com/" + std::string(key));
    }
  }
  const yaml::Node selector = make_selector(plan);
  for (const yaml::Node::Member& member : selector.members()) labels.set(member.key, member.value);
  const auto add = [&labels](std::string_view key, const std::string& value) {
    // A value that is too long for a label is left out.
    if (!value.empty()) add_label(labels, key, value);
  };
  add("app.kubernetes.io/name", plan.workload_name());
  add("nvidia.com/dynamo-component-type", plan.service.component_type);
  add("nvidia.com/dynamo-sub-component-type", plan.service.sub_component_type);
  add_discovery_labels(labels, plan);
  add_operator_labels(labels, plan);
  return labels;
}

void check_workload(const PodPlan& plan) {
  const bool is_shared = std::any_of(
      plan.dgd.services.begin(), plan.dgd.services.end(), [&plan](const Service& other) {
        return other.failover && other.name != plan.service.name &&
               PodPlan(plan.dgd, other, plan.options, plan.findings).workload_name() ==
                   plan.workload_name();
      });
  if (is_shared) {
    plan.refuse(base::quoted(plan.workload_name()) + ": pods of another service use this name",
                "rename one of them");
  }
  if (plan.options.kind == WorkloadKind::kPod && plan.service.replicas != 1) {
    plan.refuse(std::to_string(plan.service.replicas) + " replicas: kind pod allows only one",
                "use --kind deployment, or 1 replica");
  }
}

bool uses_volume_claim(const Service& service, const std::string& claim) {
  const std::vector<yaml::Node>& volumes = service.pod_template.items_at({"spec", "volumes"});
  return std::any_of(volumes.begin(), volumes.end(), [&](const yaml::Node& volume) {
    const yaml::Node* name = volume.find_path({"persistentVolumeClaim", "claimName"});
    return name != nullptr && name->text() == claim;
  });
}

// Refuses a claim without a required field.
yaml::Node make_volume_claim(const NewVolumeClaim& claim, const std::string& name,
                             const PodPlan& plan) {
  const auto need = [&](const char* field) {
    if (claim.fields.find(field) == nullptr) {
      plan.refuse(claim.fields.position(), claim.path,
                  std::string(field) + ": missing, for a claim to create", "set it");
    }
    return claim.fields.text_at({field});
  };
  const std::string mode = need("volumeAccessMode");
  const std::string size = need("size");
  yaml::Node spec = yaml::Node::map(
      {{"accessModes", yaml::Node::strings({mode})},
       {"resources",
        yaml::Node::map(
            {{"requests", yaml::Node::map({{"storage", yaml::Node::string(size)}})}})}});
  if (const yaml::Node* storage = claim.fields.find("storageClass")) {
    spec.set("storageClassName", yaml::Node::string(storage->text()));
  }
  yaml::Node made = start_object("v1", "PersistentVolumeClaim", name, plan);
  made.set("spec", std::move(spec));
  return made;
}

}  // namespace

std::vector<yaml::Node> make_volume_claims(const PodPlan& plan) {
  std::vector<yaml::Node> made;
  const std::vector<Service>& services = plan.dgd.services;
  if (std::any_of(services.begin(), services.end(),
                  [](const Service& service) { return !service.failover; })) {
    return made;
  }
  for (const NewVolumeClaim& claim : plan.dgd.volume_claims) {
    const yaml::Node* name = claim.fields.find("name");
    if (name == nullptr) continue;
    const auto first = std::find_if(services.begin(), services.end(), [&](const Service& service) {
      return uses_volume_claim(service, name->text());
    });
    if (first == services.end() || first->name != plan.service.name) continue;
    made.push_back(make_volume_claim(claim, name->text(), plan));
  }
  return made;
}

yaml::Node make_claim_template(const PodPlan& plan) {
  const KubeVersion& version = plan.options.kube_version;
  if (version < KubeVersion{1, 32}) {
    plan.refuse(plan.kubernetes() + ": claims for devices need 1.32",
                "use --gpu-sharing device-plugin, or a later --kube-version");
  }
  const bool is_old = version <= KubeVersion{1, 32};
  const char* api = "resource.k8s.io/v1";
  if (is_old) {
    api = "resource.k8s.io/v1beta1";
  } else if (version == KubeVersion{1, 33}) {
    api = "resource.k8s.io/v1beta2";
  }
  yaml::Node exactly =
      yaml::Node::map({{"deviceClassName", yaml::Node::string(plan.service.device_class)},
                       {"allocationMode", yaml::Node::string("ExactCount")},
                       {"count", yaml::Node::integer(plan.service.gpus)}});
  yaml::Node request = yaml::Node::map({{"name", yaml::Node::string("gpus")}});
  if (is_old) {
    // Before v1beta2 a request had no alternatives, and these were its own fields.
    for (yaml::Node::Member& member : exactly.members()) {
      request.set(member.key, std::move(member.value));
    }
  } else {
    request.set("exactly", std::move(exactly));
  }
  yaml::Node claim = start_object(api, "ResourceClaimTemplate", plan.claim_template_name(), plan);
  yaml::Node devices = yaml::Node::map({{"requests", yaml::Node::list({std::move(request)})}});
  claim.set("spec",
            yaml::Node::map({{"spec", yaml::Node::map({{"devices", std::move(devices)}})}}));
  return claim;
}

yaml::Node make_workload(yaml::Node pod_template, const PodPlan& plan) {
  check_workload(plan);
  yaml::Node metadata =
      pod_template.find("metadata") == nullptr ? yaml::Node::map() : *pod_template.find("metadata");
  const yaml::Node labels = make_labels(metadata.find("labels"), plan);
  metadata.set("labels", labels);
  if (plan.is_dynamo() || plan.is_found_by_kubernetes) {
    metadata["annotations"].set(kDiscoveryMode,
                                yaml::Node::string(std::string(kDiscoveryByContainer)));
  }
  yaml::Node spec = std::move(pod_template["spec"]);

  if (plan.options.kind == WorkloadKind::kPod) {
    yaml::Node pod = start_object("v1", "Pod", plan.workload_name(), plan);
    for (yaml::Node::Member& member : metadata.members()) {
      if (member.key == "name" || member.key == "namespace") continue;
      pod["metadata"].set(member.key, std::move(member.value));
    }
    pod.set("spec", std::move(spec));
    return pod;
  }

  yaml::Node deployment = start_object("apps/v1", "Deployment", plan.workload_name(), plan);
  deployment["metadata"].set("labels", labels);
  yaml::Node content =
      yaml::Node::map({{"metadata", std::move(metadata)}, {"spec", std::move(spec)}});
  // The GPUs of a pod are free for its successor only after its end, so pods are replaced one after
  // another.
  yaml::Node rolling = yaml::Node::map(
      {{"maxSurge", yaml::Node::integer(0)}, {"maxUnavailable", yaml::Node::integer(1)}});
  deployment.set(
      "spec",
      yaml::Node::map({{"replicas", yaml::Node::integer(plan.service.replicas)},
                       {"selector", yaml::Node::map({{"matchLabels", make_selector(plan)}})},
                       {"strategy", yaml::Node::map({{"type", yaml::Node::string("RollingUpdate")},
                                                     {"rollingUpdate", std::move(rolling)}})},
                       {"progressDeadlineSeconds", yaml::Node::integer(kProgressSeconds)},
                       {"template", std::move(content)}}));
  return deployment;
}

}  // namespace fo::pod
