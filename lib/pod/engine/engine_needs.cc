#include "pod/engine/engine_needs.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "json/option.h"

namespace fo::pod {
namespace {

constexpr std::string_view kDeviceOrder = "CUDA_DEVICE_ORDER";
constexpr std::string_view kByPciBus = "PCI_BUS_ID";
constexpr std::string_view kDevMode = "VLLM_SERVER_DEV_MODE";
constexpr std::string_view kScratch = "DYN_GMS_SCRATCH_KV_ENABLED";
constexpr std::string_view kLoadFormat = "--load-format";
constexpr std::string_view kWorkerClass = "--worker-cls";
constexpr std::string_view kGmsWorker = "gpu_memory_service.integrations.vllm.worker.GMSWorker";
constexpr std::string_view kSleepMode = "--enable-sleep-mode";
constexpr std::string_view kMemorySaver = "--enable-memory-saver";
constexpr std::string_view kLoaderConfig = "--model-loader-extra-config";
constexpr const char* kReadOnly = "gms_read_only";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace

EngineNeeds::EngineNeeds(const yaml::Node& main, const EngineCommand& command, Standby standby,
                         const PodPlan& plan)
    : plan_(plan), family_(family_of(command.program())), is_asleep_(standby == Standby::kAsleep) {
  // An engine that is refused gets no settings.
  if (standby == Standby::kNone) family_ = Family::kNone;
  if (family_ != Family::kNone) {
    find_options(main, command);
    find_variables(main, command);
  }
  const yaml::Node* order = yaml::find_named(main.find("env"), "name", kDeviceOrder);
  const yaml::Node* value = order == nullptr ? nullptr : order->find("value");
  if (!plan.device_order.is_null() && value != nullptr && value->text() != kByPciBus &&
      plan.service.gpus > 1) {
    plan.warn(
        value->position(), plan.main_path("env[" + std::string(kDeviceOrder) + "]"),
        base::quoted(value->text()) + ": engines find the GMS's sockets by NVML's device order",
        "set it to PCI_BUS_ID, or leave it out");
  }
}

EngineNeeds::Family EngineNeeds::family_of(EngineProgram program) const {
  const std::string& kind = plan_.options.engine;
  switch (program) {
    case EngineProgram::kVllm:
      return Family::kVllm;
    case EngineProgram::kSglang:
      return Family::kSglang;
    case EngineProgram::kDynamoVllm:
      return Family::kDynamoVllm;
    case EngineProgram::kUnknown:
      if (kind == "vllm") return Family::kVllm;
      if (kind == "sglang") return Family::kSglang;
      // Without --supervise, "dynamo" stands for a worker in shadow mode; otherwise for any worker.
      return kind == "dynamo" && !plan_.options.supervise ? Family::kDynamoVllm : Family::kNone;
    case EngineProgram::kRefEngine:
    case EngineProgram::kDynamo:
      break;
  }
  return Family::kNone;
}

void EngineNeeds::find_options(const yaml::Node& main, const EngineCommand& command) {
  if (family_ == Family::kSglang) return find_sglang_options(main, command);
  std::vector<Option> wanted{{kLoadFormat, "gms"}};
  const OptionValue format = command.find(kLoadFormat);
  uses_gms_ = format.state != OptionValue::State::kKnown || format.text == "gms";
  if (!uses_gms_) {
    plan_.warn(format.position, plan_.main_path("args"),
               base::quoted(format.text) +
                   ": without --load-format gms each engine loads its own weights into the GPUs",
               "set it to gms, or leave it out");
  }
  if (family_ == Family::kVllm) {
    if (uses_gms_) wanted.push_back({kWorkerClass, kGmsWorker});
    wanted.push_back({kSleepMode, ""});
    const OptionValue worker = command.find(kWorkerClass);
    if (uses_gms_ && worker.state == OptionValue::State::kKnown && worker.text != kGmsWorker) {
      plan_.warn(worker.position, plan_.main_path("args"),
                 base::quoted(worker.text) + ": with --load-format gms vLLM needs " +
                     std::string(kGmsWorker) + ", or one derived from it",
                 "leave --worker-cls out, or make sure that it is one");
    }
  }
  // In shadow mode, or if nothing puts the engine to sleep, it does not need the sleep mode.
  if (family_ == Family::kDynamoVllm && is_asleep_) wanted.push_back({kSleepMode, ""});

  add_options(main, command, wanted);
  if (uses_gms_ && is_asleep_) find_read_only(main, command);
}

// The loader for a GMS is part of Dynamo's worker; another launcher may add it.
void EngineNeeds::find_sglang_options(const yaml::Node& main, const EngineCommand& command) {
  const OptionValue format = command.find(kLoadFormat);
  uses_gms_ = format.state == OptionValue::State::kKnown && format.text == "gms";
  if (uses_gms_) {
    plan_.warn(format.position, plan_.main_path("args"),
               "SGLang by itself does not know --load-format gms, only Dynamo's worker does",
               "run dynamo.sglang, or make sure that a launcher adds it");
  } else {
    plan_.warn(main.position(), plan_.main_path("args"),
               "SGLang by itself loads its weights from files at each start",
               "run dynamo.sglang --load-format gms to load them into the GMS");
  }
  add_options(main, command, {{kMemorySaver, ""}});
  if (uses_gms_ && is_asleep_) find_read_only(main, command);
}

void EngineNeeds::add_options(const yaml::Node& main, const EngineCommand& command,
                              const std::vector<Option>& wanted) {
  std::vector<std::string> missing;
  for (const Option& option : wanted) {
    if (command.has(option.name)) continue;
    if (can_be_added(command, option)) {
      options_.push_back(option);
    } else {
      missing.push_back(std::string(option.name) +
                        (option.value.empty() ? "" : " " + std::string(option.value)));
    }
  }
  warn_of_missing(main, command, missing);
}

bool EngineNeeds::can_be_added(const EngineCommand& command, const Option& option) const {
  // The arguments of an unknown program have an unknown meaning.
  if (command.program() == EngineProgram::kUnknown) return false;
  EngineCommand changed = command;
  return !(option.value.empty() ? changed.set_flag(option.name)
                                : changed.set(option.name, std::string(option.value)));
}

void EngineNeeds::warn_of_missing(const yaml::Node& main, const EngineCommand& command,
                                  const std::vector<std::string>& missing) {
  if (missing.empty()) return;
  std::string reason = "the program is unknown";
  if (command.program() != EngineProgram::kUnknown) {
    EngineCommand changed = command;
    reason = changed.set_flag("--x").value_or("");
  }
  plan_.warn(main.position(), plan_.main_path("args"),
             "the engine needs " + joined(missing) + ", which cannot be added: " + reason,
             "make sure that it has them");
}

// Without gms_read_only, both engines load the weights at once: each may get the writer's lock of
// one device and wait for that of another. A cold engine does not get it, because it starts alone
// and may have to load the weights.
void EngineNeeds::find_read_only(const yaml::Node& main, const EngineCommand& command) {
  const OptionValue value = command.find(kLoaderConfig);
  const auto warn = [&](const std::string& reason) {
    plan_.warn(value.position.line > 0 ? value.position : main.position(), plan_.main_path("args"),
               "engine 1 needs " + std::string(kLoaderConfig) + " '{\"gms_read_only\": true}', " +
                   "which cannot be added: " + reason,
               "make sure that engine 1 has it, and engine 0 does not");
  };
  if (value.state == OptionValue::State::kUnknown) return warn(value.reason);
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (value.state == OptionValue::State::kKnown) {
    const std::optional<nlohmann::ordered_json> given = json::read_json_object(value.text);
    if (!given) return warn(base::quoted(value.text) + " is not a JSON object");
    config = *given;
  }
  if (command.program() == EngineProgram::kUnknown) return warn("the program is unknown");
  config[kReadOnly] = true;
  EngineCommand changed = command;
  if (const auto reason = changed.set(kLoaderConfig, config.dump())) return warn(*reason);
  read_only_ = config.dump();
}

void EngineNeeds::find_variables(const yaml::Node& main, const EngineCommand& command) {
  if (!is_asleep_) return;
  if (family_ == Family::kVllm) {
    check_variable(main, command, kDevMode, "so vLLM has no endpoint /sleep");
  }
  if (uses_gms_ && family_ != Family::kSglang) {
    check_variable(main, command, kScratch,
                   "with Dynamo's releases of mid-2026, whose variable this is, the standby waits "
                   "for the lock of kv_cache without limit; later ones have KV pools of the GMS in "
                   "place of it");
  }
}

// Adds the variable if it is not set, and warns if it is empty or 0.
void EngineNeeds::check_variable(const yaml::Node& main, const EngineCommand& command,
                                 std::string_view name, std::string_view without) {
  // The value that the command sets counts.
  if (command.sets_variable(name)) return;
  const yaml::Node* entry = yaml::find_named(main.find("env"), "name", name);
  if (entry == nullptr) {
    variables_.emplace_back(name, "1");
    return;
  }
  const std::string& value = entry->text_at({"value"});
  if (entry->find("valueFrom") != nullptr || (!value.empty() && value != "0")) return;
  plan_.warn(entry->position(), plan_.main_path("env[" + std::string(name) + "]"),
             base::quoted(value) + ": " + std::string(without), "set it to 1");
}

void EngineNeeds::apply(int engine, yaml::Node& env, EngineCommand& command) const {
  for (const Option& option : options_) {
    if (option.value.empty()) {
      command.set_flag(option.name);
    } else {
      command.set(option.name, std::string(option.value));
    }
  }
  if (engine > 0 && !read_only_.empty()) command.set(kLoaderConfig, read_only_);
  for (const auto& [name, value] : variables_) env.push_back(env_entry(name, std::string(value)));
}

yaml::Node device_order(const yaml::Node& main, const EngineCommand& command) {
  if (command.program() == EngineProgram::kRefEngine) return {};
  const OptionValue set = command.variable(kDeviceOrder);
  if (set.state == OptionValue::State::kKnown) return env_entry(kDeviceOrder, set.text);
  if (const yaml::Node* own = yaml::find_named(main.find("env"), "name", kDeviceOrder)) return *own;
  return env_entry(kDeviceOrder, std::string(kByPciBus));
}

}  // namespace fo::pod
