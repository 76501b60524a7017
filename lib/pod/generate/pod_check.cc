#include "pod/generate/pod_check.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

// Refuses entries of a list of the spec whose `name` is reserved.
void check_names(const yaml::Node& spec, const char* list, const std::set<std::string>& taken,
                 const PodPlan& plan) {
  const yaml::Node* items = spec.find(list);
  if (items == nullptr) return;
  for (std::size_t i = 0; i < items->items().size(); ++i) {
    const yaml::Node* name = items->items()[i].find("name");
    if (name == nullptr || !taken.contains(name->text())) continue;
    plan.refuse(name->position(), plan.spec_path(item_path(list, i) + ".name"),
                base::quoted(name->text()) + ": the failover pod uses this name",
                "choose another name");
  }
}

bool is_true(const yaml::Node& spec, const char* field) {
  const yaml::Node* value = spec.find(field);
  return value != nullptr && yaml::as_boolean(*value) == true;
}

void check_settings(const yaml::Node& spec, const PodPlan& plan) {
  if (is_true(spec, "hostNetwork")) {
    plan.warn(spec.find("hostNetwork")->position(), plan.spec_path("hostNetwork"),
              "the engines use ports of the node: a node can run only one such pod",
              "leave it out if the engines work without it");
  }
  for (const char* const field : {"hostPID", "shareProcessNamespace"}) {
    if (!is_true(spec, field)) continue;
    // Otherwise the kernel kills the other processes of a container with its first process.
    plan.warn(
        spec.find(field)->position(), plan.spec_path(field),
        "processes that a dead engine leaves are killed later, and the other engine waits for that",
        "leave it out");
  }
}

// Adds the engines' ports that other containers of the user declare, too. Each call scans all
// containers.
void add_collisions(std::vector<PortUse>& uses, const yaml::Node& spec, const PodPlan& plan) {
  std::set<int> taken;
  for (const PortUse& use : uses) taken.insert(use.port);
  const std::size_t most = uses.size() + kMaxFindings;
  for (const char* const list : {"containers", "initContainers"}) {
    const yaml::Node* containers = spec.find(list);
    if (containers == nullptr) continue;
    for (const yaml::Node& container : containers->items()) {
      const yaml::Node* name = container.find("name");
      const yaml::Node* ports = container.find("ports");
      if (ports == nullptr || name == nullptr || is_main(container)) continue;
      for (std::size_t i = 0; i < ports->items().size(); ++i) {
        const yaml::Node* number = ports->items()[i].find("containerPort");
        const yaml::Node* protocol = ports->items()[i].find("protocol");
        const bool is_tcp = protocol == nullptr || protocol->text() == "TCP";
        if (number == nullptr || !is_tcp || !taken.contains(port_of(*number))) continue;
        if (uses.size() == most) return;
        const std::string path = plan.container_path(list, container) + ".ports";
        uses.push_back({port_of(*number), name->text(), "ports", false, item_path(path, i),
                        number->position()});
      }
    }
  }
}

}  // namespace

void check_pod_spec(const yaml::Node& spec, const PodPlan& plan) {
  std::set<std::string> volumes{plan.names.volume};
  if (plan.has_tools()) volumes.emplace(kToolsVolume);
  check_names(spec, "volumes", volumes, plan);
  if (plan.options.gpu_sharing == GpuSharing::kDra) {
    check_names(spec, "resourceClaims", {plan.names.claim}, plan);
  }
  check_settings(spec, plan);
}

void check_ports(const yaml::Node& spec, const std::vector<PortUse>& engine_ports,
                 const PodPlan& plan) {
  std::vector<PortUse> uses = engine_ports;
  add_collisions(uses, spec, plan);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    for (std::size_t k = 0; k < std::min(i, engine_ports.size()); ++k) {
      const PortUse& a = uses[k];
      const PortUse& b = uses[i];
      if (a.port != b.port) continue;
      // Duplicates within one engine are not reported, because the input had them.
      if (a.owner == b.owner && a.is_ours == b.is_ours) continue;
      const bool blame_first = b.is_ours && !a.is_ours;
      const PortUse& blamed = blame_first ? a : b;
      const PortUse& other = blame_first ? b : a;
      plan.refuse(blamed.position, blamed.path,
                  std::to_string(blamed.port) + " for " + blamed.owner + " (" + blamed.what +
                      "): " + other.owner + " has this port (" + other.what + ")",
                  "choose another port");
      break;
    }
  }
}

}  // namespace fo::pod
