// How engines are driven, so that one of them serves and the other waits: under fo-shadow(1), which
// needs to know what they are and where their API is; or by themselves.
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

/// Where the active engine's API is published. Each engine's own is beside it, at 127.0.0.1.
struct PublishedApi {
  int port = 0;
  /// As in a URL.
  std::string host;

  [[nodiscard]] int engine_port(int engine) const { return port + 1 + engine; }
};

/// How the engine that doesn't serve waits for the lock.
enum class Standby {
  kNone,        // it does not, which is refused
  kShadowMode,  // dynamo.vllm: started, asleep, and waiting for the lock itself
  kAsleep,      // started, and put to sleep by an fo-shadow
  kCold,        // not started before the lock is held
};

class Supervision {
 public:
  /// Of the main container. What stands in its way, without --supervise too, is added to the
  /// findings.
  Supervision(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

  [[nodiscard]] Standby standby() const { return standby_; }
  /// Of engines that have one, supervised.
  [[nodiscard]] const std::optional<PublishedApi>& api() const { return api_; }
  /// Whether the engine has a system port of its own behind that of fo-shadow.
  [[nodiscard]] bool has_inner_system_port() const { return has_inner_system_port_; }

  /// Gives the command the port of its API.
  void apply(int engine, EngineCommand& command) const;
  /// Puts fo-shadow in front of the container's command.
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
  // fo-shadow's --engine; "" where it does not run, or can't.
  std::string kind_;
  Standby standby_ = Standby::kNone;
  bool has_inner_system_port_ = false;
  std::optional<PublishedApi> api_;
};

/// The variable that has dynamo.vllm sleep, take the lock and wake by itself.
inline constexpr std::string_view kShadowMode = "DYN_VLLM_GMS_SHADOW_MODE";

}  // namespace fo::pod
