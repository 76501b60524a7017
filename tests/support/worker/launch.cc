#include "support/worker/launch.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

namespace fo::stand_in {
namespace {

constexpr std::string_view kWorkerClass = "gpu_memory_service.integrations.vllm.worker.GMSWorker";
// The status of argparse.
constexpr int kBadArguments = 2;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Reads a variable as Dynamo does.
bool is_true(const char* name) {
  std::string value = variable(name);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return value == "true" || value == "1" || value == "yes";
}

const std::set<std::string_view> kVllmOptions{"--model",
                                              "--load-format",
                                              "--worker-cls",
                                              "--model-loader-extra-config",
                                              "--host",
                                              "--port",
                                              "--gpu-memory-utilization",
                                              "--kv-cache-memory-bytes",
                                              "--max-model-len",
                                              "--served-model-name",
                                              "--dtype",
                                              "--tensor-parallel-size",
                                              "--master-port",
                                              "--kv-transfer-config",
                                              "--kv-events-config",
                                              "--disaggregation-mode"};
const std::set<std::string_view> kVllmFlags{"--enable-sleep-mode", "--enforce-eager",
                                            "--trust-remote-code"};
const std::set<std::string_view> kDynamoOptions{"--namespace", "--discovery-backend"};
const std::set<std::string_view> kDynamoFlags{"--gms-shadow-mode", "--no-gms-shadow-mode"};
const std::set<std::string_view> kSglangOptions{
    "--model-path", "--model", "--load-format",         "--model-loader-extra-config",
    "--host",       "--port",  "--mem-fraction-static", "--served-model-name",
    "--tp-size"};
const std::set<std::string_view> kSglangFlags{"--enable-memory-saver", "--enable-metrics",
                                              "--trust-remote-code"};

// The options by name, with "--"; a flag has an empty value.
class Arguments {
 public:
  Arguments(Program program, const std::vector<std::string>& words) : program_(program) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::string name = words[i];
      if (!name.starts_with("--")) {
        // Only "vllm serve" takes the model as a positional argument.
        if (program != Program::kVllm || !model_.empty()) unknown(name);
        model_ = name;
        continue;
      }
      std::optional<std::string> value;
      if (const std::size_t equals = name.find('='); equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      }
      std::replace(name.begin(), name.end(), '_', '-');
      if (takes(kVllmFlags, kDynamoFlags, kSglangFlags, name) && !value) {
        given_[name] = "";
        continue;
      }
      if (!takes(kVllmOptions, kDynamoOptions, kSglangOptions, name)) unknown(words[i]);
      if (!value && ++i == words.size()) {
        throw Refused(kBadArguments, "argument " + name + ": expected one argument");
      }
      given_[name] = value ? *value : words[i];
    }
  }

  [[nodiscard]] bool has(const std::string& name) const { return given_.contains(name); }
  [[nodiscard]] std::string get(const std::string& name, const std::string& otherwise = {}) const {
    const auto found = given_.find(name);
    return found == given_.end() ? otherwise : found->second;
  }
  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  [[noreturn]] static void unknown(const std::string& word) {
    throw Refused(kBadArguments, "unrecognized arguments: " + word);
  }
  [[nodiscard]] bool takes(const std::set<std::string_view>& vllm,
                           const std::set<std::string_view>& dynamo,
                           const std::set<std::string_view>& sglang,
                           const std::string& name) const {
    if (program_ == Program::kSglang) return sglang.contains(name);
    return vllm.contains(name) || (program_ == Program::kDynamoVllm && dynamo.contains(name));
  }

  Program program_;
  std::string model_;
  std::map<std::string, std::string> given_;
};

// The integrations' part of --model-loader-extra-config.
void read_loader_config(const std::string& text, Launch& launch) {
  if (text.empty()) return;
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) {
    throw Refused(kBadArguments,
                  "argument --model-loader-extra-config: Value " + text + " cannot be converted");
  }
  if (config.value("gms_read_only", false)) launch.weights_lock = gms::LockType::kRo;
  const auto timeout = config.find("gms_ro_connect_timeout_ms");
  if (timeout != config.end() && !timeout->is_null()) {
    launch.reader_timeout = std::chrono::milliseconds(timeout->get<std::int64_t>());
  }
}

double fraction(const std::string& text, double otherwise) {
  return text.empty() ? otherwise : std::strtod(text.c_str(), nullptr);
}

void read_memory(const Arguments& arguments, Launch& launch) {
  if (arguments.get("--tensor-parallel-size", arguments.get("--tp-size", "1")) != "1") {
    throw Refused(1, "this stand-in has one rank");
  }
  launch.scratch_kv = is_true("DYN_GMS_SCRATCH_KV_ENABLED");
  read_loader_config(arguments.get("--model-loader-extra-config"), launch);
}

void read_side_ports(const Arguments& arguments, Launch& launch) {
  const auto member = [&](const char* option, const char* name) -> std::string {
    const auto config = nlohmann::json::parse(arguments.get(option, "{}"), nullptr, false);
    return config.is_object() ? config.value(name, "") : "";
  };
  if (member("--kv-transfer-config", "kv_connector") == "NixlConnector") {
    const std::string port = variable("VLLM_NIXL_SIDE_CHANNEL_PORT");
    launch.side_ports.push_back(port.empty() ? "5600" : port);
  }
  const std::string endpoint = member("--kv-events-config", "endpoint");
  const std::size_t colon = endpoint.rfind(':');
  if (endpoint.starts_with("tcp://") && colon > 5) {
    launch.side_ports.push_back(endpoint.substr(colon + 1));
  }
}

// Dynamo's runtime registers with Kubernetes under its pod's name.
void check_discovery() {
  if (variable("DYN_DISCOVERY_BACKEND") != "kubernetes") return;
  for (const char* const name : {"POD_NAME", "POD_UID"}) {
    if (variable(name).empty()) {
      throw Refused(1, std::string(name) + " environment variable not set");
    }
  }
}

void read_vllm(const Arguments& arguments, Launch& launch) {
  read_side_ports(arguments, launch);
  launch.model = arguments.model().empty() ? arguments.get("--model") : arguments.model();
  launch.port = arguments.get("--port", "8000");
  launch.memory_fraction = fraction(arguments.get("--gpu-memory-utilization"), 0.9);
  launch.kv_bytes = base::parse_uint(arguments.get("--kv-cache-memory-bytes"));
  launch.kv_in_gms = arguments.has("--enable-sleep-mode");
  launch.has_sleep_routes = launch.kv_in_gms && variable("VLLM_SERVER_DEV_MODE") == "1";
  // The import of the worker class registers the load format; Dynamo imports it itself.
  const std::string format = arguments.get("--load-format", "auto");
  const bool has_worker =
      launch.program == Program::kDynamoVllm || arguments.get("--worker-cls") == kWorkerClass;
  if (format == "gms" && !has_worker) {
    throw Refused(1, "ValueError: Load format `gms` is not supported.");
  }
  if (format != "gms") throw Refused(1, "this stand-in knows no weights outside of a GMS");
}

void read_sglang(const Arguments& arguments, Launch& launch) {
  launch.model = arguments.get("--model-path", arguments.get("--model"));
  launch.host = arguments.get("--host", "127.0.0.1");
  launch.port = arguments.get("--port", "30000");
  launch.memory_fraction = fraction(arguments.get("--mem-fraction-static"), 0.9);
  launch.kv_in_gms = true;
  launch.has_sleep_routes = arguments.has("--enable-memory-saver");
  // SGLang's own parser does not know this format: its launcher must have called the integration's
  // setup, as Dynamo's does. This is assumed here.
  if (arguments.get("--load-format") != "gms") {
    throw Refused(1, "this stand-in knows no weights outside of a GMS");
  }
}

void read_dynamo(const Arguments& arguments, Launch& launch) {
  check_discovery();
  read_vllm(arguments, launch);
  if (const std::string port = variable("DYN_SYSTEM_PORT"); !port.empty() && port != "-1") {
    launch.system_port = port;
  }
  launch.shadow_mode =
      (is_true("DYN_VLLM_GMS_SHADOW_MODE") || arguments.has("--gms-shadow-mode")) &&
      !arguments.has("--no-gms-shadow-mode");
  if (!launch.shadow_mode) return;
  // Only in this mode does ENGINE_ID decide which engine loads.
  launch.scratch_kv = true;
  const std::string id = launch.engine_id.empty() ? "0" : launch.engine_id;
  launch.weights_lock = id == "0" ? gms::LockType::kRwOrRo : gms::LockType::kRo;
  launch.lock_path = variable("FAILOVER_LOCK_PATH");
  if (launch.lock_path.empty()) launch.lock_path = "/shared/failover.lock";
}

std::optional<Program> find_program(const std::vector<std::string>& words) {
  if (words.size() < 2) return std::nullopt;
  if (words[0] == "vllm" && words[1] == "serve") return Program::kVllm;
  if (words[0] == "sglang" && words[1] == "serve") return Program::kSglang;
  if (words.size() < 3 || words[0] != "python3" || words[1] != "-m") return std::nullopt;
  if (words[2] == "vllm.entrypoints.openai.api_server") return Program::kVllm;
  if (words[2] == "sglang.launch_server") return Program::kSglang;
  if (words[2] == "dynamo.vllm") return Program::kDynamoVllm;
  return std::nullopt;
}

}  // namespace

std::optional<Launch> parse_launch(const std::vector<std::string>& words) {
  const std::optional<Program> program = find_program(words);
  if (!program) return std::nullopt;
  const auto first = words.begin() + (words[0] == "python3" ? 3 : 2);
  const Arguments arguments(*program, {first, words.end()});
  Launch launch;
  launch.program = *program;
  launch.engine_id = variable("ENGINE_ID");
  launch.host = arguments.get("--host", "0.0.0.0");
  read_memory(arguments, launch);
  switch (*program) {
    case Program::kVllm:
      read_vllm(arguments, launch);
      break;
    case Program::kSglang:
      read_sglang(arguments, launch);
      break;
    case Program::kDynamoVllm:
      read_dynamo(arguments, launch);
      break;
  }
  return launch;
}

}  // namespace fo::stand_in
