#include "pod/engine/engine_probes.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

constexpr std::array<const char*, 3> kProbes = {"startupProbe", "livenessProbe", "readinessProbe"};

yaml::Node standard_probe(std::string_view path, int period, int timeout, int failures) {
  return yaml::Node::map(
      {{"httpGet", yaml::Node::map({{"path", yaml::Node::string(std::string(path))}})},
       {"periodSeconds", yaml::Node::integer(period)},
       {"timeoutSeconds", yaml::Node::integer(timeout)},
       {"failureThreshold", yaml::Node::integer(failures)}});
}

void retarget(yaml::Node& handler, int engine) {
  for (const char* const kind : {"httpGet", "tcpSocket"}) {
    if (yaml::Node* action = handler.find(kind)) {
      action->set("port", yaml::Node::string(system_port_name(engine)));
    }
  }
  // A gRPC port cannot be a name.
  if (yaml::Node* grpc = handler.find("grpc"))
    grpc->set("port", yaml::Node::integer(kSystemPort + engine));
}

// Whether `port` names a port of the container, by name or number.
bool is_own_port(const yaml::Node& main, const yaml::Node& port) {
  const yaml::Node* ports = main.find("ports");
  return port.text() == std::to_string(kSystemPort) ||
         yaml::find_named(ports, "name", port.text()) != nullptr ||
         yaml::find_named(ports, "containerPort", port.text()) != nullptr;
}

// Points lifecycle hooks that use a port of the main container to the engine's system port.
void retarget_hooks(yaml::Node& container, const yaml::Node& main, int engine) {
  for (const char* const hook : {"postStart", "preStop"}) {
    yaml::Node* lifecycle = container.find("lifecycle");
    yaml::Node* handler = lifecycle == nullptr ? nullptr : lifecycle->find(hook);
    if (handler == nullptr) continue;
    for (const char* const kind : {"httpGet", "tcpSocket"}) {
      yaml::Node* action = handler->find(kind);
      const yaml::Node* port = action == nullptr ? nullptr : action->find("port");
      if (port != nullptr && is_own_port(main, *port)) {
        action->set("port", yaml::Node::string(system_port_name(engine)));
      }
    }
  }
}

// Whether fo-shadow serves this path.
bool is_page(std::string_view path) {
  constexpr std::array<std::string_view, 3> kPages = {"/live", "/health", "/metrics"};
  return text::is_one_of(path, kPages);
}

// Whether a command contains a port of this host: "curl localhost:9090/live", "nc -z 127.0.0.1
// 9090".
bool names_port_here(const std::string& words) {
  for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"}) {
    for (std::size_t at = 0; (at = words.find(host, at)) != std::string::npos; ++at) {
      const std::size_t next = at + host.size();
      if (next + 1 < words.size() && (words[next] == ':' || words[next] == ' ') &&
          text::is_digit(words[next + 1])) {
        return true;
      }
    }
  }
  return false;
}

// Both engines use 127.0.0.1, so the probe of one could query the other.
void check_exec(const yaml::Node& main, const char* probe, const PodPlan& plan) {
  const yaml::Node* command = main.find_path({probe, "exec", "command"});
  if (command == nullptr) return;
  std::string words;
  for (const yaml::Node& word : command->items()) words += word.text() + " ";
  if (!names_port_here(words)) return;
  plan.warn(command->position(), plan.main_path(std::string(probe) + ".exec"),
            "its port may be the other engine's",
            "use $DYN_SYSTEM_PORT in sh -c, or leave the probe out");
}

void check_hooks(const yaml::Node& main, const PodPlan& plan) {
  if (!plan.options.supervise) return;
  for (const char* const hook : {"postStart", "preStop"}) {
    const yaml::Node* action = main.find_path({"lifecycle", hook, "httpGet"});
    const yaml::Node* port = action == nullptr ? nullptr : action->find("port");
    const yaml::Node* path = action == nullptr ? nullptr : action->find("path");
    if (port == nullptr || !is_own_port(main, *port)) continue;
    if (path != nullptr && is_page(path->text())) continue;
    plan.refuse(action->position(), plan.main_path("lifecycle." + std::string(hook) + ".httpGet"),
                base::quoted(path == nullptr ? "/" : path->text()) +
                    ": the engine listens at 127.0.0.1, where only its pod reaches it",
                "use exec, which runs inside the pod");
  }
}

}  // namespace

std::string system_port_name(int engine) { return "system-" + std::to_string(engine); }

// Probes use the system port, which has plain HTTP and, with fo-shadow, only fo-shadow's pages.
void check_probes(const yaml::Node& main, const PodPlan& plan) {
  check_hooks(main, plan);
  for (const char* const key : kProbes) {
    check_exec(main, key, plan);
    const yaml::Node* action = main.find_path({key, "httpGet"});
    if (action == nullptr) continue;
    const yaml::Node* scheme = action->find("scheme");
    if (scheme != nullptr && scheme->text() == "HTTPS") {
      plan.refuse(scheme->position(), plan.main_path(std::string(key) + ".httpGet.scheme"),
                  "the engine's system port has no TLS", "leave it out");
    }
    const yaml::Node* path = action->find("path");
    const std::string page = path == nullptr ? "/" : path->text();
    if (plan.options.supervise && !is_page(page)) {
      plan.refuse((path == nullptr ? action : path)->position(),
                  plan.main_path(std::string(key) + ".httpGet.path"),
                  base::quoted(page) + ": fo-shadow answers for the engine, at /live and /health",
                  "use one of those, or leave the probe out");
    }
  }
}

void set_probes(yaml::Node& container, const yaml::Node& main, int engine) {
  if (container.find("startupProbe") == nullptr) {
    container.set("startupProbe", standard_probe("/live", 10, 5, 720));
  }
  if (container.find("livenessProbe") == nullptr) {
    container.set("livenessProbe", standard_probe("/live", 5, 4, 1));
  }
  if (container.find("readinessProbe") == nullptr) {
    container.set("readinessProbe", standard_probe("/health", 10, 4, 3));
  }
  for (const char* const key : kProbes) {
    retarget(*container.find(key), engine);
  }
  retarget_hooks(container, main, engine);
}

}  // namespace fo::pod
