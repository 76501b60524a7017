// Version 1alpha1: parts of a service's pod are fields of the service, which are merged here.
#include <utility>

#include "base/error.h"
#include "pod/dgd/dgd_service.h"
#include "pod/dgd/pod_schema.h"
#include "pod/kube_names.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

/// A copy of the main container with the name that the operator gives it.
yaml::Node named_main(const Located& container, Findings& findings) {
  yaml::Node main;
  main.set("name", yaml::Node::string(std::string(kMainContainer)));
  if (container.node == nullptr) return main;
  main.at(container.node->position());
  for (const yaml::Node::Member& member : container.node->members()) {
    if (member.key != "name") main.members().push_back(member);
  }
  const Located name = container.member("name");
  if (name.node != nullptr && text_of(name) != kMainContainer) {
    warn(findings, name, base::quoted(text_of(name)) + ": the main container is named 'main'",
         "leave it out");
  }
  return main;
}

/// A service's resources.limits or requests, in the form of a container's.
yaml::Node container_amounts(const yaml::Node* amounts) {
  yaml::Node out;
  if (amounts == nullptr) return out;
  for (const char* key : {"cpu", "memory"}) {
    if (const yaml::Node* amount = amounts->find(key)) out.set(key, *amount);
  }
  const yaml::Node* type = amounts->find("gpuType");
  if (const yaml::Node* gpus = amounts->find("gpu")) {
    out.set(type != nullptr && !type->text().empty() ? type->text() : std::string(kGpuResource),
            *gpus);
  }
  merge_map(out, amounts->find("custom"));
  return out;
}

void merge_resources(yaml::Node& main, const yaml::Node* resources) {
  if (resources == nullptr) return;
  yaml::Node& own = main["resources"];
  if (!own.is_null() && !own.is_map()) return;
  for (const char* key : {"limits", "requests"}) {
    yaml::Node amounts = container_amounts(resources->find(key));
    merge_map(amounts, own.find(key));
    if (!amounts.is_null()) own.set(key, std::move(amounts));
  }
  const yaml::Node* claims = resources->find("claims");
  if (claims == nullptr) return;
  yaml::Node all = *claims;
  for (const yaml::Node& claim : own.items_at({"claims"})) all.push_back(claim);
  own.set("claims", std::move(all));
}

void merge_secret(yaml::Node& main, const yaml::Node* secret) {
  if (secret == nullptr) return;
  yaml::Node source;
  source["secretRef"].set("name", *secret);
  yaml::Node all = yaml::Node::list({std::move(source)});
  for (const yaml::Node& one : main.items_at({"envFrom"})) all.push_back(one);
  main.set("envFrom", std::move(all));
}

yaml::Node merged_metadata(const Located& spec, const Located& service) {
  yaml::Node metadata;
  for (const char* key : {"labels", "annotations"}) {
    yaml::Node all;
    merge_map(all, spec.member(key).node);
    merge_map(all, service.member(key).node);
    merge_map(all, service.member("extraPodMetadata").member(key).node);
    if (!all.is_null()) metadata.set(key, std::move(all));
  }
  return metadata;
}

class ServiceReader {
 public:
  ServiceReader(const Located& spec, Located service, Findings& findings)
      : spec_(spec),
        at_(std::move(service)),
        pod_at_(at_.member("extraPodSpec")),
        main_at_(pod_at_.member("mainContainer")),
        findings_(findings) {}

  void read(Service& service) {
    find_parts();
    check();
    // The checks use this copy, because check_probe needs the container's name.
    const yaml::Node main = named_main(main_at_, findings_);
    for (const char* probe : {"livenessProbe", "readinessProbe"}) {
      check_probe(at_.member(probe), {&main, main_at_.path}, findings_);
    }
    if (main_at_.node != nullptr) parts_.containers.push_back({&main, main_at_.path});
    for (const char* key : {"initContainers", "containers"}) {
      for (Located& one : items_of(pod_at_.member(key))) {
        parts_.containers.push_back(std::move(one));
      }
    }
    service.pod_template = pod_template(main);
    service.wants_no_shared_memory = is_true(at_.member("sharedMemory").member("disabled"));
    service.global_namespace = is_true(at_.member("globalDynamoNamespace"));
    check_service(parts_, DgdVersion::kV1Alpha1, service, findings_);
  }

 private:
  void find_parts() {
    parts_.service = at_;
    parts_.component_type = at_.member("componentType");
    parts_.multinode = at_.member("multinode");
    parts_.failover = at_.member("failover");
    parts_.gpu_memory_service = at_.member("gpuMemoryService");
    parts_.restart_policy = pod_at_.member("restartPolicy");
  }

  void check() {
    if (main_at_.node == nullptr) {
      add(findings_, {Severity::kError, at_.node->position(), main_at_.path, "no main container",
                      "set mainContainer with its image"});
    }
    const Located gms = parts_.gpu_memory_service.member("enabled");
    if (gms.node != nullptr && yaml::as_boolean(*gms.node) == false) {
      refuse(findings_, gms, "failover needs the GPU memory service",
             "set it to true, or leave gpuMemoryService out");
    }
    const Located sidecar = at_.member("frontendSidecar");
    if (sidecar.node != nullptr) {
      refuse(findings_, sidecar, "only Dynamo's operator creates this container",
             "write it among extraPodSpec.containers");
    }
    check_gpu_type();
    warn_not_carried(
        at_,
        {"checkpoint", "eppConfig", "ingress", "modelRef", "scalingAdapter", "topologyConstraint"},
        findings_);
  }

  void check_gpu_type() {
    const Located limits = at_.member("resources").member("limits");
    const Located plain = limits.member("gpu");
    const Located custom = limits.member("custom").member(kGpuResource);
    parts_.gpus = custom.node == nullptr ? plain : custom;
    if (custom.node != nullptr && plain.node != nullptr && text_of(custom) != text_of(plain)) {
      refuse(findings_, custom,
             base::quoted(text_of(custom)) + ": it replaces gpu: " + base::quoted(text_of(plain)),
             "leave one of them out");
    }
    const Located own = main_at_.member("resources").member("limits").member(kGpuResource);
    if (own.node != nullptr) parts_.gpus = own;
    for (const char* key : {"limits", "requests"}) {
      const Located type = at_.member("resources").member(key).member("gpuType");
      if (type.node != nullptr && text_of(type) != kGpuResource) {
        refuse(findings_, type,
               base::quoted(text_of(type)) + ": failover shares NVIDIA's GPUs only",
               "leave it out");
      }
    }
  }

  yaml::Node pod_template(const yaml::Node& own_main) {
    yaml::Node main = own_main;
    yaml::Node env =
        merge_env({spec_.member("envs").node, at_.member("envs").node, own_main.find("env")});
    if (!env.is_null()) main.set("env", std::move(env));
    merge_secret(main, at_.member("envFromSecret").node);
    for (const char* probe : {"livenessProbe", "readinessProbe"}) {
      const yaml::Node* said = at_.member(probe).node;
      if (said != nullptr && main.find(probe) == nullptr) main.set(probe, *said);
    }
    merge_resources(main, at_.member("resources").node);

    yaml::Node pod =
        pod_at_.node != nullptr && pod_at_.node->is_map() ? *pod_at_.node : yaml::Node::map();
    pod.remove("mainContainer");
    mount_volumes(pod, main);
    mount_shared_memory(pod, main);
    std::vector<yaml::Node> containers = {std::move(main)};
    const std::vector<yaml::Node>& others = pod.items_at({"containers"});
    containers.insert(containers.end(), others.begin(), others.end());
    pod.set("containers", yaml::Node::list(std::move(containers)));

    yaml::Node made;
    yaml::Node metadata = merged_metadata(spec_, at_);
    if (!metadata.is_null()) made.set("metadata", std::move(metadata));
    made.set("spec", std::move(pod));
    return made;
  }

  void mount_volumes(yaml::Node& pod, yaml::Node& main) {
    for (const Located& mount : items_of(at_.member("volumeMounts"))) {
      const Located name = mount.member("name");
      if (name.node == nullptr) {
        refuse(findings_, mount, "a mount without a volume", "name one of spec.pvcs");
        continue;
      }
      if (yaml::find_named(pod.find("volumes"), "name", text_of(name)) == nullptr) {
        if (yaml::find_named(spec_.member("pvcs").node, "name", text_of(name)) == nullptr) {
          refuse(findings_, name, base::quoted(text_of(name)) + ": not a PVC of the deployment",
                 "name one of spec.pvcs");
          continue;
        }
        if (!is_dns_label(text_of(name))) {
          refuse(findings_, name, base::quoted(text_of(name)) + ": not a volume name",
                 kDnsLabelRule);
        }
        add_claim_volume(pod, *name.node);
      }
      const Located where = mount.member("mountPoint");
      if (text_of(where).empty()) {
        refuse(findings_, mount, "a mount without a path", "set mountPoint");
        continue;
      }
      add_mount(main, text_of(name), *where.node, where, findings_);
      const Located cache = mount.member("useAsCompilationCache");
      if (is_true(cache)) warn_of_cache(cache, main, text_of(where), findings_);
    }
  }

  void mount_shared_memory(yaml::Node& pod, yaml::Node& main) {
    const Located memory = at_.member("sharedMemory");
    if (memory.node == nullptr) return;
    const Located size = memory.member("size");
    if (!is_true(memory.member("disabled"))) {
      share_memory(pod, main, size.node, memory, findings_);
    } else if (size.node != nullptr) {
      refuse(findings_, size, "a size, although it is disabled", "leave one of them out");
    }
  }

  const Located& spec_;
  Located at_;
  Located pod_at_;
  Located main_at_;
  ServiceParts parts_;
  Findings& findings_;
};

/// An invalid value counts as failover; the reason is in `findings`.
bool has_failover(const Located& service, Findings& findings) {
  const Located failover = service.member("failover");
  if (failover.node == nullptr) return false;
  const Located enabled = failover.member("enabled");
  if (failover.node->is_map() && enabled.node == nullptr) {
    refuse(findings, failover, "does not set whether it is enabled",
           "set enabled: true, or leave failover out");
  }
  return enabled.node == nullptr || yaml::as_boolean(*enabled.node).value_or(true);
}

}  // namespace

void read_v1alpha1(const Located& spec, Dgd& dgd, Findings& findings) {
  for (Located& pvc : items_of(spec.member("pvcs"))) {
    if (is_true(pvc.member("create"))) {
      dgd.volume_claims.push_back({std::move(pvc.path), *pvc.node});
    }
  }
  const Located services = spec.member("services");
  if (services.node == nullptr) return;
  for (const yaml::Node::Member& member : services.node->members()) {
    if (member.value.is_null()) continue;
    Service service;
    service.name = member.key;
    service.path = member_path(services.path, member.key);
    service.position = member.position;
    const Located at{&member.value, service.path};
    service.component_type = text_of(at.member("componentType"));
    service.sub_component_type = text_of(at.member("subComponentType"));
    service.failover = has_failover(at, findings);
    check_schema(
        member.value, "ServiceAlpha", service.path,
        service.failover || !member.value.is_map() ? WrongKind::kError : WrongKind::kIgnore,
        findings);
    if (service.failover && has_room(dgd, service, findings)) {
      service.replicas = read_replicas(at.member("replicas"), findings);
      ServiceReader(spec, at, findings).read(service);
    }
    dgd.services.push_back(std::move(service));
  }
}

}  // namespace fo::pod
