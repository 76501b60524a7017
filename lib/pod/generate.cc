#include "pod/generate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pod/engine_command.h"
#include "pod/engine_container.h"
#include "pod/engine_needs.h"
#include "pod/gms_container.h"
#include "pod/pod_check.h"
#include "pod/pod_plan.h"
#include "pod/scalar.h"
#include "pod/workload.h"

namespace fo::pod {
namespace {

constexpr int kDrainSeconds = 60;
constexpr int kLeastDrainSeconds = 40;

// The main container is the first one, the user's others follow the engines in their order.
void set_containers(Node& spec, const Node& main, const PodPlan& plan) {
  Engines engines = make_engines(main, plan);
  check_ports(spec, engines.ports, plan);
  Node containers = Node::list().at(spec["containers"].position());
  for (Node& engine : engines.containers) containers.push_back(std::move(engine));
  for (Node& other : spec["containers"].items()) {
    if (!is_main(other)) containers.push_back(std::move(other));
  }
  spec.set("containers", std::move(containers));
}

// Ours come before the user's: they wait for nothing, fail at once where they can't run, and an
// init container of the user's may be a client of the GMS, one that loads the weights for example.
void set_init_containers(Node& spec, const Node& main, const PodPlan& plan) {
  Node containers = Node::list();
  if (plan.has_tools()) containers.push_back(make_tools_container(main, plan));
  if (plan.options.lock == LockKind::kLockd) {
    containers.push_back(make_lockd_container(main, plan));
  }
  containers.push_back(make_gms_container(main, plan));
  if (Node* own = spec.find("initContainers")) {
    containers.at(own->position());
    for (Node& container : own->items()) containers.push_back(std::move(container));
  }
  spec.set("initContainers", std::move(containers));
}

// As which a container runs; "" where only its image knows.
std::string user_of(const Node& container, const Node& spec) {
  for (const Node* one : {&container, &spec}) {
    if (const Node* user = one->find_path({"securityContext", "runAsUser"})) return user->text();
  }
  return "";
}

void check_client_user(const Node& client, const Node& main, const Node& spec,
                       const std::string& path, const PodPlan& plan) {
  const std::string own = user_of(client, spec);
  const std::string served = user_of(main, spec);
  if (own.empty() || served.empty() || own == served) return;
  const Node* context = client.find("securityContext");
  plan.refuse((context == nullptr ? client : *context).position(), path + ".securityContext",
              "user " + own + ": the GMS serves its own user, " + served, "run both as one user");
}

void add_clients(Node& spec, const Node& main, const PodPlan& plan) {
  for (const char* const list : {"containers", "initContainers"}) {
    Node* containers = spec.find(list);
    if (containers == nullptr) continue;
    for (Node& container : containers->items()) {
      const Node* name = container.find("name");
      const std::vector<std::string>& clients = plan.service.gms_clients;
      if (name == nullptr || is_main(container) ||
          std::find(clients.begin(), clients.end(), name->text()) == clients.end()) {
        continue;
      }
      const std::string path = plan.container_path(list, container);
      check_client_user(container, main, spec, path, plan);
      add_gms_access(container, plan, path);
    }
  }
}

void add_volumes(Node& spec, const PodPlan& plan) {
  const auto add = [&spec](std::string_view name) {
    spec["volumes"].push_back(
        Node::map({{"name", Node::string(std::string(name))}, {"emptyDir", Node::map()}}));
  };
  add(plan.names.volume);
  if (plan.has_tools()) add(kToolsVolume);
}

// With claims nobody else adds it; nodes with GPUs commonly have the taint.
void add_toleration(Node& spec) {
  Node& tolerations = spec["tolerations"];
  const bool is_there = std::any_of(
      tolerations.items().begin(), tolerations.items().end(), [&](const Node& toleration) {
        const std::string& key = toleration.text_at({"key"});
        const std::string& effect = toleration.text_at({"effect"});
        return toleration.text_at({"operator"}) == "Exists" &&
               (key.empty() || key == kGpuResource) && (effect.empty() || effect == "NoSchedule");
      });
  if (is_there) return;
  tolerations.push_back(Node::map({{"key", Node::string(std::string(kGpuResource))},
                                   {"operator", Node::string("Exists")},
                                   {"effect", Node::string("NoSchedule")}}));
}

void add_claim(Node& spec, const PodPlan& plan) {
  spec["resourceClaims"].push_back(
      Node::map({{"name", Node::string(plan.names.claim)},
                 {"resourceClaimTemplateName", Node::string(plan.claim_template_name())}}));
}

// fo-shadow lets requests in flight finish, which takes it up to 30 s by default, and the engine
// end, for which it has 5 s.
void set_grace(Node& spec, const PodPlan& plan) {
  constexpr std::string_view kField = "terminationGracePeriodSeconds";
  const Node* own = spec.find(kField);
  if (own == nullptr) {
    spec.set(kField, Node::integer(kDrainSeconds));
  } else if (as_integer(*own).value_or(kDrainSeconds) < kLeastDrainSeconds) {
    plan.warn(own->position(), plan.spec_path(kField),
              own->text() + ": fo-shadow takes up to 35 s to let requests finish",
              "say at least " + std::to_string(kLeastDrainSeconds) + ", or leave it out");
  }
}

void check_shared_memory(const Node& main, const PodPlan& plan) {
  if (plan.service.gpus < 2 || plan.service.wants_no_shared_memory) return;
  for (const char* const path : {"/dev/shm", "/dev/shm/"}) {
    if (find_named(main.find("volumeMounts"), "mountPath", path) != nullptr) return;
  }
  const bool alpha = plan.dgd.version == DgdVersion::kV1Alpha1;
  plan.warn(plan.service.position, plan.service.path,
            "nothing is mounted at /dev/shm, where an engine on several GPUs needs more than the "
            "64 MiB of any container",
            alpha ? "say sharedMemory: {size: 8Gi}" : "say sharedMemorySize: 8Gi");
}

void check_version(const PodPlan& plan) {
  // Claims need a later one, and say so themselves.
  if (plan.options.gpu_sharing == GpuSharing::kDra) return;
  if (plan.options.kube_version >= KubeVersion{1, 29}) return;
  plan.refuse(plan.kubernetes() + ": init containers that go on running need 1.29",
              "say a later --kube-version");
}

}  // namespace

std::vector<Node> generate(const Dgd& dgd, const Service& service, const GenerateOptions& options,
                           Findings& findings) {
  PodPlan plan(dgd, service, options, findings);
  Node pod_template = service.pod_template;
  Node& spec = pod_template["spec"];
  const Node* found = find_named(spec.find("containers"), "name", kMainContainer);
  if (found == nullptr) {
    plan.refuse("no container 'main', which runs the engine", "add it");
    return {};
  }
  const Node main = *found;
  plan.device_order = device_order(main, EngineCommand(main));
  check_version(plan);
  check_pod_spec(spec, plan);
  check_shared_memory(main, plan);
  add_clients(spec, main, plan);
  set_containers(spec, main, plan);
  set_init_containers(spec, main, plan);
  add_volumes(spec, plan);
  add_toleration(spec);
  if (options.supervise) set_grace(spec, plan);

  std::vector<Node> manifests = make_volume_claims(plan);
  if (options.gpu_sharing == GpuSharing::kDra) {
    add_claim(spec, plan);
    manifests.push_back(make_claim_template(plan));
  }
  manifests.push_back(make_workload(std::move(pod_template), plan));
  return manifests;
}

}  // namespace fo::pod
