#include "pod/generate/generate.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "pod/dgd/discovery.h"
#include "pod/dgd/operator_defaults.h"
#include "pod/engine/engine_command.h"
#include "pod/engine/engine_container.h"
#include "pod/engine/engine_needs.h"
#include "pod/generate/cluster_needs.h"
#include "pod/generate/gms_container.h"
#include "pod/generate/pod_check.h"
#include "pod/generate/pod_plan.h"
#include "pod/generate/workload.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

// Replaces the main container by the engines, which come first; the user's other containers follow
// in their order.
void set_containers(yaml::Node& spec, const yaml::Node& main, const EngineCommand& command,
                    const PodPlan& plan) {
  Engines engines = make_engines(main, command, plan);
  check_ports(spec, engines.ports, plan);
  yaml::Node containers = yaml::Node::list().at(spec["containers"].position());
  for (yaml::Node& engine : engines.containers) containers.push_back(std::move(engine));
  for (yaml::Node& other : spec["containers"].items()) {
    if (!is_main(other)) containers.push_back(std::move(other));
  }
  spec.set("containers", std::move(containers));
}

// The generated init containers come before the user's: they wait for nothing and fail early, and
// an init container of the user may be a client of the GMS, for example to load the weights.
void set_init_containers(yaml::Node& spec, const yaml::Node& main, const PodPlan& plan) {
  yaml::Node containers = yaml::Node::list();
  if (plan.has_tools()) containers.push_back(make_tools_container(main, plan));
  if (plan.options.lock == LockKind::kLockd) {
    containers.push_back(make_lockd_container(main, plan));
  }
  containers.push_back(make_gms_container(main, plan));
  if (yaml::Node* own = spec.find("initContainers")) {
    containers.at(own->position());
    for (yaml::Node& container : own->items()) containers.push_back(std::move(container));
  }
  spec.set("initContainers", std::move(containers));
}

// The user that a container runs as; "" if only its image defines it.
std::string user_of(const yaml::Node& container, const yaml::Node& spec) {
  for (const yaml::Node* one : {&container, &spec}) {
    if (const yaml::Node* user = one->find_path({"securityContext", "runAsUser"}))
      return user->text();
  }
  return "";
}

void check_client_user(const yaml::Node& client, const yaml::Node& main, const yaml::Node& spec,
                       const std::string& path, const PodPlan& plan) {
  const std::string own = user_of(client, spec);
  const std::string served = user_of(main, spec);
  if (own.empty() || served.empty() || own == served) return;
  const yaml::Node* context = client.find("securityContext");
  plan.refuse((context == nullptr ? client : *context).position(), path + ".securityContext",
              "user " + own + ": the GMS serves only its own user, " + served,
              "run both as one user");
}

void add_clients(yaml::Node& spec, const yaml::Node& main, const PodPlan& plan) {
  for (const char* const list : {"containers", "initContainers"}) {
    yaml::Node* containers = spec.find(list);
    if (containers == nullptr) continue;
    for (yaml::Node& container : containers->items()) {
      const yaml::Node* name = container.find("name");
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

void add_volumes(yaml::Node& spec, const PodPlan& plan) {
  const auto add = [&spec](std::string_view name) {
    spec["volumes"].push_back(yaml::Node::map(
        {{"name", yaml::Node::string(std::string(name))}, {"emptyDir", yaml::Node::map()}}));
  };
  add(plan.names.volume);
  if (plan.has_tools()) add(kToolsVolume);
}

// With claims, no admission plugin adds this toleration, and nodes with GPUs usually have the
// taint.
void add_toleration(yaml::Node& spec) {
  yaml::Node& tolerations = spec["tolerations"];
  const bool is_there = std::any_of(
      tolerations.items().begin(), tolerations.items().end(), [&](const yaml::Node& toleration) {
        const std::string& key = toleration.text_at({"key"});
        const std::string& effect = toleration.text_at({"effect"});
        return toleration.text_at({"operator"}) == "Exists" &&
               (key.empty() || key == kGpuResource) && (effect.empty() || effect == "NoSchedule");
      });
  if (is_there) return;
  tolerations.push_back(yaml::Node::map({{"key", yaml::Node::string(std::string(kGpuResource))},
                                         {"operator", yaml::Node::string("Exists")},
                                         {"effect", yaml::Node::string("NoSchedule")}}));
}

void add_claim(yaml::Node& spec, const PodPlan& plan) {
  spec["resourceClaims"].push_back(yaml::Node::map(
      {{"name", yaml::Node::string(plan.names.claim)},
       {"resourceClaimTemplateName", yaml::Node::string(plan.claim_template_name())}}));
}

// If a main container has args but no command, Dynamo's operator runs args as a shell script,
// unless they begin with an option, which is for the image's entrypoint.
void add_operator_shell(yaml::Node& main) {
  const yaml::Node* args = main.find("args");
  const yaml::Node* command = main.find("command");
  if (args == nullptr || args->items().empty()) return;
  if (command != nullptr && !command->items().empty()) return;
  const std::string& first = args->items().front().text();
  if (first.starts_with('-') || first.find_first_of(" \t\n") == std::string::npos) return;
  main.set("command", yaml::Node::strings({"/bin/sh", "-c"}).at(args->position()));
}

// A script that waits until a GPU is unused would also wait for the other engine.
void warn_of_guard(const yaml::Node& main, const PodPlan& plan) {
  constexpr std::array<std::string_view, 5> kQuestions = {"memory.used", "memory.free",
                                                          "utilization", "compute-apps", "pmon"};
  for (const char* const field : {"command", "args"}) {
    for (const yaml::Node& word : main.items_at({field})) {
      const std::string& text = word.text();
      if (text.find("nvidia-smi") == std::string::npos) continue;
      if (std::none_of(kQuestions.begin(), kQuestions.end(), [&](std::string_view question) {
            return text.find(question) != std::string::npos;
          })) {
        continue;
      }
      plan.warn(word.position(), plan.main_path(field),
                "it checks with nvidia-smi that the GPU is unused, but the GMS and the other "
                "engine use it",
                "make sure that it does not wait for an unused GPU");
      return;
    }
  }
}

// The planner scales services of the deployment by their names.
void warn_of_planner(const PodPlan& plan) {
  const auto& services = plan.dgd.services;
  const auto planner = std::find_if(services.begin(), services.end(), [](const Service& other) {
    return !other.failover && other.component_type == "planner";
  });
  if (planner == services.end()) return;
  plan.warn(planner->position, planner->path,
            "the planner can't scale " + base::quoted(plan.service.name) +
                ", which becomes a separate Deployment",
            "scale the Deployment " + plan.workload_name() + " yourself");
}

void check_version(const PodPlan& plan) {
  // Claims need a later version, which is checked elsewhere.
  if (plan.options.gpu_sharing == GpuSharing::kDra) return;
  if (plan.options.kube_version >= KubeVersion{1, 29}) return;
  plan.refuse(plan.kubernetes() + ": sidecar init containers need 1.29",
              "set a later --kube-version");
}

}  // namespace

FailoverPod generate(const Dgd& dgd, const Service& service, const GenerateOptions& options,
                     Findings& findings) {
  PodPlan plan(dgd, service, options, findings);
  yaml::Node pod_template = service.pod_template;
  yaml::Node& spec = pod_template["spec"];
  const yaml::Node* found = yaml::find_named(spec.find("containers"), "name", kMainContainer);
  if (found == nullptr) {
    plan.refuse("no container 'main', which runs the engine", "add it");
    return {};
  }
  yaml::Node main = *found;
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
  std::vector<yaml::Node>& manifests = made.manifests;
  made.needs = cluster_needs(spec, main, manifests, plan);
  if (options.gpu_sharing == GpuSharing::kDra) {
    add_claim(spec, plan);
    manifests.push_back(make_claim_template(plan));
  }
  manifests.push_back(make_workload(std::move(pod_template), plan));
  for (yaml::Node& manifest : manifests) manifest.drop_null_members();
  return made;
}

}  // namespace fo::pod
