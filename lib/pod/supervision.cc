#include "pod/supervision.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fo::pod {
namespace {

constexpr int kVllmPort = 8000;
constexpr int kSglangPort = 30000;

// "" where the command does not say.
std::string kind_of(EngineProgram program) {
  switch (program) {
    case EngineProgram::kVllm:
    case EngineProgram::kRefEngine:
      return "vllm";
    case EngineProgram::kSglang:
      return "sglang";
    case EngineProgram::kDynamoVllm:
    case EngineProgram::kDynamo:
      return "dynamo";
    case EngineProgram::kUnknown:
      break;
  }
  return "";
}

// 0: unknown, which is refused.
int find_port(const EngineCommand& command, int standard, const PodPlan& plan) {
  const OptionValue value = command.find("--port");
  if (value.state == OptionValue::State::kAbsent) return standard;
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

// The address to publish at, which is the engine's own so far; "" where that can't be given to
// fo-shadow, which is refused.
std::string find_host(const EngineCommand& command, const PodPlan& plan) {
  const OptionValue host = command.find("--host");
  if (host.state == OptionValue::State::kAbsent || host.text == "0.0.0.0") return "0.0.0.0";
  if (host.text == "::") return "[::]";
  if (host.text == "127.0.0.1" || host.text == "localhost") return "127.0.0.1";
  plan.refuse(host.position, plan.main_path("args"),
              "--host: the engine has to listen at 127.0.0.1" +
                  (host.reason.empty() ? ", not " + base::quoted(host.text) : ": " + host.reason),
              "leave --host out: fo-shadow is who listens for the pod's clients");
  return "";
}

std::optional<std::string> set_api(EngineCommand& command, const PublishedApi& api, int engine) {
  if (auto reason = command.set("--host", "127.0.0.1")) return reason;
  return command.set("--port", std::to_string(api.engine_port(engine)));
}

}  // namespace

Supervision::Supervision(const Node& main, const EngineCommand& command, const PodPlan& plan)
    : plan_(plan) {
  if (!plan.options.supervise) {
    check_unsupervised(main, command);
    return;
  }
  find_kind(main, command);
  find_api(command);
  warn_of_engine(main, command);
}

void Supervision::find_kind(const Node& main, const EngineCommand& command) {
  if (!command.has_command()) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "none: the image's own entrypoint can't be run under fo-shadow",
                 "say the command, or leave out --supervise");
    return;
  }
  if (plan_.options.gms == GmsProgram::kUpstream && plan_.is_dynamo()) {
    plan_.refuse("fo-shadow can't find the sockets of Dynamo's GMS, which are named by the GPU",
                 "say --gms ours, or --layout plan");
    return;
  }
  kind_ = plan_.options.engine.empty() ? kind_of(command.program()) : plan_.options.engine;
  if (kind_.empty()) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "which engine that is can't be told from it", "say --engine");
  }
}

void Supervision::find_api(const EngineCommand& command) {
  if (kind_ != "vllm" && kind_ != "sglang") return;
  PublishedApi api;
  api.port = find_port(command, kind_ == "sglang" ? kSglangPort : kVllmPort, plan_);
  api.host = find_host(command, plan_);
  if (api.port == 0 || api.host.empty()) return;
  // Whether it can be set is the same for both engines, and said once.
  EngineCommand changed = command;
  if (const auto reason = set_api(changed, api, 0)) {
    plan_.refuse(plan_.service.position, plan_.main_path("command"),
                 "each engine needs a --port of its own: " + *reason,
                 "make the command a list, or a script of one command");
    return;
  }
  api_ = std::move(api);
}

void Supervision::warn_of_engine(const Node& main, const EngineCommand& command) const {
  const auto warn = [&](const char* field, const std::string& reason, const char* remedy) {
    plan_.warn(main.position(), plan_.main_path(field), reason, remedy);
  };
  if (command.program() == EngineProgram::kVllm) {
    if (!command.has("--enable-sleep-mode")) {
      warn("args", "without --enable-sleep-mode vLLM can't be put to sleep", "add it");
    }
    if (find_named(main.find("env"), "name", "VLLM_SERVER_DEV_MODE") == nullptr &&
        !command.sets_variable("VLLM_SERVER_DEV_MODE")) {
      warn("env", "without VLLM_SERVER_DEV_MODE vLLM can't be told to sleep", "set it to 1");
    }
  }
  if (command.program() == EngineProgram::kSglang && !command.has("--enable-memory-saver")) {
    warn("args", "without --enable-memory-saver SGLang can't be put to sleep", "add it");
  }
}

void Supervision::check_unsupervised(const Node& main, const EngineCommand& command) const {
  const std::string kind = kind_of(command.program());
  if (kind == "vllm" || kind == "sglang") {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "both engines would listen on the same port, and none waits for the lock",
                 "say --supervise: fo-shadow sees to both");
  }
  if (kind == "dynamo" && plan_.options.lock == LockKind::kLockd) {
    plan_.warn(main.position(), plan_.main_path("command"),
               "Dynamo's workers take a file for their lock, not a lock server",
               "say --supervise, or --lock flock");
  }
}

void Supervision::apply(int engine, EngineCommand& command) const {
  if (api_) set_api(command, *api_, engine);
}

void Supervision::wrap(int engine, Node& container) const {
  if (kind_.empty()) return;
  // The devices by number: one whose server never started is to be missed.
  std::vector<std::string> argv{plan_.program("fo-shadow"), "--engine", kind_, "--devices",
                                plan_.device_list()};
  if (plan_.options.gms == GmsProgram::kUpstream) {
    for (std::int64_t device = 0; device < plan_.service.gpus; ++device) {
      argv.emplace_back("--gms");
      argv.push_back(plan_.upstream_socket(device));
    }
  }
  if (api_) {
    const std::string own = std::to_string(api_->engine_port(engine));
    argv.insert(argv.end(), {"--engine-url", "http://127.0.0.1:" + own, "--publish",
                             api_->host + ":" + std::to_string(api_->port)});
  }
  argv.emplace_back("--");
  Node& command = container["command"];
  Node wrapped = Node::strings(argv).at(command.position());
  for (Node& word : command.items()) wrapped.push_back(std::move(word));
  command = std::move(wrapped);
}

}  // namespace fo::pod
