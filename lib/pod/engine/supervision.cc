#include "pod/engine/supervision.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/dynamo_flag.h"

namespace fo::pod {
namespace {

constexpr int kVllmPort = 8000;
constexpr int kSglangPort = 30000;

// The value of fo-shadow's --engine for a program; "" if the program is unknown.
std::string kind_of(EngineProgram program) {
  switch (program) {
    case EngineProgram::kVllm:
    case EngineProgram::kRefEngine:
      return "vllm";
    // A standby of SGLang would wait for the kv_cache lock before it can be put to sleep, and a
    // Dynamo worker registers before that.
    case EngineProgram::kSglang:
    case EngineProgram::kDynamoVllm:
    case EngineProgram::kDynamo:
      return "cold";
    case EngineProgram::kUnknown:
      break;
  }
  return "";
}

// Whether Dynamo reads the text as true, or may do so once a template in it is replaced.
bool may_be_on(std::string_view text) {
  return text::is_on_for_dynamo(text) || text.find_first_of("${") != text.npos;
}

std::string name_of(const EngineWaiter& waiter) {
  return waiter.kind == EngineWaiter::Kind::kLock ? "gms-lock" : "fo-shadow";
}

int standard_port(const std::string& kind, EngineProgram program) {
  return kind == "sglang" || program == EngineProgram::kSglang ? kSglangPort : kVllmPort;
}

// The port of the engine's API; 0 if it is unknown, which is refused.
int find_port(const EngineCommand& command, int standard, const PodPlan& plan) {
  const OptionValue value = command.find("--port");
  if (value.state == OptionValue::State::kAbsent) return standard;
  const int port = port_of(value.text);
  if (value.state == OptionValue::State::kUnknown || port == 0) {
    plan.refuse(
        value.position, plan.main_path("args"),
        "--port can't be changed for each engine: " +
            (value.reason.empty() ? base::quoted(value.text) + " is not a port" : value.reason),
        "use a plain number, in a list of arguments or a script of one command");
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

// The address to publish at: the one that the command gives the engine. "" if fo-shadow cannot use
// it, which is refused.
std::string find_host(const EngineCommand& command, const PodPlan& plan) {
  const OptionValue host = command.find("--host");
  if (host.state == OptionValue::State::kAbsent || host.text == "0.0.0.0") return "0.0.0.0";
  if (host.text == "::") return "[::]";
  if (host.text == "127.0.0.1" || host.text == "localhost") return "127.0.0.1";
  plan.refuse(host.position, plan.main_path("args"),
              "--host: the engine has to listen at 127.0.0.1" +
                  (host.reason.empty() ? ", not " + base::quoted(host.text) : ": " + host.reason),
              "leave --host out: fo-shadow listens for the pod's clients");
  return "";
}

std::optional<std::string> set_api(EngineCommand& command, const PublishedApi& api, int engine) {
  if (auto reason = command.set("--host", "127.0.0.1")) return reason;
  return command.set("--port", std::to_string(api.engine_port(engine)));
}

}  // namespace

Supervision::Supervision(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan)
    : plan_(plan) {
  if (!plan.options.supervise) {
    find_unsupervised(main, command);
  } else {
    find_kind(main, command);
    find_api(command);
    check_clients(main, command);
  }
  check_shadow_mode(main, command);
  warn_of_standby(main, command);
  warn_of_engine(main, command);
}

void Supervision::find_kind(const yaml::Node& main, const EngineCommand& command) {
  if (!command.has_command()) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "missing: the image's own entrypoint cannot run under fo-shadow",
                 "set the command, or leave out --supervise");
    return;
  }
  if (plan_.gms == GmsProgram::kUpstream) {
    plan_.refuse("fo-shadow can't find the sockets of Dynamo's GMS, which are named by the GPU",
                 "use --gms ours");
    return;
  }
  if (command.waiter().kind != EngineWaiter::Kind::kNone) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 name_of(command.waiter()) + " in it would wait for the lock that fo-shadow holds",
                 "leave it out, or leave out --supervise");
    return;
  }
  kind_ = plan_.options.engine.empty() ? kind_of(command.program()) : plan_.options.engine;
  if (kind_.empty()) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "it does not show which engine it starts" +
                     (command.refusal().empty() ? "" : ": " + command.refusal()),
                 "use --engine");
    return;
  }
  standby_ = kind_ == "cold" ? Standby::kCold : Standby::kAsleep;
  has_inner_system_port_ =
      kind_ == "dynamo" || (kind_ == "cold" && is_dynamo_worker(command.program()));
}

void Supervision::find_unsupervised(const yaml::Node& main, const EngineCommand& command) {
  const EngineWaiter& waiter = command.waiter();
  if (waiter.kind != EngineWaiter::Kind::kNone) {
    const bool is_cold = waiter.kind == EngineWaiter::Kind::kLock || waiter.engine == "cold";
    standby_ = is_cold ? Standby::kCold : Standby::kAsleep;
    return;
  }
  const auto refuse = [&](const char* reason, const char* remedy) {
    plan_.refuse(main.position(), plan_.main_path("command"), reason, remedy);
  };
  switch (command.program()) {
    case EngineProgram::kVllm:
    case EngineProgram::kSglang:
    case EngineProgram::kRefEngine:
      return refuse("this engine does not wait for the lock: both would serve, on one port",
                    "use --supervise: fo-shadow takes the lock for both");
    case EngineProgram::kDynamo:
      return refuse("only Dynamo's vLLM worker waits for the lock: both would serve",
                    "use --supervise");
    case EngineProgram::kUnknown:
      if (plan_.options.engine == "dynamo") break;
      return refuse("it is unknown whether this engine waits for the lock: both might serve",
                    "use --supervise, or --engine dynamo for a worker dynamo.vllm, which takes the "
                    "lock in its shadow mode");
    case EngineProgram::kDynamoVllm:
      break;
  }
  if (plan_.options.lock == LockKind::kLockd) {
    return refuse("Dynamo's workers take a file for their lock, not a lock server",
                  "use --supervise, or --lock flock");
  }
  standby_ = Standby::kShadowMode;
}

// If two programs wait for one lock, they wait for each other; if none waits, both engines serve.
void Supervision::check_shadow_mode(const yaml::Node& main, const EngineCommand& command) const {
  if (plan_.options.supervise) {
    refuse_shadow_mode(main, command, "fo-shadow");
  } else if (command.waiter().kind != EngineWaiter::Kind::kNone) {
    refuse_shadow_mode(main, command, name_of(command.waiter()));
  } else if (standby_ == Standby::kShadowMode) {
    require_shadow_mode(main, command);
  }
}

// The position and path of a variable that env, envFrom or the command sets.
std::pair<yaml::Position, std::string> Supervision::place_of_variable(const yaml::Node& main,
                                                                      const EngineCommand& command,
                                                                      std::string_view name) const {
  const yaml::Node* entry = yaml::find_named(main.find("env"), "name", name);
  const bool is_from_elsewhere = entry == nullptr && command.environment().has(name);
  return {(entry == nullptr ? main : *entry).position(),
          plan_.main_path((is_from_elsewhere ? "envFrom[" : "env[") + std::string(name) + "]")};
}

void Supervision::refuse_shadow_mode(const yaml::Node& main, const EngineCommand& command,
                                     const std::string& holder) const {
  const std::string reason = "the engine would wait for the lock that " + holder + " holds for it";
  const std::string name(kShadowMode);
  const std::string* value = command.environment().value(kShadowMode);
  const bool is_off =
      !command.environment().has(kShadowMode) || (value != nullptr && !may_be_on(*value));
  const OptionValue set = command.variable(kShadowMode);
  if (set.state == OptionValue::State::kAbsent && !is_off) {
    const auto [position, path] = place_of_variable(main, command, kShadowMode);
    plan_.refuse(position, path, reason, "leave it out");
  }
  if (set.state == OptionValue::State::kUnknown ||
      (set.state == OptionValue::State::kKnown && may_be_on(set.text))) {
    plan_.refuse(main.position(), plan_.main_path("command"), "it sets " + name + ": " + reason,
                 "leave that out");
  }
  const OptionValue option = command.find("--gms-shadow-mode");
  if (option.state != OptionValue::State::kAbsent) {
    plan_.refuse(option.position, plan_.main_path("args"), "--gms-shadow-mode: " + reason,
                 "leave it out");
  }
}

void Supervision::require_shadow_mode(const yaml::Node& main, const EngineCommand& command) const {
  const std::string reason = "without its shadow mode the engine does not wait for the lock";
  const std::string name(kShadowMode);
  // The generator replaces any other value in env.
  const std::string* value = command.environment().value(kShadowMode);
  if (value != nullptr && !may_be_on(*value)) {
    const auto [position, path] = place_of_variable(main, command, kShadowMode);
    plan_.refuse(position, path, base::quoted(*value) + ": " + reason, "leave it out");
  }
  const OptionValue set = command.variable(kShadowMode);
  if (set.state == OptionValue::State::kUnknown) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "it sets " + name + " to an unknown value: " + set.reason, "leave that out");
  } else if (set.state == OptionValue::State::kKnown && !may_be_on(set.text)) {
    plan_.refuse(main.position(), plan_.main_path("command"),
                 "it sets " + name + " to " + base::quoted(set.text) + ": " + reason,
                 "leave that out");
  }
  const OptionValue option = command.find("--no-gms-shadow-mode");
  if (option.state != OptionValue::State::kAbsent) {
    plan_.refuse(option.position, plan_.main_path("args"), "--no-gms-shadow-mode: " + reason,
                 "leave it out");
  }
}

void Supervision::find_api(const EngineCommand& command) {
  if (kind_.empty() || has_inner_system_port_) return;
  PublishedApi api;
  api.port = find_port(command, standard_port(kind_, command.program()), plan_);
  api.host = find_host(command, plan_);
  if (api.port == 0 || api.host.empty()) return;
  // The attempt fails for both engines or for none, so it is made and reported once.
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
               "run the engine itself, or make sure that it does");
  }
  api_ = std::move(api);
}

// fo-shadow queries the engine's port over plain HTTP without a key.
void Supervision::check_clients(const yaml::Node& main, const EngineCommand& command) const {
  if (kind_.empty() || has_inner_system_port_) return;
  for (const char* const option : {"--api-key", "--ssl-keyfile", "--ssl-certfile", "--uds"}) {
    const OptionValue value = command.find(option);
    if (value.state == OptionValue::State::kAbsent) continue;
    plan_.refuse(
        value.position, plan_.main_path("args"),
        std::string(option) + ": fo-shadow queries the engine at a port, without this option",
        "leave it out: the engine listens at 127.0.0.1 only; restrict access to the published port "
        "outside of the pod");
  }
  if (kind_ == "sglang" || command.program() == EngineProgram::kSglang) return;
  const std::string* key = command.environment().value("VLLM_API_KEY");
  const bool is_empty =
      !command.environment().has("VLLM_API_KEY") || (key != nullptr && key->empty());
  if (is_empty && !command.sets_variable("VLLM_API_KEY")) return;
  const auto [position, path] = place_of_variable(main, command, "VLLM_API_KEY");
  plan_.refuse(position, path, "fo-shadow queries the engine without this key",
               "leave it out, and restrict access to the published port outside of the pod");
}

void Supervision::warn_of_standby(const yaml::Node& main, const EngineCommand& command) const {
  const EngineProgram program = command.program();
  const auto warn = [&](const char* reason, const char* remedy) {
    plan_.warn(main.position(), plan_.main_path("command"), reason, remedy);
  };
  if (plan_.options.supervise && plan_.options.engine.empty() && standby_ == Standby::kCold &&
      is_dynamo_worker(program)) {
    warn(
        "the standby is started only when it has the lock (--engine cold): a worker of Dynamo's "
        "registers when it has started, before it can be put to sleep",
        program == EngineProgram::kDynamoVllm
            ? "leave out --supervise: dynamo.vllm keeps a warm standby in its own shadow mode"
            : "or use --engine dynamo: then the worker is registered for a moment");
  }
  if (standby_ != Standby::kAsleep) return;
  if (kind_ == "dynamo" || is_dynamo_worker(program)) {
    warn(
        "both workers are registered for a moment: each registers when it has started, before it "
        "can be put to sleep",
        "run them cold, or make sure that clients handle it");
  }
  if (kind_ == "sglang" || program == EngineProgram::kSglang) {
    warn(
        "with a GMS, a standby of SGLang waits for the lock of kv_cache without limit while the "
        "other one is awake",
        "run it cold");
  }
  const bool has_api = program == EngineProgram::kVllm || program == EngineProgram::kSglang ||
                       program == EngineProgram::kRefEngine;
  const OptionValue port = command.find("--port");
  if (!plan_.options.supervise && has_api && port.state != OptionValue::State::kUnknown) {
    warn("both engines would listen on the same port",
         "use --supervise instead of your own fo-shadow, or a --port with $ENGINE_ID in it");
  }
}

void Supervision::warn_of_engine(const yaml::Node& main, const EngineCommand& command) const {
  if (const std::string variable = command.open_variable(); !variable.empty()) {
    plan_.warn(main.position(), plan_.main_path("command"),
               base::quoted(variable) + ": a port in it would be used by both engines",
               "write the options in the command, or put the variable in double quotes");
  }
}

void Supervision::apply(int engine, EngineCommand& command) const {
  if (api_) set_api(command, *api_, engine);
}

// A cold engine is probed at its API, like vLLM. A Dynamo worker has no API: its health page is at
// its system port, and a ready endpoint is the proof.
void Supervision::add_system_page(int engine, std::vector<std::string>& argv) const {
  const std::string url =
      "http://127.0.0.1:" + std::to_string(kSystemPort + kInnerPortOffset + engine);
  argv.insert(argv.end(), {"--engine-url", url, "--prove",
                           plan_.program("gms-probe") +
                               " http -q --timeout 5s --wait 20s --field "
                               "endpoints.generate=ready " +
                               url + "/health"});
}

void Supervision::wrap(int engine, const EngineCommand& own, yaml::Node& container) const {
  if (kind_.empty()) return;
  // Devices are listed by index, so that a server that never started is noticed.
  std::vector<std::string> argv{plan_.program("fo-shadow"), "--engine", kind_, "--devices",
                                plan_.device_list()};
  if (standby_ == Standby::kCold) {
    // Without --load-format gms the engine publishes no layout to wait for.
    if (own.find("--load-format").text != "gms") argv.insert(argv.end(), {"--socket-dir", ""});
    if (has_inner_system_port_) add_system_page(engine, argv);
  }
  if (api_) {
    const std::string port = std::to_string(api_->engine_port(engine));
    argv.insert(argv.end(), {"--engine-url", "http://127.0.0.1:" + port, "--publish",
                             api_->host + ":" + std::to_string(api_->port)});
  }
  argv.emplace_back("--");
  yaml::Node& command = container["command"];
  yaml::Node wrapped = yaml::Node::strings(argv).at(command.position());
  for (yaml::Node& word : command.items()) wrapped.push_back(std::move(word));
  command = std::move(wrapped);
}

}  // namespace fo::pod
