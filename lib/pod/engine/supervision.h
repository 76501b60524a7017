// The way in which one engine serves while the other waits: under fo-shadow(1), which must know the
// engine's kind and the address of its API, or by the engines themselves.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// Where the active engine's API is published. Each engine's own API is at 127.0.0.1.
struct PublishedApi {
  int port = 0;
  /// The host in the form that a URL has.
  std::string host;

  [[nodiscard]] int engine_port(int engine) const { return port + 1 + engine; }
};

/// The way in which the standby waits for the lock.
enum class Standby {
  kNone,        // it does not wait, which is refused
  kShadowMode,  // dynamo.vllm: it starts, sleeps, and waits for the lock itself
  kAsleep,      // it starts, and fo-shadow puts it to sleep
  kCold,        // it is not started before the lock is held
};

class Supervision {
 public:
  /// Determines how the main container's engines wait and serve. Settings that prevent this are
  /// added to the findings, with and without --supervise.
  Supervision(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

  [[nodiscard]] Standby standby() const { return standby_; }
  /// The published API; nullopt without --supervise, for an engine without an API, and after an
  /// error.
  [[nodiscard]] const std::optional<PublishedApi>& api() const { return api_; }
  /// Whether the engine has its own system port in addition to fo-shadow's.
  [[nodiscard]] bool has_inner_system_port() const { return has_inner_system_port_; }

  /// Sets the host and the port of the engine's own API in `command`; does nothing without api().
  void apply(int engine, EngineCommand& command) const;
  /// Wraps the container's command in fo-shadow; does nothing without --supervise. `command` is the
  /// same command, parsed.
  void wrap(int engine, const EngineCommand& command, yaml::Node& container) const;

 private:
  void find_kind(const yaml::Node& main, const EngineCommand& command);
  void find_unsupervised(const yaml::Node& main, const EngineCommand& command);
  void check_shadow_mode(const yaml::Node& main, const EngineCommand& command) const;
  [[nodiscard]] std::pair<yaml::Position, std::string> place_of_variable(
      const yaml::Node& main, const EngineCommand& command, std::string_view name) const;
  void refuse_shadow_mode(const yaml::Node& main, const EngineCommand& command,
                          const std::string& holder) const;
  void require_shadow_mode(const yaml::Node& main, const EngineCommand& command) const;
  void find_api(const EngineCommand& command);
  void check_clients(const yaml::Node& main, const EngineCommand& command) const;
  void warn_of_standby(const yaml::Node& main, const EngineCommand& command) const;
  void warn_of_engine(const yaml::Node& main, const EngineCommand& command) const;

  void add_system_page(int engine, std::vector<std::string>& argv) const;

  const PodPlan& plan_;
  // The value of fo-shadow's --engine; "" if it does not run.
  std::string kind_;
  Standby standby_ = Standby::kNone;
  bool has_inner_system_port_ = false;
  std::optional<PublishedApi> api_;
};

/// The variable by which dynamo.vllm sleeps, takes the lock and wakes by itself.
inline constexpr std::string_view kShadowMode = "DYN_VLLM_GMS_SHADOW_MODE";

}  // namespace fo::pod
