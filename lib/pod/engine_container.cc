#include "pod/engine_container.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "pod/engine_command.h"
#include "pod/engine_ports.h"

namespace fo::pod {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Where the active engine's API is reached, and where each engine's own is, with --supervise.
struct Api {
  int port = 0;
  std::string publish_host = "0.0.0.0";
};

constexpr std::string_view kShadowMode = "DYN_VLLM_GMS_SHADOW_MODE";

std::string port_name(int engine) { return "system-" + std::to_string(engine); }

Variables our_variables(int engine, const PodPlan& plan) {
  Variables variables{{"ENGINE_ID", std::to_string(engine)},
                      {"GMS_SOCKET_DIR", plan.names.folder},
                      {"FAILOVER_LOCK_PATH", plan.lock_uri()},
                      {"DYN_SYSTEM_STARTING_HEALTH_STATUS", "notready"},
                      {"DYN_SYSTEM_ENABLED", "true"},
                      {"DYN_SYSTEM_PORT", std::to_string(kSystemPort + engine)}};
  if (plan.is_dynamo()) {
    variables.emplace_back("CONTAINER_NAME", engine_name(engine));
    // A worker in this mode waits for the lock itself, for ever where fo-shadow holds it for it.
    if (!plan.options.supervise) variables.emplace_back(kShadowMode, "true");
  }
  return variables;
}

// Beside those that are set anew.
std::vector<std::string> removed_variables(const PodPlan& plan) {
  std::vector<std::string> names{"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS",
                                 "DYN_HEALTH_CHECK_ENABLED"};
  if (plan.is_dynamo()) names.emplace_back("DYN_FORWARDPASS_METRIC_PORT");
  return names;
}

void remove_variable(Node& env, std::string_view name) {
  std::erase_if(env.items(), [&](const Node& entry) {
    const Node* own = entry.find("name");
    return own != nullptr && own->text() == name;
  });
}

// Ours come first, so that the user's can refer to them.
Node make_env(const Node* old, int engine, const PodPlan& plan) {
  Node rest = old == nullptr ? Node::list() : *old;
  for (const std::string& name : removed_variables(plan)) remove_variable(rest, name);
  Node env = Node::list().at(rest.position());
  for (const auto& [name, value] : our_variables(engine, plan)) {
    remove_variable(rest, name);
    env.push_back(env_entry(name, value));
  }
  for (Node& entry : rest.items()) env.push_back(std::move(entry));
  return env;
}

void check_variables(const Node& main, const EngineCommand& command, const PodPlan& plan) {
  std::set<std::string> names;
  for (const std::string& name : removed_variables(plan)) names.insert(name);
  for (const std::string& name : port_variables()) names.insert(name);
  for (const auto& [name, value] : our_variables(0, plan)) names.insert(name);
  const Node* place = main.find(command.has_command() ? "command" : "args");
  for (const std::string& name : names) {
    if (!command.sets_variable(name)) continue;
    plan.refuse(place == nullptr ? main.position() : place->position(), plan.main_path("command"),
                "it sets " + name + ", for both engines alike", "leave that out, or set it in env");
  }
  // What is asked for by these names is not what the pod will have.
  for (const char* const name : {"ENGINE_ID", "GMS_SOCKET_DIR", "FAILOVER_LOCK_PATH"}) {
    const Node* entry = find_named(main.find("env"), "name", name);
    if (entry == nullptr) continue;
    plan.warn(entry->position(), plan.main_path("env[" + std::string(name) + "]"),
              "is set for each engine anew", "leave it out");
  }
  const Node* mode = find_named(main.find("env"), "name", kShadowMode);
  if (mode != nullptr && plan.options.supervise) {
    plan.refuse(mode->position(), plan.main_path("env[" + std::string(kShadowMode) + "]"),
                "the engine would wait for the lock that fo-shadow holds for it", "leave it out");
  }
}

// By the user's --engine, or by the command; "" where neither says.
std::string engine_kind(const EngineCommand& command, const PodPlan& plan) {
  if (!plan.options.engine.empty()) return plan.options.engine;
  switch (command.program()) {
    case EngineProgram::kVllm:
    case EngineProgram::kRefEngine:
      return "vllm";
    case EngineProgram::kSglang:
      return "sglang";
    case EngineProgram::kDynamoVllm:
    case EngineProgram::kDynamo:
      return "dynamo";
    case EngineProgram::kUnknown:
      return "";
  }
  return "";
}

bool has_api(EngineProgram program) {
  return program == EngineProgram::kVllm || program == EngineProgram::kSglang ||
         program == EngineProgram::kRefEngine;
}

// 0: unknown, which is refused.
int find_api_port(const EngineCommand& command, const std::string& kind, const PodPlan& plan) {
  const OptionValue value = command.find("--port");
  if (value.state == OptionValue::State::kAbsent) return kind == "sglang" ? 30000 : 8000;
  const int port = port_of(value.text);
  if (value.state == OptionValue::State::kUnknown || port == 0) {
    plan.refuse(
        value.position, plan.main_path("args"),
        "--port can't be changed for each engine: " +
            (value.reason.empty() ? base::quoted(value.text) + " is no port" : value.reason),
        "give a plain number, in a list of arguments or a script of one command");
    return 0;
  }
  if (port + kEngines > 65535) {
    plan.refuse(value.position, plan.main_path("args"),
                "--port " + value.text + ": the engines would need ports over 65535",
                "choose a lower one");
    return 0;
  }
  return port;
}

// The address to publish at; nullopt where the engine's can't be known, which is refused.
std::optional<std::string> find_publish_host(const EngineCommand& command, const PodPlan& plan) {
  const OptionValue host = command.find("--host");
  if (host.state == OptionValue::State::kAbsent || host.text == "0.0.0.0") return "0.0.0.0";
  if (host.text == "::") return "[::]";
  if (host.text == "127.0.0.1" || host.text == "localhost") return "127.0.0.1";
  plan.refuse(host.position, plan.main_path("args"),
              "--host: the engine has to listen at 127.0.0.1" +
                  (host.reason.empty() ? ", not " + base::quoted(host.text) : ": " + host.reason),
              "leave --host out: fo-shadow is who listens for the pod's clients");
  return std::nullopt;
}

std::optional<std::string> set_api(EngineCommand& command, const Api& api, int engine) {
  if (auto reason = command.set("--host", "127.0.0.1")) return reason;
  return command.set("--port", std::to_string(api.port + 1 + engine));
}

std::optional<Api> find_api(const EngineCommand& command, const std::string& kind,
                            const PodPlan& plan) {
  if (kind != "vllm" && kind != "sglang") return std::nullopt;
  Api api;
  api.port = find_api_port(command, kind, plan);
  const std::optional<std::string> host = find_publish_host(command, plan);
  if (api.port == 0 || !host) return std::nullopt;
  api.publish_host = *host;
  EngineCommand changed = command;
  if (const auto reason = set_api(changed, api, 0)) {
    plan.refuse(plan.service.position, plan.main_path("command"),
                "each engine needs a --port of its own: " + *reason,
                "make the command a list, or a script of one command");
    return std::nullopt;
  }
  return api;
}

void warn_of_engine(const Node& main, const EngineCommand& command, const PodPlan& plan) {
  const auto warn = [&](const char* field, const std::string& reason, const char* remedy) {
    plan.warn(main.position(), plan.main_path(field), reason, remedy);
  };
  if (command.program() == EngineProgram::kVllm) {
    if (!command.has_flag("--enable-sleep-mode")) {
      warn("args", "without --enable-sleep-mode vLLM can't be put to sleep", "add it");
    }
    if (find_named(main.find("env"), "name", "VLLM_SERVER_DEV_MODE") == nullptr &&
        !command.sets_variable("VLLM_SERVER_DEV_MODE")) {
      warn("env", "without VLLM_SERVER_DEV_MODE vLLM can't be told to sleep", "set it to 1");
    }
  }
  if (command.program() == EngineProgram::kSglang && !command.has_flag("--enable-memory-saver")) {
    warn("args", "without --enable-memory-saver SGLang can't be put to sleep", "add it");
  }
}

// What stands in front of the engine's command; nothing where something was refused.
std::vector<std::string> make_supervisor(const std::string& kind, const std::optional<Api>& api,
                                         int engine, const PodPlan& plan) {
  // The devices by name: a server that never started is to be missed.
  std::vector<std::string> argv{plan.program("fo-shadow"), "--engine", kind, "--devices",
                                plan.device_list()};
  if (plan.options.gms == GmsProgram::kUpstream) {
    for (std::int64_t device = 0; device < plan.service.gpus; ++device) {
      argv.insert(argv.end(),
                  {"--gms", plan.names.folder + "/gms_" + std::to_string(device) + ".sock"});
    }
  }
  if (api) {
    const std::string own = std::to_string(api->port + 1 + engine);
    argv.insert(argv.end(), {"--engine-url", "http://127.0.0.1:" + own, "--publish",
                             api->publish_host + ":" + std::to_string(api->port)});
  }
  argv.emplace_back("--");
  return argv;
}

// "" where it can't be supervised, which is refused.
std::string check_supervision(const Node& main, const EngineCommand& command, const PodPlan& plan) {
  if (!command.has_command()) {
    plan.refuse(main.position(), plan.main_path("command"),
                "none: the image's own entrypoint can't be run under fo-shadow",
                "say the command, or leave out --supervise");
    return "";
  }
  if (plan.options.gms == GmsProgram::kUpstream && plan.is_dynamo()) {
    plan.refuse("fo-shadow can't find the sockets of Dynamo's GMS, which are named by the GPU",
                "say --gms ours, or --layout plan");
    return "";
  }
  std::string kind = engine_kind(command, plan);
  if (kind.empty()) {
    plan.refuse(main.position(), plan.main_path("command"),
                "which engine that is can't be told from it", "say --engine");
  }
  return kind;
}

void check_unsupervised(const Node& main, const EngineCommand& command, const PodPlan& plan) {
  if (has_api(command.program())) {
    plan.refuse(main.position(), plan.main_path("command"),
                "both engines would listen on the same port, and none waits for the lock",
                "say --supervise: fo-shadow sees to both");
  }
  const bool is_dynamo = command.program() == EngineProgram::kDynamoVllm ||
                         command.program() == EngineProgram::kDynamo;
  if (is_dynamo && plan.options.lock == LockKind::kLockd) {
    plan.warn(main.position(), plan.main_path("command"),
              "Dynamo's workers take a file for their lock, not a lock server",
              "say --supervise, or --lock flock");
  }
}

const Node* find_port(const Node& main, int number) {
  return find_named(main.find("ports"), "containerPort", std::to_string(number));
}

Node declared_port(const std::string& name, int number) {
  return Node::map({{"name", Node::string(name)},
                    {"containerPort", Node::integer(number)},
                    {"protocol", Node::string("TCP")}});
}

Node make_ports(const Node& main, const std::optional<Api>& api, int engine) {
  Node ports = Node::list();
  ports.push_back(declared_port(port_name(engine), kSystemPort + engine));
  // Once, whoever listens there: a name stands for one port of the pod.
  if (!api || engine != 0) return ports;
  if (const Node* own = find_port(main, api->port)) {
    ports.push_back(*own);
  } else {
    ports.push_back(declared_port("api", api->port));
  }
  return ports;
}

void check_host_ports(const Node& main, const std::optional<Api>& api, const PodPlan& plan) {
  const Node* ports = main.find("ports");
  if (ports == nullptr) return;
  for (const Node& port : ports->items()) {
    const Node* host_port = port.find("hostPort");
    if (host_port == nullptr) continue;
    const Node* number = port.find("containerPort");
    if (api && number != nullptr && port_of(number->text()) == api->port) continue;
    plan.refuse(host_port->position(), plan.main_path("ports"),
                "hostPort " + base::quoted(host_port->text()) +
                    ": two engines can't have one port of the node",
                "leave it out");
  }
}

Node standard_probe(std::string_view path, int period, int timeout, int failures) {
  return Node::map({{"httpGet", Node::map({{"path", Node::string(std::string(path))}})},
                    {"periodSeconds", Node::integer(period)},
                    {"timeoutSeconds", Node::integer(timeout)},
                    {"failureThreshold", Node::integer(failures)}});
}

void retarget(Node& handler, int engine) {
  for (const char* const kind : {"httpGet", "tcpSocket"}) {
    if (Node* action = handler.find(kind)) action->set("port", Node::string(port_name(engine)));
  }
  // A port of gRPC has no name.
  if (Node* grpc = handler.find("grpc")) grpc->set("port", Node::integer(kSystemPort + engine));
}

void set_probes(Node& container, int engine) {
  if (container.find("startupProbe") == nullptr) {
    container.set("startupProbe", standard_probe("/live", 10, 5, 720));
  }
  if (container.find("livenessProbe") == nullptr) {
    container.set("livenessProbe", standard_probe("/live", 5, 4, 1));
  }
  if (container.find("readinessProbe") == nullptr) {
    container.set("readinessProbe", standard_probe("/health", 10, 4, 3));
  }
  for (const char* const key : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    retarget(*container.find(key), engine);
  }
}

// The probes go to the system port, where there is plain HTTP, and with fo-shadow two pages.
void check_probes(const Node& main, const PodPlan& plan) {
  constexpr std::array<std::string_view, 3> kPages = {"/live", "/health", "/metrics"};
  for (const char* const key : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    const Node* action = main.find_path({key, "httpGet"});
    if (action == nullptr) continue;
    const Node* scheme = action->find("scheme");
    if (scheme != nullptr && scheme->text() == "HTTPS") {
      plan.refuse(scheme->position(), plan.main_path(std::string(key) + ".httpGet.scheme"),
                  "the engine's system port has no TLS", "leave it out");
    }
    const Node* path = action->find("path");
    const std::string page = path == nullptr ? "/" : path->text();
    if (plan.options.supervise && std::find(kPages.begin(), kPages.end(), page) == kPages.end()) {
      plan.refuse((path == nullptr ? action : path)->position(),
                  plan.main_path(std::string(key) + ".httpGet.path"),
                  base::quoted(page) + ": fo-shadow answers for the engine, at /live and /health",
                  "use one of those, or leave the probe out");
    }
  }
}

// Handlers at a port of the container's, by its name or number, follow it.
void retarget_hooks(Node& container, const Node& main, int engine) {
  for (const char* const hook : {"postStart", "preStop"}) {
    Node* lifecycle = container.find("lifecycle");
    Node* handler = lifecycle == nullptr ? nullptr : lifecycle->find(hook);
    if (handler == nullptr) continue;
    for (const char* const kind : {"httpGet", "tcpSocket"}) {
      Node* action = handler->find(kind);
      const Node* port = action == nullptr ? nullptr : action->find("port");
      if (port == nullptr) continue;
      const Node* ports = main.find("ports");
      if (port->text() == std::to_string(kSystemPort) ||
          find_named(ports, "name", port->text()) != nullptr ||
          find_named(ports, "containerPort", port->text()) != nullptr) {
        action->set("port", Node::string(port_name(engine)));
      }
    }
  }
}

void set_gpus(Node& container, const PodPlan& plan) {
  Node& resources = container["resources"];
  for (const char* const key : {"limits", "requests"}) {
    Node* amounts = resources.find(key);
    if (amounts == nullptr) continue;
    amounts->remove(kGpuResource);
    if (amounts->members().empty()) resources.remove(key);
  }
  if (plan.options.gpu_sharing == GpuSharing::kDevicePlugin) {
    resources["limits"].set(kGpuResource, Node::string(std::to_string(plan.service.gpus)));
  } else {
    resources["claims"].push_back(Node::map({{"name", Node::string(plan.names.claim)}}));
  }
}

// "/shared/" and "/shared/." are "/shared".
std::string plain_path(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

}  // namespace

void mount_volume(Node& container, const PodPlan& plan, const std::string& path,
                  std::string_view volume, std::string_view folder, bool read_only) {
  for (const Node& mount : container["volumeMounts"].items()) {
    const Node* at = mount.find("mountPath");
    if (at == nullptr || plain_path(at->text()) != folder) continue;
    plan.refuse(at->position(), path + ".volumeMounts",
                base::quoted(at->text()) + ": the volume '" + std::string(volume) +
                    "' has to be mounted there",
                "mount yours elsewhere");
    return;
  }
  Node mount = Node::map({{"name", Node::string(std::string(volume))},
                          {"mountPath", Node::string(std::string(folder))}});
  if (read_only) mount.set("readOnly", Node::boolean(true));
  container["volumeMounts"].push_back(std::move(mount));
}

void add_gms_access(Node& container, const PodPlan& plan, const std::string& path) {
  set_gpus(container, plan);
  mount_volume(container, plan, path, plan.names.volume, plan.names.folder, false);
  Node& env = container["env"];
  remove_variable(env, "GMS_SOCKET_DIR");
  env.push_back(env_entry("GMS_SOCKET_DIR", plan.names.folder));
}

Engines make_engines(const Node& main, const PodPlan& plan) {
  const EngineCommand command(main);
  std::string kind;
  if (plan.options.supervise) {
    kind = check_supervision(main, command, plan);
    warn_of_engine(main, command, plan);
  } else {
    check_unsupervised(main, command, plan);
  }
  const std::optional<Api> api = find_api(command, kind, plan);
  check_variables(main, command, plan);
  check_probes(main, plan);
  check_host_ports(main, api, plan);
  const EnginePorts ports(main, command, plan);

  Node base = main;
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
    Node container = base;
    container.set("name", Node::string(engine_name(engine)));
    EngineCommand own = command;
    Node env = make_env(main.find("env"), engine, plan);
    ports.apply(engine, env, own);
    container.set("env", std::move(env));
    if (api) set_api(own, *api, engine);
    own.write_to(container);
    if (!kind.empty()) {
      Node& words = container["command"];
      Node wrapped = Node::strings(make_supervisor(kind, api, engine, plan)).at(words.position());
      for (Node& word : words.items()) wrapped.push_back(std::move(word));
      words = std::move(wrapped);
    }
    container.set("ports", make_ports(main, api, engine));
    set_probes(container, engine);
    retarget_hooks(container, main, engine);
    engines.containers.push_back(std::move(container));

    use(kSystemPort + engine, engine, "DYN_SYSTEM_PORT", true);
    if (kind == "dynamo") use(kSystemPort + 100 + engine, engine, "own DYN_SYSTEM_PORT", true);
    if (api) use(api->port + 1 + engine, engine, "API", true);
  }
  return engines;
}

}  // namespace fo::pod
