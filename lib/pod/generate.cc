#include "pod/generate.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "pod/cluster_needs.h"
#include "pod/discovery.h"
#include "pod/engine_command.h"
#include "pod/engine_container.h"
#include "pod/engine_needs.h"
#include "pod/gms_container.h"
#include "pod/operator_defaults.h"
#include "pod/pod_check.h"
#include "pod/pod_plan.h"
#include "pod/scalar.h"
#include "pod/workload.h"

namespace fo::pod {
namespace {

// The main container is the first one, the user's others follow the engines in their order.
void set_containers(Node& spec, const Node& main, const EngineCommand& command,
                    const PodPlan& plan) {
  Engines engines = make_engines(main, command, plan);
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

// The user that a container runs as; "" where only its image knows.
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

// A main container that says arguments and no command is a shell's script to Dynamo's operator,
// which gives it one; what begins as an option does is one of the image's entrypoint.
void add_operator_shell(Node& main) {
  const Node* args = main.find("args");
  const Node* command = main.find("command");
  if (args == nullptr || args->items().empty()) return;
  if (command != nullptr && !command->items().empty()) return;
  const std::string& first = args->items().front().text();
  if (first.starts_with('-') || first.find_first_of(" \t\n") == std::string::npos) return;
  main.set("command", Node::strings({"/bin/sh", "-c"}).at(args->position()));
}

// A script that waits for a GPU without a user waits for the other engine, too.
void warn_of_guard(const Node& main, const PodPlan& plan) {
  constexpr std::array<std::string_view, 5> kQuestions = {"memory.used", "memory.free",
                                                          "utilization", "compute-apps", "pmon"};
  for (const char* const field : {"command", "args"}) {
    const Node* words = main.find(field);
    if (words == nullptr) continue;
    for (const Node& word : words->items()) {
      const std::string& text = word.text();
      if (text.find("nvidia-smi") == std::string::npos) continue;
      if (std::none_of(kQuestions.begin(), kQuestions.end(), [&](std::string_view question) {
            return text.find(question) != std::string::npos;
          })) {
        continue;
      }
      plan.warn(word.position(), plan.main_path(field),
                "it asks nvidia-smi who uses the GPU: the GMS and the other engine do",
                "see that it does not wait for an empty one");
      return;
    }
  }
}

// It scales services by their names.
void warn_of_planner(const PodPlan& plan) {
  const auto& services = plan.dgd.services;
  const auto planner = std::find_if(services.begin(), services.end(), [](const Service& other) {
    return !other.failover && other.component_type == "planner";
  });
  if (planner == services.end()) return;
  plan.warn(planner->position, planner->path,
            "the planner can't scale " + base::quoted(plan.service.name) +
                " any more, which becomes a Deployment of its own",
            "scale the Deployment " + plan.workload_name() + " yourself");
}

void check_version(const PodPlan& plan) {
  // Claims need a later one, and say so themselves.
  if (plan.options.gpu_sharing == GpuSharing::kDra) return;
  if (plan.options.kube_version >= KubeVersion{1, 29}) return;
  plan.refuse(plan.kubernetes() + ": init containers that go on running need 1.29",
              "say a later --kube-version");
}

}  // namespace

FailoverPod generate(const Dgd& dgd, const Service& service, const GenerateOptions& options,
                     Findings& findings) {
  PodPlan plan(dgd, service, options, findings);
  Node pod_template = service.pod_template;
  Node& spec = pod_template["spec"];
  const Node* found = find_named(spec.find("containers"), "name", kMainContainer);
  if (found == nullptr) {
    plan.refuse("no container 'main', which runs the engine", "add it");
    return {};
  }
  Node main = *found;
  add_operator_shell(main);
  const EngineCommand command(main, plan.environment_of(main));
  plan.device_order = device_order(main, command);
  plan.gms = choose_gms(main, command, plan);
  plan.is_found_by_kubernetes = is_found_by_kubernetes(dgd, service, command, options);
  check_version(plan);
  check_pod_spec(spec, plan);
  check_discovery(main, command, plan);
  warn_of_planner(plan);
  warn_of_guard(main, plan);
  add_operator_defaults(spec, main, plan);
  set_service_account(spec, plan);
  add_clients(spec, main, plan);
  set_containers(spec, main, command, plan);
  set_init_containers(spec, main, plan);
  add_volumes(spec, plan);
  add_toleration(spec);

  FailoverPod made{make_volume_claims(plan), {}, plan.is_found_by_kubernetes};
  std::vector<Node>& manifests = made.manifests;
  made.needs = cluster_needs(spec, main, manifests, plan);
  if (options.gpu_sharing == GpuSharing::kDra) {
    add_claim(spec, plan);
    manifests.push_back(make_claim_template(plan));
  }
  manifests.push_back(make_workload(std::move(pod_template), plan));
  for (Node& manifest : manifests) manifest.drop_null_members();
  return made;
}

}  // namespace fo::pod
