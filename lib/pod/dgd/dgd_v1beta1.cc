// Version 1beta1: a component has a pod template and few other fields.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "pod/dgd/dgd_service.h"
#include "pod/dgd/pod_schema.h"
#include "pod/kube_names.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

/// "0", "0Gi" and "0.0" stand for no shared memory.
bool is_zero(const yaml::Node& size) {
  const std::string& text = size.text();
  const std::size_t end = std::min(text.find_first_not_of("+0."), text.size());
  return text.find('0') < end && (end == text.size() || !text::is_digit(text[end]));
}

void move_main_first(yaml::Node& pod) {
  yaml::Node* containers = pod.find("containers");
  const yaml::Node* main = yaml::find_named(containers, "name", kMainContainer);
  if (main == nullptr) return;
  std::vector<yaml::Node>& items = containers->items();
  const auto at = items.begin() + (main - items.data());
  std::rotate(items.begin(), at, at + 1);
}

class ComponentReader {
 public:
  ComponentReader(const Located& spec, Located component, Findings& findings)
      : spec_(spec),
        at_(std::move(component)),
        template_at_(at_.member("podTemplate")),
        pod_at_(template_at_.member("spec")),
        findings_(findings) {}

  void read(Service& service) {
    const Located experimental = at_.member("experimental");
    parts_.service = at_;
    parts_.component_type = at_.member("type");
    parts_.multinode = at_.member("multinode");
    parts_.failover = experimental.member("failover");
    parts_.gpu_memory_service = experimental.member("gpuMemoryService");
    find_containers();
    parts_.restart_policy = pod_at_.member("restartPolicy");
    check(experimental);
    service.pod_template = pod_template();
    const Located size = at_.member("sharedMemorySize");
    service.wants_no_shared_memory = size.node != nullptr && is_zero(*size.node);
    service.global_namespace = is_true(at_.member("globalDynamoNamespace"));
    check_service(parts_, DgdVersion::kV1Beta1, service, findings_);
  }

 private:
  void find_containers() {
    std::vector<Located>& all = parts_.containers;
    for (const char* key : {"initContainers", "containers"}) {
      for (Located& one : items_of(pod_at_.member(key))) {
        if (key == std::string_view("containers") && main_at_.node == nullptr &&
            text_of(one.member("name")) == kMainContainer) {
          main_at_ = one;
          all.insert(all.begin(), std::move(one));
        } else {
          all.push_back(std::move(one));
        }
      }
    }
    if (main_at_.node == nullptr) {
      add(findings_, {Severity::kError, at_.node->position(), pod_at_.member("containers").path,
                      "no container named 'main'", "name the engine's container main"});
    }
  }

  void check(const Located& experimental) {
    if (main_at_.node != nullptr) {
      parts_.gpus = main_at_.member("resources").member("limits").member(kGpuResource);
    }
    for (const Located& switched : {parts_.failover, parts_.gpu_memory_service}) {
      const Located enabled = switched.member("enabled");
      if (enabled.node != nullptr && yaml::as_boolean(*enabled.node) != true) {
        refuse(findings_, enabled, "v1beta1 enables it by its presence",
               "leave " + switched.path.substr(switched.path.rfind('.') + 1) + " out");
      }
    }
    const Located sidecar = at_.member("dynamoSidecar");
    if (sidecar.node != nullptr) {
      refuse(findings_, sidecar, "failover is not supported with a runtime in a sidecar",
             "leave one of them out");
    }
    for (const Located& pod : items_of(parts_.gpu_memory_service.member("extraClientPods"))) {
      refuse(findings_, pod, "engines and GMS share one pod here", "leave it out");
    }
    warn_not_carried(at_,
                     {"eppConfig", "frontendSidecar", "minAvailable", "modelRef",
                      "providerOverride", "roles", "scalingAdapter", "topologyConstraint"},
                     findings_);
    warn_not_carried(experimental, {"checkpoint", "grove"}, findings_);
  }

  yaml::Node pod_template() {
    const bool usable = template_at_.node != nullptr && template_at_.node->is_map();
    yaml::Node made = usable ? *template_at_.node : yaml::Node::map();
    merge_metadata(made);
    yaml::Node& pod = made["spec"];
    move_main_first(pod);
    yaml::Node* containers = pod.find("containers");
    if (main_at_.node == nullptr || containers == nullptr) return made;
    yaml::Node main = containers->items().front();
    yaml::Node env = merge_env({spec_.member("env").node, main.find("env")});
    if (!env.is_null()) main.set("env", std::move(env));
    mount_cache(pod, main);
    const Located size = at_.member("sharedMemorySize");
    if (size.node != nullptr && !is_zero(*size.node)) {
      share_memory(pod, main, size.node, size, findings_);
    }
    pod.find("containers")->items().front() = std::move(main);
    return made;
  }

  void merge_metadata(yaml::Node& made) {
    for (const char* key : {"labels", "annotations"}) {
      yaml::Node all;
      merge_map(all, spec_.member(key).node);
      if (all.is_null()) continue;
      yaml::Node& metadata = made["metadata"];
      merge_map(all, metadata.find(key));
      metadata.set(key, std::move(all));
    }
  }

  void mount_cache(yaml::Node& pod, yaml::Node& main) {
    const Located cache = at_.member("compilationCache");
    if (cache.node == nullptr) return;
    const Located pvc = cache.member("pvcName");
    const Located where = cache.member("mountPath");
    if (!is_dns_label(text_of(pvc))) {
      refuse(findings_, pvc.node == nullptr ? cache : pvc,
             base::quoted(text_of(pvc)) + ": not a volume name", kDnsLabelRule);
      return;
    }
    if (text_of(where).empty()) {
      refuse(findings_, cache, "a mount without a path", "set mountPath");
      return;
    }
    if (yaml::find_named(pod.find("volumes"), "name", text_of(pvc)) != nullptr) {
      refuse(findings_, pvc, base::quoted(text_of(pvc)) + ": a volume of the pod has this name",
             "rename it");
      return;
    }
    add_claim_volume(pod, *pvc.node);
    add_mount(main, text_of(pvc), *where.node, where, findings_);
    warn_of_cache(cache, main, text_of(where), findings_);
  }

  const Located& spec_;
  Located at_;
  Located template_at_;
  Located pod_at_;
  Located main_at_;
  ServiceParts parts_;
  Findings& findings_;
};

}  // namespace

void read_v1beta1(const Located& spec, Dgd& dgd, Findings& findings) {
  for (const Located& at : items_of(spec.member("components"))) {
    Service service;
    service.name = text_of(at.member("name"));
    service.path = at.path;
    service.position = at.node->position();
    service.component_type = text_of(at.member("type"));
    const Located experimental = at.member("experimental");
    service.failover = experimental.member("failover").node != nullptr;
    const bool readable =
        at.node->is_map() && (experimental.node == nullptr || experimental.node->is_map());
    check_schema(*at.node, "Component", at.path,
                 service.failover || !readable ? WrongKind::kError : WrongKind::kIgnore, findings);
    if (service.failover && has_room(dgd, service, findings)) {
      service.replicas = read_replicas(at.member("replicas"), findings);
      ComponentReader(spec, at, findings).read(service);
    }
    dgd.services.push_back(std::move(service));
  }
}

}  // namespace fo::pod
