#include "pod/engine/engine_container.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "pod/dgd/discovery.h"
#include "pod/engine/engine_command.h"
#include "pod/engine/engine_needs.h"
#include "pod/engine/engine_ports.h"
#include "pod/engine/engine_probes.h"
#include "pod/engine/supervision.h"

namespace fo::pod {
namespace {

using VariableList = std::vector<std::pair<std::string, std::string>>;

VariableList our_variables(int engine, const PodPlan& plan) {
  VariableList variables{{"ENGINE_ID", std::to_string(engine)},
                         {"GMS_SOCKET_DIR", plan.names.folder},
                         {"FAILOVER_LOCK_PATH", plan.lock_uri()},
                         {"DYN_SYSTEM_STARTING_HEALTH_STATUS", "notready"},
                         {"DYN_SYSTEM_ENABLED", "true"},
                         {"DYN_SYSTEM_PORT", std::to_string(kSystemPort + engine)}};
  if (plan.is_dynamo()) variables.emplace_back("CONTAINER_NAME", engine_name(engine));
  return variables;
}

// The variables whose user's values are removed, besides those that the generator sets.
std::vector<std::string> removed_variables(const PodPlan& plan) {
  std::vector<std::string> names{"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS",
                                 "DYN_HEALTH_CHECK_ENABLED"};
  if (plan.is_dynamo()) names.emplace_back("DYN_FORWARDPASS_METRIC_PORT");
  return names;
}

void remove_variable(yaml::Node& env, std::string_view name) {
  std::erase_if(env.items(),
                [&](const yaml::Node& entry) { return entry.text_at({"name"}) == name; });
}

// Adds CUDA_DEVICE_ORDER unless the env has one.
void add_device_order(yaml::Node& env, const PodPlan& plan) {
  if (plan.device_order.is_null()) return;
  if (yaml::find_named(&env, "name", plan.device_order.text_at({"name"})) != nullptr) return;
  env.push_back(plan.device_order);
}

// The generated variables come first, so that the user's can refer to them.
yaml::Node make_env(const yaml::Node* old, int engine, Standby standby, const PodPlan& plan) {
  yaml::Node rest = old == nullptr ? yaml::Node::list() : *old;
  for (const std::string& name : removed_variables(plan)) remove_variable(rest, name);
  yaml::Node env = yaml::Node::list().at(rest.position());
  VariableList ours = our_variables(engine, plan);
  if (standby == Standby::kShadowMode) ours.emplace_back(kShadowMode, "true");
  for (const auto& [name, value] : ours) {
    remove_variable(rest, name);
    env.push_back(env_entry(name, value));
  }
  for (yaml::Node& entry : rest.items()) env.push_back(std::move(entry));
  add_device_order(env, plan);
  add_discovery_variables(engine, env, plan);
  return env;
}

void check_variables(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan) {
  std::set<std::string> names;
  for (const std::string& name : removed_variables(plan)) names.insert(name);
  for (const std::string& name : port_variables()) names.insert(name);
  for (const auto& [name, value] : our_variables(0, plan)) names.insert(name);
  const yaml::Node* place = main.find(command.has_command() ? "command" : "args");
  for (const std::string& name : names) {
    if (!command.sets_variable(name)) continue;
    plan.refuse(place == nullptr ? main.position() : place->position(), plan.main_path("command"),
                "it sets " + name + ", for both engines alike", "leave that out, or set it in env");
  }
  // The values of the pod replace the user's values of these variables.
  for (const char* const name : {"ENGINE_ID", "GMS_SOCKET_DIR", "FAILOVER_LOCK_PATH"}) {
    const yaml::Node* entry = yaml::find_named(main.find("env"), "name", name);
    if (entry == nullptr) continue;
    plan.warn(entry->position(), plan.main_path("env[" + std::string(name) + "]"),
              "it is set for each engine", "leave it out");
  }
}

// The port with this number that the main container declares; nullptr if there is none.
const yaml::Node* find_port(const yaml::Node& main, int number) {
  for (const yaml::Node& port : main.items_at({"ports"})) {
    const yaml::Node* own = port.find("containerPort");
    if (own != nullptr && port_of(*own) == number) return &port;
  }
  return nullptr;
}

yaml::Node declared_port(const std::string& name, int number) {
  return yaml::Node::map({{"name", yaml::Node::string(name)},
                          {"containerPort", yaml::Node::integer(number)},
                          {"protocol", yaml::Node::string("TCP")}});
}

yaml::Node make_ports(const yaml::Node& main, const std::optional<PublishedApi>& api, int engine) {
  yaml::Node ports = yaml::Node::list();
  ports.push_back(declared_port(system_port_name(engine), kSystemPort + engine));
  // Only engine 0 declares the port of the API, whichever engine is active: a name stands for one
  // port of the pod.
  if (!api || engine != 0) return ports;
  if (const yaml::Node* own = find_port(main, api->port)) {
    ports.push_back(*own);
  } else {
    ports.push_back(declared_port("api", api->port));
  }
  return ports;
}

void check_host_ports(const yaml::Node& main, const std::optional<PublishedApi>& api,
                      const PodPlan& plan) {
  for (const yaml::Node& port : main.items_at({"ports"})) {
    const yaml::Node* host_port = port.find("hostPort");
    if (host_port == nullptr) continue;
    const yaml::Node* number = port.find("containerPort");
    if (api && number != nullptr && port_of(*number) == api->port) continue;
    plan.refuse(host_port->position(), plan.main_path("ports"),
                "hostPort " + base::quoted(host_port->text()) +
                    ": two engines cannot share one port of the node",
                "leave it out");
  }
}

// Warns of ports of the main container that the engines do not declare, because only one container
// can have a port of the pod.
void check_declared_ports(const yaml::Node& main, const std::optional<PublishedApi>& api,
                          const std::vector<PortUse>& known, const PodPlan& plan) {
  const yaml::Node* ports = main.find("ports");
  if (ports == nullptr) return;
  const yaml::Node* system = yaml::find_named(main.find("env"), "name", "DYN_SYSTEM_PORT");
  const yaml::Node* system_port = system == nullptr ? nullptr : system->find("value");
  for (std::size_t i = 0; i < ports->items().size(); ++i) {
    const yaml::Node& port = ports->items()[i];
    const yaml::Node* number = port.find("containerPort");
    const yaml::Node* name = port.find("name");
    if (number == nullptr) continue;
    const int value = port_of(*number);
    const std::string path = plan.main_path(item_path("ports", i));
    if (api && value == api->port) {
      if (name != nullptr &&
          (name->text() == system_port_name(0) || name->text() == system_port_name(1))) {
        plan.refuse(name->position(), path + ".name",
                    base::quoted(name->text()) + ": the engine's system port has this name",
                    "choose another name");
      }
      continue;
    }
    // Engine 1 has another port or its system port in place of these.
    const bool is_staggered = std::any_of(
        known.begin(), known.end(), [value](const PortUse& use) { return use.port == value; });
    const bool is_system = value == kSystemPort || (name != nullptr && name->text() == "system") ||
                           (system_port != nullptr && port_of(system_port->text()) == value);
    if (is_staggered || is_system || port.find("hostPort") != nullptr) continue;
    plan.warn(number->position(), path,
              (name == nullptr ? number->text()
                               : base::quoted(name->text()) + " (" + number->text() + ")") +
                  ": no longer declared: two engines cannot share it",
              "leave it out, or give it to a sidecar");
  }
}

void set_gpus(yaml::Node& container, const PodPlan& plan) {
  yaml::Node& resources = container["resources"];
  for (const char* const key : {"limits", "requests"}) {
    yaml::Node* amounts = resources.find(key);
    if (amounts == nullptr) continue;
    amounts->remove(kGpuResource);
    if (amounts->members().empty()) resources.remove(key);
  }
  if (plan.options.gpu_sharing == GpuSharing::kDevicePlugin) {
    resources["limits"].set(kGpuResource, yaml::Node::string(std::to_string(plan.service.gpus)));
  } else {
    resources["claims"].push_back(
        yaml::Node::map({{"name", yaml::Node::string(plan.names.claim)}}));
  }
}

// Reduces "/shared/" and "/shared/." to "/shared".
std::string plain_path(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

// Whether a mount at `path` would hide the toolkit's files in `folder`.
bool hides(const std::string& path, std::string_view folder) {
  if (path == folder) return true;
  const std::string inside = std::string(folder) + "/";
  if (!path.starts_with(inside)) return false;
  const std::string_view name = std::string_view(path).substr(inside.size());
  return folder == kToolsFolder || name.starts_with("failover.") || name.starts_with("gms_");
}

}  // namespace

void mount_volume(yaml::Node& container, const PodPlan& plan, const std::string& path,
                  std::string_view volume, std::string_view folder, bool read_only) {
  for (const yaml::Node& mount : container["volumeMounts"].items()) {
    const yaml::Node* at = mount.find("mountPath");
    if (at == nullptr || !hides(plain_path(at->text()), folder)) continue;
    plan.refuse(at->position(), path + ".volumeMounts",
                base::quoted(at->text()) + ": the volume '" + std::string(volume) +
                    "' must be mounted there",
                "mount yours elsewhere");
    return;
  }
  yaml::Node mount = yaml::Node::map({{"name", yaml::Node::string(std::string(volume))},
                                      {"mountPath", yaml::Node::string(std::string(folder))}});
  if (read_only) mount.set("readOnly", yaml::Node::boolean(true));
  container["volumeMounts"].push_back(std::move(mount));
}

void add_gms_access(yaml::Node& container, const PodPlan& plan, const std::string& path) {
  set_gpus(container, plan);
  mount_volume(container, plan, path, plan.names.volume, plan.names.folder, false);
  yaml::Node& env = container["env"];
  remove_variable(env, "GMS_SOCKET_DIR");
  env.push_back(env_entry("GMS_SOCKET_DIR", plan.names.folder));
  add_device_order(env, plan);
}

Engines make_engines(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan) {
  const Supervision supervision(main, command, plan);
  const std::optional<PublishedApi>& api = supervision.api();
  check_variables(main, command, plan);
  const EngineNeeds needs(main, command, supervision.standby(), plan);
  check_probes(main, plan);
  check_host_ports(main, api, plan);
  const EnginePorts ports(main, command, plan);
  check_declared_ports(main, api, ports.uses(), plan);

  yaml::Node base = main;
  add_gms_access(base, plan, plan.main_path(""));
  if (plan.options.supervise && plan.has_tools()) {
    mount_volume(base, plan, plan.main_path(""), kToolsVolume, kToolsFolder, true);
  }

  Engines engines;
  engines.ports = ports.uses();
  const auto use = [&](int port, int engine, const char* what, bool is_ours) {
    engines.ports.push_back(
        {port, engine_name(engine), what, is_ours, plan.main_path(""), main.position()});
  };
  if (api) use(api->port, 0, "--port", false);
  for (int engine = 0; engine < kEngines; ++engine) {
    yaml::Node container = base;
    container.set("name", yaml::Node::string(engine_name(engine)));
    EngineCommand own = command;
    yaml::Node env = make_env(main.find("env"), engine, supervision.standby(), plan);
    needs.apply(engine, env, own);
    ports.apply(engine, env, own);
    container.set("env", std::move(env));
    supervision.apply(engine, own);
    own.write_to(container);
    supervision.wrap(engine, own, container);
    container.set("ports", make_ports(main, api, engine));
    set_probes(container, main, engine);
    engines.containers.push_back(std::move(container));

    use(kSystemPort + engine, engine, "DYN_SYSTEM_PORT", true);
    if (supervision.has_inner_system_port()) {
      use(kSystemPort + kInnerPortOffset + engine, engine, "own DYN_SYSTEM_PORT", true);
    }
    if (api) use(api->engine_port(engine), engine, "API", true);
  }
  return engines;
}

}  // namespace fo::pod
