// How engines are driven: under fo-shadow(1), which needs to know what they are and where their API
// is; or by themselves.
#pragma once

#include <optional>
#include <string>

#include "pod/engine_command.h"
#include "pod/node.h"
#include "pod/pod_plan.h"

namespace fo::pod {

/// Where the active engine's API is published. Each engine's own is beside it, at 127.0.0.1.
struct PublishedApi {
  int port = 0;
  /// As in a URL.
  std::string host;

  [[nodiscard]] int engine_port(int engine) const { return port + 1 + engine; }
};

class Supervision {
 public:
  /// Of the main container. What stands in its way, without --supervise too, is added to the
  /// findings.
  Supervision(const Node& main, const EngineCommand& command, const PodPlan& plan);

  /// Of engines that have one, supervised.
  [[nodiscard]] const std::optional<PublishedApi>& api() const { return api_; }
  /// Whether the engine has a system port of its own behind that of fo-shadow.
  [[nodiscard]] bool has_inner_system_port() const { return kind_ == "dynamo"; }

  /// Gives the command the port of its API.
  void apply(int engine, EngineCommand& command) const;
  /// Puts fo-shadow in front of the container's command.
  void wrap(int engine, Node& container) const;

 private:
  void find_kind(const Node& main, const EngineCommand& command);
  void find_api(const EngineCommand& command);
  void check_clients(const Node& main, const EngineCommand& command) const;
  void warn_of_sleep(const Node& main, const EngineCommand& command) const;
  void warn_of_engine(const Node& main, const EngineCommand& command) const;
  void check_unsupervised(const Node& main, const EngineCommand& command) const;

  const PodPlan& plan_;
  // fo-shadow's --engine; "" where it does not run, or can't.
  std::string kind_;
  std::optional<PublishedApi> api_;
};

}  // namespace fo::pod
