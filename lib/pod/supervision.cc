#include "pod/supervision.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fo::pod {
namespace {

constexpr int kVllmPort = 8000;
constexpr int kSglangPort = 30000;
constexpr std::string_view kDevMode = "VLLM_SERVER_DEV_MODE";

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
  } else {
    find_kind(main, command);
    find_api(command);
    check_clients(main, command);
    warn_of_sleep(main, command);
  }
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
                 "say --gms ours");
    return;
  }
  kind_ = plan_.options.engine.empty() ? kind_of(command.program()) : plan_.options.engine;
  if (kind_.empty()) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "which engine that is can't be told from it" +
                     (command.refusal().empty() ? "" : ": " + command.refusal()),
                 "say --engine");
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
  if (command.program() == EngineProgram::kUnknown) {
    plan_.warn(plan_.service.position, plan_.main_path("command"),
               "--host and --port are added to it: it has to pass them on to the engine",
               "run the engine itself, or see that it does");
  }
  api_ = std::move(api);
}

// What fo-shadow asks the engine goes to its port by plain HTTP, without a key.
void Supervision::check_clients(const Node& main, const EngineCommand& command) const {
  if (kind_ != "vllm" && kind_ != "sglang") return;
  for (const char* const option : {"--api-key", "--ssl-keyfile", "--ssl-certfile", "--uds"}) {
    const OptionValue value = command.find(option);
    if (value.state == OptionValue::State::kAbsent) continue;
    plan_.refuse(value.position, plan_.main_path("args"),
                 std::string(option) + ": fo-shadow asks the engine without it, at a port",
                 "leave it out: the engine listens at 127.0.0.1 only; guard what is published "
                 "outside of the pod");
  }
  if (kind_ != "vllm") return;
  const Node* key = find_named(main.find("env"), "name", "VLLM_API_KEY");
  const bool is_empty =
      key == nullptr || (key->find("valueFrom") == nullptr && key->text_at({"value"}).empty());
  if (is_empty && !command.sets_variable("VLLM_API_KEY")) return;
  plan_.refuse(key == nullptr ? main.position() : key->position(),
               plan_.main_path("env[VLLM_API_KEY]"), "fo-shadow asks the engine without it",
               "leave it out, and guard what is published outside of the pod");
}

void Supervision::warn_of_sleep(const Node& main, const EngineCommand& command) const {
  const auto warn = [&](const char* field, const std::string& reason, const char* remedy) {
    plan_.warn(main.position(), plan_.main_path(field), reason, remedy);
  };
  if (kind_ == "vllm" && command.program() != EngineProgram::kRefEngine) {
    if (!command.has("--enable-sleep-mode")) {
      warn("args", "without --enable-sleep-mode vLLM can't be put to sleep", "add it");
    }
    const Node* mode = find_named(main.find("env"), "name", kDevMode);
    const std::string value = mode == nullptr ? "" : mode->text_at({"value"});
    if (command.sets_variable(kDevMode)) {
      // What to is the script's affair.
    } else if (mode == nullptr) {
      warn("env", "without VLLM_SERVER_DEV_MODE vLLM can't be told to sleep", "set it to 1");
    } else if (mode->find("valueFrom") == nullptr && (value.empty() || value == "0")) {
      plan_.warn(mode->position(), plan_.main_path("env[VLLM_SERVER_DEV_MODE]"),
                 base::quoted(value) + ": so vLLM can't be told to sleep", "set it to 1");
    }
  }
  if (kind_ == "sglang" && !command.has("--enable-memory-saver")) {
    warn("args", "without --enable-memory-saver SGLang can't be put to sleep", "add it");
  }
}

void Supervision::warn_of_engine(const Node& main, const EngineCommand& command) const {
  const EngineProgram program = command.program();
  const bool is_dynamo = program == EngineProgram::kDynamoVllm || program == EngineProgram::kDynamo;
  if (program == EngineProgram::kVllm || program == EngineProgram::kSglang ||
      program == EngineProgram::kDynamoVllm) {
    const OptionValue format = command.find("--load-format");
    if (format.state == OptionValue::State::kAbsent ||
        (format.state == OptionValue::State::kKnown && format.text != "gms")) {
      plan_.warn(
          format.position.line > 0 ? format.position : main.position(), plan_.main_path("args"),
          "without --load-format gms each engine has weights of its own in the GPUs", "add it");
    }
  }
  if (is_dynamo && find_named(main.find("env"), "name", "DYN_NAMESPACE") == nullptr &&
      !command.sets_variable("DYN_NAMESPACE")) {
    plan_.warn(main.position(), plan_.main_path("env"),
               "Dynamo's operator would set DYN_NAMESPACE, DYN_COMPONENT, ETCD_ENDPOINTS and "
               "NATS_SERVER, which say where to register",
               "set them in envs");
  }
  if (const std::string variable = command.open_variable(); !variable.empty()) {
    plan_.warn(main.position(), plan_.main_path("command"),
               base::quoted(variable) + ": a port in it would be that of both engines",
               "write its options out, or put double quotes around it");
  }
}

void Supervision::check_unsupervised(const Node& main, const EngineCommand& command) const {
  const std::string kind = kind_of(command.program());
  const auto warn = [&](const char* reason, const char* remedy) {
    plan_.warn(main.position(), plan_.main_path("command"), reason, remedy);
  };
  if (kind == "vllm" || kind == "sglang") {
    warn("both engines would listen on the same port, and none waits for the lock",
         "say --supervise: fo-shadow sees to both");
  } else if (kind.empty()) {
    warn("whether this engine waits for the lock can't be told",
         "say --supervise where it does not");
  } else if (command.program() == EngineProgram::kDynamo) {
    warn("of Dynamo's workers, only that of vLLM waits for the lock", "say --supervise");
  } else if (plan_.options.lock == LockKind::kLockd) {
    warn("Dynamo's workers take a file for their lock, not a lock server",
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
