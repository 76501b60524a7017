#include "pod/dgd/discovery.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "pod/kube_names.h"

namespace fo::pod {
namespace {

constexpr std::string_view kBackend = "nvidia.com/dynamo-discovery-backend";
constexpr std::string_view kEnabled = "nvidia.com/dynamo-discovery-enabled";
constexpr std::string_view kNamespaceLabel = "nvidia.com/dynamo-namespace";
constexpr std::string_view kBackendVariable = "DYN_DISCOVERY_BACKEND";
constexpr std::string_view kModeVariable = "DYN_KUBE_DISCOVERY_MODE";
constexpr std::string_view kGlobalNamespace = "dynamo";

yaml::Node field_entry(std::string_view name, std::string_view field) {
  yaml::Node reference = yaml::Node::map({{"fieldPath", yaml::Node::string(std::string(field))}});
  return yaml::Node::map({{"name", yaml::Node::string(std::string(name))},
                          {"valueFrom", yaml::Node::map({{"fieldRef", std::move(reference)}})}});
}

// Dynamo's namespace. It has no dots, because dots separate the parts of a worker's name.
std::string dynamo_namespace(const PodPlan& plan, std::string_view kube_namespace) {
  if (plan.service.global_namespace) return std::string(kGlobalNamespace);
  std::string name = std::string(kube_namespace) + "-" + plan.dgd.name;
  std::replace(name.begin(), name.end(), '.', '-');
  return name;
}

// The Kubernetes namespace; if the manifest has none, a reference to the pod's variable.
std::string kube_namespace(const PodPlan& plan) {
  return plan.dgd.name_space.empty() ? "$(POD_NAMESPACE)" : plan.dgd.name_space;
}

bool keeps_services(const Dgd& dgd) {
  return std::any_of(dgd.services.begin(), dgd.services.end(),
                     [](const Service& service) { return !service.failover; });
}

bool selects_etcd(const yaml::Node* said) {
  return said != nullptr && said->text() != "kubernetes";
}

// Whether an entry of an env refers to no other variable, so that it can be moved.
bool stands_alone(const yaml::Node& entry) {
  return entry.text_at({"value"}).find("$(") == std::string::npos;
}

// Adds `entry` to `front` unless `env` has its name; an entry of the user that can be moved is
// moved to `front`.
void put(yaml::Node& env, yaml::Node& front, yaml::Node entry) {
  const std::string name = entry.text_at({"name"});
  const auto has_name = [&name](const yaml::Node& one) { return one.text_at({"name"}) == name; };
  // The last one of several counts.
  const auto own = std::find_if(env.items().rbegin(), env.items().rend(), has_name);
  if (own == env.items().rend()) {
    front.push_back(std::move(entry));
  } else if (stands_alone(*own)) {
    front.push_back(*own);
    std::erase_if(env.items(), has_name);
  }
}

}  // namespace

bool may_be_dynamo_worker(const EngineCommand& command, const GenerateOptions& options) {
  const bool is_unknown = command.program() == EngineProgram::kUnknown;
  return is_dynamo_worker(command.program()) ||
         (is_unknown && options.engine != "vllm" && options.engine != "sglang");
}

bool is_found_by_kubernetes(const Dgd& dgd, const Service& service, const EngineCommand& command,
                            const GenerateOptions& options) {
  if (!keeps_services(dgd) || !may_be_dynamo_worker(command, options)) return false;
  const std::string* variable = command.environment().value(kBackendVariable);
  if (variable != nullptr && *variable != "kubernetes") return false;
  return !selects_etcd(dgd.annotations.find(kBackend)) &&
         !selects_etcd(service.pod_template.find_path({"metadata", "annotations", kBackend}));
}

void check_discovery(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan) {
  if (!may_be_dynamo_worker(command, plan.options)) return;
  if (!plan.is_found_by_kubernetes) {
    if (!command.environment().has("DYN_NAMESPACE") && !command.sets_variable("DYN_NAMESPACE") &&
        command.program() != EngineProgram::kUnknown) {
      plan.warn(main.position(), plan.main_path("env"),
                "Dynamo's operator would set DYN_NAMESPACE, DYN_COMPONENT, ETCD_ENDPOINTS and "
                "NATS_SERVER, the places to register",
                "set them in envs");
    }
    return;
  }
  const yaml::Node* mode = plan.dgd.annotations.find(kDiscoveryMode);
  if (mode != nullptr && mode->text() != kDiscoveryByContainer) {
    plan.refuse(mode->position(), "metadata.annotations['" + std::string(kDiscoveryMode) + "']",
                base::quoted(mode->text()) + ": two engines of one pod register by container",
                "set it to container, or leave it out");
  }
  std::string reason =
      "only Dynamo's operator knows DYN_NAMESPACE_WORKER_SUFFIX and the label "
      "nvidia.com/dynamo-worker-hash of its rolling updates, and what it is configured to add to "
      "pods, such as NATS_SERVER and ETCD_ENDPOINTS: the pod is generated without them";
  if (plan.dgd.name_space.empty() && !plan.service.global_namespace) {
    reason +=
        ", and without the label " + std::string(kNamespaceLabel) + ", since no namespace is set";
  }
  plan.warn(plan.service.position, plan.service.path, std::move(reason),
            "set in envs what other workers of the cluster have");
}

void add_discovery_variables(int engine, yaml::Node& env, const PodPlan& plan) {
  if (!plan.is_found_by_kubernetes) return;
  for (const std::string_view name : {std::string_view("CONTAINER_NAME"), kModeVariable}) {
    std::erase_if(env.items(),
                  [&](const yaml::Node& one) { return one.text_at({"name"}) == name; });
  }
  const std::string space = kube_namespace(plan);
  yaml::Node front = yaml::Node::list();
  put(env, front, field_entry("POD_NAME", "metadata.name"));
  put(env, front, field_entry("POD_NAMESPACE", "metadata.namespace"));
  put(env, front, field_entry("POD_UID", "metadata.uid"));
  put(env, front, env_entry("DYN_NAMESPACE", dynamo_namespace(plan, space)));
  put(env, front, env_entry("DYN_COMPONENT", plan.service.component_type));
  put(env, front, env_entry("DYN_PARENT_DGD_K8S_NAME", plan.dgd.name));
  put(env, front, env_entry("DYN_PARENT_DGD_K8S_NAMESPACE", space));
  put(env, front, env_entry(kBackendVariable, "kubernetes"));
  put(env, front, env_entry(kModeVariable, std::string(kDiscoveryByContainer)));
  put(env, front, env_entry("CONTAINER_NAME", engine_name(engine)));
  env.items().insert(env.items().begin(), front.items().begin(), front.items().end());
}

void add_discovery_labels(yaml::Node& labels, const PodPlan& plan) {
  if (!plan.is_found_by_kubernetes) return;
  add_label(labels, kBackend, "kubernetes");
  add_label(labels, kEnabled, "true");
  if (plan.dgd.name_space.empty() && !plan.service.global_namespace) return;
  const std::string value = dynamo_namespace(plan, plan.dgd.name_space);
  if (add_label(labels, kNamespaceLabel, value)) return;
  plan.warn(plan.service.position, plan.service.path,
            std::string(kNamespaceLabel) + ": " + base::quoted(value) +
                " is longer than the 63 characters of a label, which is left out",
            "shorten the name of the deployment or of its namespace");
}

std::string discovery_account(const PodPlan& plan) {
  return plan.dgd.name + "-k8s-service-discovery";
}

void set_service_account(yaml::Node& pod_spec, const PodPlan& plan) {
  if (!plan.is_found_by_kubernetes) return;
  const std::string account = discovery_account(plan);
  for (const char* const field : {"serviceAccountName", "serviceAccount"}) {
    const yaml::Node* own = pod_spec.find(field);
    if (own == nullptr) continue;
    if (own->text() != account) {
      plan.warn(own->position(), plan.spec_path(field),
                base::quoted(own->text()) + ": a worker registers with the rights of " + account +
                    ", which Dynamo's operator creates",
                "give your account the same rights, or leave it out");
    }
    return;
  }
  pod_spec.set("serviceAccountName", yaml::Node::string(account));
}

}  // namespace fo::pod
