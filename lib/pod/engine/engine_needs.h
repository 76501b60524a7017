// The options and variables that an engine needs to share memory through a GMS with another engine;
// they are added to its command and env unless the user sets them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pod/engine/engine_command.h"
#include "pod/engine/supervision.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

class EngineNeeds {
 public:
  /// Finds the missing settings of the main container; `standby` is the way in which its standby
  /// waits. Settings that cannot be added, and conflicting settings of the user, are reported in
  /// the findings.
  EngineNeeds(const yaml::Node& main, const EngineCommand& command, Standby standby,
              const PodPlan& plan);

  /// Adds the missing settings to `env` and `command` of engine `engine`, which are copies of the
  /// main container's.
  void apply(int engine, yaml::Node& env, EngineCommand& command) const;

 private:
  enum class Family { kNone, kVllm, kSglang, kDynamoVllm };
  struct Option {
    std::string_view name;
    // "" if the option takes no value.
    std::string_view value;
  };

  [[nodiscard]] Family family_of(EngineProgram program) const;
  void find_options(const yaml::Node& main, const EngineCommand& command);
  void find_sglang_options(const yaml::Node& main, const EngineCommand& command);
  void add_options(const yaml::Node& main, const EngineCommand& command,
                   const std::vector<Option>& wanted);
  void find_variables(const yaml::Node& main, const EngineCommand& command);
  void find_read_only(const yaml::Node& main, const EngineCommand& command);
  void check_variable(const yaml::Node& main, const EngineCommand& command, std::string_view name,
                      std::string_view without);
  void warn_of_missing(const yaml::Node& main, const EngineCommand& command,
                       const std::vector<std::string>& missing);
  [[nodiscard]] bool can_be_added(const EngineCommand& command, const Option& option) const;

  const PodPlan& plan_;
  Family family_;
  bool is_asleep_;
  // True if --load-format is gms; for vLLM also if it is missing, and hence added, or unknown.
  bool uses_gms_ = false;
  std::vector<Option> options_;
  std::vector<std::pair<std::string_view, std::string_view>> variables_;
  // The new --model-loader-extra-config of every engine except the first; "" if it does not change.
  std::string read_only_;
};

/// The entry CUDA_DEVICE_ORDER for all containers with the engine's GPUs: the user's, or one that
/// orders devices as NVML does; a null if it is not needed.
yaml::Node device_order(const yaml::Node& main, const EngineCommand& command);

}  // namespace fo::pod
