#include "pod/engine/engine_ports.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "json/option.h"

namespace fo::pod {
namespace {

using Json = nlohmann::ordered_json;

// The engines that listen on a port by default, where two of them would collide.
enum class Listens {
  kOnlyIfSet,
  kVllm,       // any vLLM
  kDynamo,     // any Dynamo worker
  kHttpPlane,  // a Dynamo worker with requests over HTTP
  kKvbm,       // a Dynamo worker with its KV block manager
  kMooncake,   // vLLM with that connector
};

struct Variable {
  std::string_view name;
  int standard = 0;
  Listens listens = Listens::kOnlyIfSet;
  int stride = 1;
};

constexpr std::array<Variable, 15> kVariables = {{
    // The side channel of NIXL between prefill and decode workers.
    {"VLLM_NIXL_SIDE_CHANNEL_PORT", 5600, Listens::kVllm},
    // Dynamo's vLLM worker publishes events of its KV cache here.
    {"DYN_VLLM_KV_EVENT_PORT", 20080, Listens::kDynamo},
    // It publishes metrics of each forward pass here.
    {"DYN_FORWARDPASS_METRIC_PORT", 20380, Listens::kDynamo},
    // The rendezvous of vLLM's workers and data-parallel ranks.
    {"VLLM_PORT"},
    {"VLLM_DP_MASTER_PORT"},
    // The transfer engine of Mooncake in vLLM.
    {"VLLM_MOONCAKE_BOOTSTRAP_PORT", 8998, Listens::kMooncake},
    // PyTorch's rendezvous, like --master-port.
    {"MASTER_PORT", 0, Listens::kOnlyIfSet, 100},
    // The servers of Dynamo's request planes.
    {"DYN_TCP_RPC_PORT"},
    {"DYN_HTTP_RPC_PORT", 8888, Listens::kHttpPlane},
    // Dynamo's KV block manager: metrics, and two adjacent sockets of its leader.
    {"DYN_KVBM_METRICS_PORT", 6880, Listens::kKvbm},
    {"DYN_KVBM_LEADER_ZMQ_PUB_PORT", 56001, Listens::kKvbm, 10},
    {"DYN_KVBM_LEADER_ZMQ_ACK_PORT", 56002, Listens::kKvbm, 10},
    // Telemetry, at the port that Dynamo's operator sets.
    {"NIXL_TELEMETRY_PROMETHEUS_PORT", 19090, Listens::kDynamo},
    {"OTEL_EXPORTER_PROMETHEUS_PORT"},
    // LMCache's API.
    {"LMCACHE_INTERNAL_API_SERVER_PORT_START"},
}};

bool listens_anyway(Listens listens, const EngineCommand& command, const GenerateOptions& options) {
  const EngineProgram program = command.program();
  const bool is_dynamo = is_dynamo_worker(program) ||
                         (program == EngineProgram::kUnknown && options.engine == "dynamo");
  const bool is_vllm = program == EngineProgram::kVllm || program == EngineProgram::kDynamoVllm ||
                       (program == EngineProgram::kUnknown &&
                        (options.engine == "dynamo" || options.engine == "vllm"));
  switch (listens) {
    case Listens::kVllm:
      return is_vllm;
    case Listens::kDynamo:
      return is_dynamo;
    case Listens::kHttpPlane: {
      const std::string* plane = command.environment().value("DYN_REQUEST_PLANE");
      return is_dynamo && plane != nullptr && *plane == "http";
    }
    case Listens::kKvbm:
      return is_dynamo && command.environment().has_any("DYN_KVBM_");
    case Listens::kMooncake:
      return is_vllm &&
             command.find("--kv-transfer-config").text.find("Mooncake") != std::string::npos;
    case Listens::kOnlyIfSet:
      break;
  }
  return false;
}

struct Argument {
  std::string_view name;
  int stride = 1;
  // HOST:PORT instead of a number.
  bool is_endpoint = false;
};

constexpr std::array<Argument, 6> kArguments = {{
    // PyTorch's rendezvous uses adjacent ports, too.
    {"--master-port", 100},
    // vLLM's coordinator of data-parallel ranks.
    {"--data-parallel-rpc-port"},
    // SGLang: the rendezvous of NCCL, and that of prefill and decode workers.
    {"--nccl-port"},
    {"--disaggregation-bootstrap-port"},
    {"--dist-init-addr", 100, true},
    // vLLM's spelling of a member of --kv-events-config.
    {"--kv-events-config.endpoint", 1, true},
}};

constexpr int kTorchMasterPort = 29500;
constexpr int kSglangBootstrapPort = 8998;
constexpr std::string_view kKvEvents = "--kv-events-config";
constexpr std::string_view kKvEventsVariable = "DYN_VLLM_KV_EVENT_PORT";
// vLLM's default endpoint for events.
constexpr std::string_view kKvEventsEndpoint = "tcp://*:5557";

// The port at the end of "tcp://*:5557"; 0 if there is none.
int port_at_end(std::string_view endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  return colon == std::string_view::npos ? 0 : port_of(endpoint.substr(colon + 1));
}

std::string with_port_at_end(std::string_view endpoint, int port) {
  return std::string(endpoint.substr(0, endpoint.rfind(':') + 1)) + std::to_string(port);
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool wants_kv_events(const Json& config) {
  const auto enabled = config.find("enable_kv_cache_events");
  const auto publisher = config.find("publisher");
  return enabled != config.end() && *enabled == true &&
         (publisher == config.end() || *publisher == "zmq");
}

}  // namespace

EnginePorts::EnginePorts(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan)
    : plan_(plan) {
  read_variables(main, command);
  read_options(command);
  read_json(command);
}

void EnginePorts::add(Port port) {
  if (port.base + (kEngines - 1) * port.stride > 65535) {
    plan_.refuse(port.position, port.path,
                 std::to_string(port.base) + ": engine 1 would need a port over 65535",
                 "choose a lower one");
    return;
  }
  ports_.push_back(std::move(port));
}

void EnginePorts::read_variables(const yaml::Node& main, const EngineCommand& command) {
  for (const Variable& variable : kVariables) {
    // Dynamo's layout sets these variables in every pod.
    const bool is_of_layout = plan_.is_dynamo() && (variable.listens == Listens::kVllm ||
                                                    variable.listens == Listens::kDynamo);
    const bool listens = is_of_layout || listens_anyway(variable.listens, command, plan_.options);
    read_variable(main, command, variable.name, listens ? variable.standard : 0, variable.stride);
  }
}

void EnginePorts::read_variable(const yaml::Node& main, const EngineCommand& command,
                                std::string_view name, int standard, int stride) {
  Port port;
  port.name = name;
  port.is_variable = true;
  port.base = standard;
  port.stride = stride;
  port.path = plan_.service.path;
  port.position = plan_.service.position;
  // Dynamo's layout sets this variable, whatever the user's value is.
  const bool is_fixed = plan_.is_dynamo() && name == "DYN_FORWARDPASS_METRIC_PORT";
  if (!command.environment().has(name) || is_fixed) {
    if (standard > 0) add(std::move(port));
    return;
  }
  const yaml::Node* entry = yaml::find_named(main.find("env"), "name", name);
  port.path = plan_.main_path(entry == nullptr ? "envFrom" : "env[" + port.name + "]");
  port.position = (entry == nullptr ? main : *entry).position();
  const std::string* const value = command.environment().value(name);
  if (value == nullptr) {
    plan_.refuse(port.position, port.path, "a port that is only known inside the pod",
                 "use a number: engine 1 needs another port");
    return;
  }
  // An empty value disables the listener.
  if (value->empty()) return;
  port.base = port_of(*value);
  if (port.base == 0) {
    plan_.refuse(port.position, port.path,
                 base::quoted(*value) + ": not a port number, and engine 1 needs another port",
                 "use a number from 1 to 65535");
    return;
  }
  port.text = *value;
  add(std::move(port));
}

// The port on which both engines listen without the option; 0: none.
int EnginePorts::port_without(std::string_view option, const EngineCommand& command) const {
  const EngineProgram program = command.program();
  if (option == "--master-port") {
    // vLLM itself has it in later releases only, and uses it between nodes.
    const bool knows_it = program == EngineProgram::kDynamoVllm ||
                          (program == EngineProgram::kVllm && plan_.is_dynamo());
    return knows_it && !command.environment().has("MASTER_PORT") ? kTorchMasterPort : 0;
  }
  const bool is_sglang = program == EngineProgram::kSglang || command.runs("dynamo.sglang");
  if (option == "--disaggregation-bootstrap-port" && is_sglang &&
      command.find("--disaggregation-mode").text == "prefill") {
    return kSglangBootstrapPort;
  }
  return 0;
}

void EnginePorts::read_options(const EngineCommand& command) {
  for (const Argument& argument : kArguments) {
    Port port;
    port.name = argument.name;
    port.stride = argument.stride;
    port.form = argument.is_endpoint ? Form::kEndpoint : Form::kNumber;
    const OptionValue value = command.find(argument.name);
    port.path = plan_.main_path("args");
    port.position = value.position;
    if (value.state == OptionValue::State::kAbsent) {
      port.base = port_without(port.name, command);
      if (port.base == 0) continue;
      port.path = plan_.service.path;
      port.position = plan_.service.position;
    } else {
      port.base = argument.is_endpoint ? port_at_end(value.text) : port_of(value.text);
      port.text = value.text;
      if (value.state == OptionValue::State::kUnknown) {
        warn_of_unseen(port, value.reason);
        continue;
      }
      // A value without a port needs no change.
      if (port.base == 0) continue;
    }
    // The attempt fails for both engines or for none, so it is made and reported once.
    EngineCommand changed = command;
    if (const auto reason = changed.set(port.name, "1")) {
      warn_of_unseen(port, *reason);
      continue;
    }
    add(std::move(port));
  }
}

// Whether the value contains a port is known only at run time.
void EnginePorts::warn_of_unseen(const Port& port, const std::string& reason) const {
  plan_.warn(port.position, port.path,
             port.name +
                 " can't be changed for engine 1, which needs other ports than engine 0: " + reason,
             "make sure that it has no port, or use a list of arguments");
}

void EnginePorts::read_json(const EngineCommand& command) {
  for (const std::string_view name : {kKvEvents, std::string_view("--kv-transfer-config")}) {
    const OptionValue value = command.find(name);
    if (value.state == OptionValue::State::kAbsent) continue;
    Port port;
    port.name = name;
    port.form = Form::kJson;
    port.path = plan_.main_path("args");
    port.position = value.position;
    port.text = value.text;
    if (value.state == OptionValue::State::kUnknown) {
      warn_of_unseen(port, value.reason);
      continue;
    }
    if (!value.text.empty()) read_json_members(value, std::move(port));
  }
}

void EnginePorts::read_json_members(const OptionValue& value, Port port) {
  if (json::is_too_much_json(value.text)) {
    plan_.refuse(value.position, port.path, port.name + ": too long, or nested too deeply",
                 "shorten it: engine 1 needs other ports in it");
    return;
  }
  const std::optional<Json> config = json::read_json_object(value.text);
  if (!config) {
    plan_.refuse(value.position, port.path, port.name + ": not a JSON object",
                 "correct it: engine 1 needs other ports in it");
    return;
  }
  for (const std::string_view member : {"endpoint", "replay_endpoint", "kv_port"}) {
    const auto found = config->find(member);
    std::string text;
    if (found != config->end()) {
      text = text_of(*found);
    } else if (member == "endpoint" && port.name == kKvEvents && wants_kv_events(*config)) {
      text = kKvEventsEndpoint;
    }
    port.member = member;
    port.base = member == "kv_port" ? port_of(text) : port_at_end(text);
    // ipc:// and inproc:// have no port.
    if (port.base > 0) add(port);
  }
}

void EnginePorts::apply(int engine, yaml::Node& env, EngineCommand& command) const {
  for (const Port& port : ports_) {
    const int number = port.base + engine * port.stride;
    if (port.is_variable) {
      const yaml::Node ours = env_entry(port.name, std::to_string(number));
      bool is_set = false;
      for (yaml::Node& entry : env.items()) {
        if (entry.text_at({"name"}) != port.name) continue;
        is_set = true;
        // This also replaces a value from a ConfigMap.
        if (engine > 0) entry = ours;
      }
      if (!is_set) env.push_back(ours);
      continue;
    }
    if (engine == 0) continue;
    std::string value = std::to_string(number);
    if (port.form == Form::kEndpoint) value = with_port_at_end(port.text, number);
    if (port.form == Form::kJson) {
      // The new value derives from the current one, because another member may be changed already.
      Json config = Json::parse(command.find(port.name).text);
      Json& member = config[port.member];
      if (port.member == "kv_port") {
        member = member.is_string() ? Json(value) : Json(number);
      } else {
        member = with_port_at_end(
            member.is_string() ? member.get<std::string>() : std::string(kKvEventsEndpoint),
            number);
      }
      value = config.dump();
    }
    command.set(port.name, value);
  }
}

std::vector<PortUse> EnginePorts::uses() const {
  std::vector<PortUse> uses;
  const bool has_kv_events = std::any_of(ports_.begin(), ports_.end(), [](const Port& port) {
    return port.name.starts_with(kKvEvents);
  });
  for (const Port& port : ports_) {
    // Dynamo's worker uses the variable only without the option.
    if (has_kv_events && port.name == kKvEventsVariable) continue;
    const std::string what = port.name + (port.member.empty() ? "" : " (" + port.member + ")");
    for (int engine = 0; engine < kEngines; ++engine) {
      uses.push_back({port.base + engine * port.stride, engine_name(engine), what,
                      port.text.empty(), port.path, port.position});
    }
  }
  return uses;
}

std::vector<std::string> port_variables() {
  std::vector<std::string> names;
  for (const Variable& variable : kVariables) names.emplace_back(variable.name);
  return names;
}

}  // namespace fo::pod
