#include "pod/dgd/dgd_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "pod/generate/shared_memory.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

/// The maximum number of devices of one resource claim.
constexpr std::int64_t kMaxGpus = 32;

/// Each service gets a copy of the deployment's common fields. v1beta1 allows no more components
/// anyway.
constexpr std::int64_t kMaxServices = 25;

void check_component_type(const ServiceParts& parts, Findings& findings) {
  const std::string type = text_of(parts.component_type);
  if (type == "worker" || type == "prefill" || type == "decode") return;
  const bool none = parts.component_type.node == nullptr;
  refuse(findings, none ? parts.service : parts.component_type,
         (none ? std::string("no component type") : base::quoted(type)) +
             ": failover is for workers only",
         "leave failover out, or make it a worker, prefill or decode");
}

/// Refuses a mode of failover or of the GMS, except the one within a pod.
void check_mode(const Located& mode, DgdVersion version, Findings& findings) {
  if (mode.node == nullptr) return;
  const bool alpha = version == DgdVersion::kV1Alpha1;
  const std::string_view within = alpha ? "intraPod" : "IntraPod";
  const std::string_view across = alpha ? "interPod" : "InterPod";
  const std::string text = text_of(mode);
  if (text == within) return;
  const std::string remedy = fmt::format("leave it out, or set it to {}", within);
  if (text == across) {
    refuse(findings, mode, base::quoted(text) + ": engines and GMS share one pod here", remedy);
  } else {
    refuse(findings, mode, base::quoted(text) + ": unknown mode", remedy);
  }
}

void check_failover(const ServiceParts& parts, DgdVersion version, Findings& findings) {
  check_component_type(parts, findings);
  if (parts.multinode.node != nullptr) {
    refuse(findings, parts.multinode, "failover is not supported with multinode deployments",
           "leave one of them out");
  }
  check_mode(parts.failover.member("mode"), version, findings);
  const Located shadows = parts.failover.member("numShadows");
  if (shadows.node != nullptr) {
    const std::optional<std::int64_t> count = yaml::as_integer(*shadows.node);
    if (count && *count != 1) {
      refuse(findings, shadows, fmt::format("{}: only one shadow is supported", *count),
             "leave it out, or set it to 1");
    }
  }
}

void read_gpu_memory_service(const ServiceParts& parts, DgdVersion version, Service& service,
                             Findings& findings) {
  const Located& gms = parts.gpu_memory_service;
  check_mode(gms.member("mode"), version, findings);
  const Located device_class = gms.member("deviceClassName");
  if (device_class.node != nullptr) {
    service.device_class = text_of(device_class);
    if (service.device_class.empty()) refuse(findings, device_class, "no name", "leave it out");
  }
  std::set<std::string> containers;
  for (const Located& container : parts.containers) {
    containers.insert(text_of(container.member("name")));
  }
  std::set<std::string> seen;
  for (const Located& client : items_of(gms.member("extraClientContainers"))) {
    const std::string name = text_of(client);
    if (!containers.contains(name)) {
      refuse(findings, client, base::quoted(name) + ": unknown container",
             "name a container of this service");
    } else if (!seen.insert(name).second) {
      refuse(findings, client, base::quoted(name) + ": named twice", "leave one of them out");
    } else {
      service.gms_clients.push_back(name);
    }
  }
}

void read_gpus(const ServiceParts& parts, Service& service, Findings& findings) {
  const Located& gpus = parts.gpus;
  if (gpus.path.empty()) return;
  if (gpus.node == nullptr) {
    add(findings, {Severity::kError, service.position, gpus.path,
                   "missing: failover needs at least one GPU", "set it to \"1\""});
    return;
  }
  const std::optional<std::int64_t> count = yaml::as_integer(*gpus.node, yaml::Quoted::kYes);
  if (!count) {
    // pod_schema reports other kinds.
    if (!gpus.node->is_scalar()) return;
    refuse(findings, gpus, base::quoted(text_of(gpus)) + ": not a whole number of GPUs",
           "set it to \"1\"");
  } else if (*count < 1) {
    refuse(findings, gpus, fmt::format("{}: failover needs at least one GPU", *count),
           "set it to \"1\"");
  } else if (*count > kMaxGpus) {
    refuse(findings, gpus, fmt::format("{}: a claim allocates at most {}", *count, kMaxGpus),
           "request fewer");
  } else {
    service.gpus = *count;
  }
}

/// Refuses a container with the name of a generated one, a second main container, a main container
/// without an image, and probes of missing ports.
void check_containers(const std::vector<Located>& containers, Findings& findings) {
  constexpr std::array<std::string_view, 4> kReserved = {"gms-weights", "gms-server", "gms-lockd",
                                                         "fo-tools"};
  for (const Located& container : containers) {
    const Located located = container.member("name");
    const std::string& name = text_of(located);
    for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
      check_probe(container.member(probe), container, findings);
    }
    if (name == kMainContainer) {
      if (&container != &containers.front()) {
        refuse(findings, located, base::quoted(name) + ": two containers with one name",
               "rename one of them");
      } else if (text_of(container.member("image")).empty()) {
        refuse(findings, container, "no image", "set image");
      }
    }
    if (name.starts_with("engine-") || text::is_one_of(name, kReserved)) {
      refuse(findings, located, base::quoted(name) + ": a container of failover has this name",
             "rename it");
    }
  }
}

/// The list with that key, created if it is missing; nullptr if the value is not a list.
yaml::Node* list_of(yaml::Node& map, std::string_view key) {
  yaml::Node& list = map[key];
  if (list.is_null()) list = yaml::Node::list().at(list.position());
  return list.is_list() ? &list : nullptr;
}

}  // namespace

void check_service(const ServiceParts& parts, DgdVersion version, Service& service,
                   Findings& findings) {
  check_failover(parts, version, findings);
  read_gpu_memory_service(parts, version, service, findings);
  read_gpus(parts, service, findings);
  check_containers(parts.containers, findings);
  const Located& restarts = parts.restart_policy;
  if (restarts.node != nullptr && text_of(restarts) != "Always") {
    refuse(findings, restarts,
           base::quoted(text_of(restarts)) + ": a dead engine must be restarted",
           "leave it out, or set it to Always");
  }
}

bool has_room(const Dgd& dgd, const Service& service, Findings& findings) {
  const auto count = std::count_if(dgd.services.begin(), dgd.services.end(),
                                   [](const Service& one) { return one.failover; });
  if (count < kMaxServices) return true;
  add(findings, {Severity::kError, service.position, service.path,
                 fmt::format("more than {} services with failover", kMaxServices),
                 "spread them over several deployments"});
  return false;
}

void check_probe(const Located& probe, const Located& container, Findings& findings) {
  const yaml::Node* ports = container.member("ports").node;
  for (const char* handler : {"httpGet", "tcpSocket"}) {
    const Located port = probe.member(handler).member("port");
    if (port.node == nullptr || !yaml::as_string(*port.node)) continue;
    const std::string& name = text_of(port);
    // Dynamo's operator adds this port to a main container without ports.
    const bool is_operators = ports == nullptr && name == "system" && is_main(*container.node);
    if (is_operators || yaml::find_named(ports, "name", name) != nullptr) continue;
    refuse(findings, port, base::quoted(name) + ": not a port of this container",
           "name one of its ports, or use a number");
  }
}

void warn_not_carried(const Located& map, std::initializer_list<std::string_view> members,
                      Findings& findings) {
  for (const std::string_view key : members) {
    const Located member = map.member(key);
    if (member.node == nullptr) continue;
    const Located enabled = member.member("enabled");
    if (enabled.node != nullptr && yaml::as_boolean(*enabled.node) == false) continue;
    warn(findings, member, "only Dynamo's operator acts on this: the pod is generated without it");
  }
}

std::int64_t read_replicas(const Located& replicas, Findings& findings) {
  if (replicas.node == nullptr) return 1;
  const std::int64_t count = yaml::as_integer(*replicas.node).value_or(1);
  if (count >= 0 && count <= INT32_MAX) return count;
  refuse(findings, replicas, fmt::format("{}: not a number of replicas", count), "0 or more");
  return 1;
}

yaml::Node merge_env(std::initializer_list<const yaml::Node*> lists) {
  yaml::Node merged;
  for (const yaml::Node* list : lists) {
    if (list == nullptr || !list->is_list()) continue;
    std::set<std::string> names;
    for (const yaml::Node& variable : list->items()) names.insert(variable.text_at({"name"}));
    std::erase_if(merged.items(), [&](const yaml::Node& variable) {
      return names.contains(variable.text_at({"name"}));
    });
    for (const yaml::Node& variable : list->items()) merged.push_back(variable);
  }
  return merged;
}

void merge_map(yaml::Node& into, const yaml::Node* from) {
  if (from == nullptr) return;
  for (const yaml::Node::Member& member : from->members()) {
    if (!member.value.is_null()) into.set(member.key, member.value);
  }
}

void share_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size,
                  const Located& asked_by, Findings& findings) {
  if (list_of(pod_spec, "volumes") == nullptr || list_of(container, "volumeMounts") == nullptr) {
    return;
  }
  const std::string replaced = remove_shared_memory(pod_spec, container);
  if (!replaced.empty()) {
    warn(findings, asked_by, "replaces the volume " + base::quoted(replaced) + " at /dev/shm",
         "leave one of them out");
  }
  if (yaml::find_named(pod_spec.find("volumes"), "name", kSharedMemoryVolume) != nullptr) {
    refuse(findings, asked_by,
           base::quoted(kSharedMemoryVolume) + ": a volume of the pod has this name", "rename it");
    return;
  }
  add_shared_memory(pod_spec, container, size);
}

void add_mount(yaml::Node& container, const std::string& volume, const yaml::Node& path,
               const Located& asked_by, Findings& findings) {
  if (yaml::find_named(container.find("volumeMounts"), "mountPath", path.text()) != nullptr) {
    refuse(findings, asked_by, base::quoted(path.text()) + ": two mounts at one path",
           "leave one of them out");
    return;
  }
  yaml::Node* mounts = list_of(container, "volumeMounts");
  if (mounts == nullptr) return;
  yaml::Node mount;
  mount.set("name", yaml::Node::string(volume));
  mount.set("mountPath", path);
  mounts->push_back(std::move(mount));
}

void warn_of_cache(const Located& cache, const yaml::Node& container, const std::string& path,
                   Findings& findings) {
  if (yaml::find_named(container.find("env"), "value", path) != nullptr) return;
  warn(findings, cache, "mounted, but no variable names it to the backend",
       "set the backend's own, such as VLLM_CACHE_ROOT");
}

void add_claim_volume(yaml::Node& pod_spec, const yaml::Node& pvc) {
  yaml::Node* volumes = list_of(pod_spec, "volumes");
  if (volumes == nullptr) return;
  yaml::Node volume;
  volume.set("name", pvc);
  volume["persistentVolumeClaim"].set("claimName", pvc);
  volumes->push_back(std::move(volume));
}

}  // namespace fo::pod
