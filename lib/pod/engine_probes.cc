#include "pod/engine_probes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace fo::pod {
namespace {

constexpr std::array<const char*, 3> kProbes = {"startupProbe", "livenessProbe", "readinessProbe"};

Node standard_probe(std::string_view path, int period, int timeout, int failures) {
  return Node::map({{"httpGet", Node::map({{"path", Node::string(std::string(path))}})},
                    {"periodSeconds", Node::integer(period)},
                    {"timeoutSeconds", Node::integer(timeout)},
                    {"failureThreshold", Node::integer(failures)}});
}

void retarget(Node& handler, int engine) {
  for (const char* const kind : {"httpGet", "tcpSocket"}) {
    if (Node* action = handler.find(kind)) {
      action->set("port", Node::string(system_port_name(engine)));
    }
  }
  // A port of gRPC has no name.
  if (Node* grpc = handler.find("grpc")) grpc->set("port", Node::integer(kSystemPort + engine));
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
        action->set("port", Node::string(system_port_name(engine)));
      }
    }
  }
}

}  // namespace

std::string system_port_name(int engine) { return "system-" + std::to_string(engine); }

// The probes go to the system port, where there is plain HTTP, and with fo-shadow two pages.
void check_probes(const Node& main, const PodPlan& plan) {
  constexpr std::array<std::string_view, 3> kPages = {"/live", "/health", "/metrics"};
  for (const char* const key : kProbes) {
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

void set_probes(Node& container, const Node& main, int engine) {
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
