#include "pod/generate/pod_check.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/error.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

using Path = std::function<std::string()>;

// Refuses entries of the list at `path` whose name is in `taken`.
void check_names(const yaml::Node* list, const Path& path, const std::set<std::string>& taken,
                 const PodPlan& plan) {
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items().size(); ++i) {
    const yaml::Node* name = list->items()[i].find("name");
    if (name == nullptr || !taken.contains(name->text())) continue;
    plan.refuse(name->position(), item_path(path(), i) + ".name",
                base::quoted(name->text()) + ": the failover pod uses this name",
                "choose another name");
  }
}

// A container that refers to the name of a generated volume or claim would get that one.
void check_references(const yaml::Node& spec, const std::set<std::string>& volumes,
                      const std::set<std::string>& claims, const PodPlan& plan) {
  for (const char* const list : {"initContainers", "containers"}) {
    for (const yaml::Node& container : spec.items_at({list})) {
      const auto path_of = [&](std::string_view field) {
        return is_main(container) ? plan.main_path(field)
                                  : plan.container_path(list, container) + "." + std::string(field);
      };
      check_names(
          container.find("volumeMounts"), [&] { return path_of("volumeMounts"); }, volumes, plan);
      check_names(
          container.find_path({"resources", "claims"}), [&] { return path_of("resources.claims"); },
          claims, plan);
    }
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
    // Without these settings, the kernel kills a container's other processes with its first one.
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
    for (const yaml::Node& container : spec.items_at({list})) {
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
  std::set<std::string> claims;
  if (plan.options.gpu_sharing == GpuSharing::kDra) claims.insert(plan.names.claim);
  check_names(
      spec.find("volumes"), [&] { return plan.spec_path("volumes"); }, volumes, plan);
  check_names(
      spec.find("resourceClaims"), [&] { return plan.spec_path("resourceClaims"); }, claims, plan);
  check_references(spec, volumes, claims, plan);
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
