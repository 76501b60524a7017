// What an engine needs to have its memory in a GMS beside another one: options and variables that
// its command and env get where the user says nothing of them.
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
  /// Of the main container, whose standby waits in this way. What can't be added, and what the user
  /// says that does not go with it, is added to the findings.
  EngineNeeds(const yaml::Node& main, const EngineCommand& command, Standby standby,
              const PodPlan& plan);

  /// Gives engine `engine` what is missing, in its env and command, which are the main container's.
  void apply(int engine, yaml::Node& env, EngineCommand& command) const;

 private:
  enum class Family { kNone, kVllm, kSglang, kDynamoVllm };
  struct Option {
    std::string_view name;
    // "" of one that takes none.
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
  // Its weights are in the GMS, as far as is known.
  bool uses_gms_ = false;
  std::vector<Option> options_;
  std::vector<std::pair<std::string_view, std::string_view>> variables_;
  // Of --model-loader-extra-config, for every engine but the first; "" where it stays.
  std::string read_only_;
};

/// The entry CUDA_DEVICE_ORDER for all that use the GPUs of the main container's engine: the
/// user's, or one by which devices are counted as NVML does; a null where the engine needs none.
yaml::Node device_order(const yaml::Node& main, const EngineCommand& command);

}  // namespace fo::pod
