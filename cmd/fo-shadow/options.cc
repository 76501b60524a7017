#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "engine/drivers/recipe.h"
#include "gms/client/discover.h"
#include "gms/protocol/endpoint.h"
#include "lock/grant.h"
#include "net/address.h"
#include "os/process/exec.h"

namespace fo::fo_shadow {
namespace {

using base::Error;
using base::ExitStatus;
using engine::EngineKind;

void add_pair_lock(CLI::App& app, Options& options, Options::Command command) {
  std::string& lock = options.pair_locks[static_cast<std::size_t>(command)];
  lock = lock::kDefaultLockPath;
  cli::add_lock(app, lock);
}

void add_locks(CLI::App& app, Options& options) {
  options.locks = {std::string(lock::kDefaultLockPath)};
  cli::add_locks(app, options.locks);
  cli::add_kube_api(app, options.kube_api);
}

void declare_engine(CLI::App& app, Options& options) {
  engine::ShadowOptions& shadow = options.shadow;
  cli::add_choice(app, "--engine", shadow.driver.kind,
                  {{"cold", EngineKind::kCold},
                   {"command", EngineKind::kCommand},
                   {"dynamo", EngineKind::kDynamo},
                   {"sglang", EngineKind::kSglang},
                   {"vllm", EngineKind::kVllm}},
                  "vllm, sglang, dynamo, command or cold", "KIND");
  cli::add_text(app, "--engine-url", options.engine_url,
                "the engine's API (default: http://127.0.0.1:8000, sglang 30000)", "URL");
  cli::add_number(app, "--engine-port", options.engine_port,
                  "the engine's own DYN_SYSTEM_PORT (default: --port + 100)", 1, 65535)
      ->default_str("")
      ->type_name("PORT");
  cli::add_number(app, "--sleep-level", shadow.driver.sleep_level,
                  "1 keeps the weights, 2 drops them", 1, 2);
  cli::add_text(app, "--sleep", shadow.driver.sleep_command, "run this command for that step",
                "CMD");
  cli::add_text(app, "--wake", shadow.driver.wake_command, "", "CMD");
  cli::add_text(app, "--health", shadow.driver.health_command,
                "run this command to check, to generate a token", "CMD");
  cli::add_text(app, "--prove", shadow.driver.prove_command, "", "CMD");
  app.add_flag("--no-failover", options.no_failover, "start, register, serve: no lock, no sleep");
}

void declare_place(CLI::App& app, Options& options) {
  add_locks(app, options);
  cli::add_id(app, options.id, "id of this engine");
  app.add_option("--gms", options.gms, "sockets of the GMS (default: those in --socket-dir)")
      ->type_name("SOCKET");
  cli::add_socket_dir(app, options.socket_dir)->description("folder of the GMS sockets");
  cli::add_text(app, "--tag", options.tag, "tag of the weights", "T")->capture_default_str();
  cli::add_devices(app, options.devices,
                   "devices whose memory must be free; all: the GMS's, else 0");
  cli::add_size(app, "--gpu-free", options.shadow.gpu_free,
                "free memory to wait for; 0: none (default: what the engine released)");
  app.add_option("--port", options.port, "of /live, /health, /metrics; -1: none")
      ->envname("DYN_SYSTEM_PORT")
      ->check(CLI::Range(-1, 65535).description(""))
      ->capture_default_str()
      ->type_name("PORT");
  cli::add_text(app, "--host", options.shadow.host, "numeric address of --port", "HOST")
      ->capture_default_str();
  cli::add_text(app, "--publish", options.shadow.publish, "the active engine, for clients",
                "HOST:PORT");
  app.add_flag("--publish-control", options.shadow.publish_control,
               "publish the engine's control paths, too");
  cli::add_text(app, "--register", options.shadow.register_command,
                "run this when the engine serves, and before it stops", "CMD");
  cli::add_text(app, "--deregister", options.shadow.deregister_command, "", "CMD");
  app.add_option("--health-target", options.targets, "a URL that /health checks while active")
      ->type_name("NAME=URL");
}

void declare_limits(CLI::App& app, Options& options) {
  engine::ShadowOptions& shadow = options.shadow;
  cli::add_duration(app, "--start-timeout", shadow.start_timeout, "until the engine is healthy");
  cli::add_duration(app, "--sleep-timeout", shadow.sleep_timeout, "until it sleeps");
  cli::add_duration(app, "--wake-timeout", shadow.wake_timeout, "from the grant until active");
  cli::add_remap_timeout(app, "--remap-timeout", shadow.remap_timeout,
                         "part of --wake-timeout for the GMS");
  cli::add_duration(app, "--prove-timeout", shadow.prove_timeout, "for a token");
  cli::add_duration(app, "--register-timeout", shadow.register_timeout, "for those commands");
  cli::add_duration(app, "--gms-grace", shadow.gms_grace, "for a lost GMS to reconnect");
  cli::add_duration(app, "--drain", shadow.drain, "for requests in flight");
  cli::add_duration(app, "--grace", shadow.grace, "from SIGTERM to SIGKILL");
  cli::add_duration(app, "--health-interval", shadow.health_interval, "between health checks");
  cli::add_duration(app, "--health-timeout", shadow.health_timeout, "for an answer");
  cli::add_duration(app, "--prove-interval", shadow.prove_interval, "between generations");
  cli::add_number(app, "--failures", shadow.failures, "failed checks in a row that end the engine",
                  1, 1000);
  cli::add_duration(app, "--warn-after", shadow.warn_after,
                    "log the lock's holder this often; 0: never");
  cli::add_status_fd(app, shadow.status_fd);
}

// Calls `declare`, and puts the options that it adds under their own heading in --help.
void declare_group(CLI::App& app, Options& options, const char* heading,
                   void (*declare)(CLI::App&, Options&)) {
  const std::size_t before = app.get_options().size();
  declare(app, options);
  const std::vector<CLI::Option*> all = app.get_options();
  for (std::size_t i = before; i < all.size(); ++i) all[i]->group(heading);
}

void declare_pair(CLI::App& app, Options& options) {
  app.require_subcommand(0, 1);
  CLI::App* status = cli::add_command(app, options.command, Options::Command::kStatus, "status",
                                      "show both engines, the active one, and the GMS");
  add_pair_lock(*status, options, Options::Command::kStatus);
  CLI::App* over =
      cli::add_command(app, options.command, Options::Command::kSwitchOver, "switchover",
                       "make the standby active, and the active engine a standby");
  add_pair_lock(*over, options, Options::Command::kSwitchOver);
  cli::add_duration(*over, "--timeout", options.timeout, "until the other engine is active");
}

[[noreturn]] void refuse(const std::string& reason) { throw Error(ExitStatus::kUsage, reason); }

constexpr const char* kKvTag = "kv_cache";

// The GMS that --gms names; without it, those of the weights and of the KV memory that are expected
// in the folder.
std::vector<engine::GmsPlace> find_places(const Options& options) {
  std::vector<engine::GmsPlace> places;
  for (const std::string& socket : options.gms) {
    // The device is the one in the socket's name; other sockets are numbered.
    const auto named = gms::parse_socket_name(std::filesystem::path(socket).filename().native());
    const base::DeviceOrdinal next(static_cast<int>(places.size()));
    places.push_back(
        {socket, named && named->device ? *named->device : next, named ? named->tag : options.tag});
  }
  if (!places.empty() || options.socket_dir.empty()) return places;
  std::vector<base::DeviceOrdinal> devices = options.devices;
  if (devices.empty()) devices = gms::find_devices(options.socket_dir, {options.tag});
  if (devices.empty()) {
    throw Error(ExitStatus::kUnavailable,
                "look for sockets in " + base::quoted(options.socket_dir) + ": none found");
  }
  for (const std::string& tag : {options.tag, std::string(kKvTag)}) {
    for (const base::DeviceOrdinal device : devices) {
      places.push_back({gms::socket_link(options.socket_dir, device, tag), device, tag});
    }
  }
  return places;
}

void set_places(const Options& options, engine::ShadowOptions& shadow) {
  for (engine::GmsPlace& place : find_places(options)) {
    auto& places = place.tag == kKvTag && options.tag != kKvTag ? shadow.kv : shadow.gms;
    places.push_back(std::move(place));
  }
  shadow.devices = options.devices;
  if (shadow.devices.empty()) {
    for (const engine::GmsPlace& place : shadow.gms) shadow.devices.push_back(place.device);
  }
  if (shadow.devices.empty()) shadow.devices.emplace_back(0);
}

void check_engine(engine::ShadowOptions& shadow) {
  engine::Recipe recipe;
  recipe.command = shadow.command;
  recipe.kind = shadow.driver.kind;
  recipe.sleep_level = shadow.driver.sleep_level;
  recipe.failover = shadow.failover;
  recipe.has_gms = !shadow.gms.empty();
  recipe.variable = os::variable;
  for (const engine::GmsPlace& place : shadow.kv) {
    std::error_code unknown;
    if (!std::filesystem::exists(place.socket, unknown)) {
      recipe.missing_kv_sockets.push_back(place.socket);
    }
  }
  shadow.warnings = engine::check_recipe(recipe);
}

void set_locks(const Options& options, engine::ShadowOptions& shadow) {
  for (const std::string& uri : options.locks) {
    shadow.locks.push_back(lock::parse_lock_uri(uri, options.kube_api));
  }
  const auto local = std::find_if(shadow.locks.begin(), shadow.locks.end(), lock::is_local);
  if (local == shadow.locks.end()) {
    refuse("--lock " + base::quoted(options.locks.front()) +
           ": needs a lock of this node, too: flock: or unix:");
  }
  shadow.lock = *local;
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  declare_group(app, options, "The engine", declare_engine);
  declare_group(app, options, "The pair and its place", declare_place);
  declare_limits(app, options);
  declare_pair(app, options);
  cli::add_variables(app, {"DYN_*", "ENGINE_ID", "FO_LIBEXEC_DIR", "GMS_DRIVER",
                           "KUBERNETES_SERVICE_*", "NOTIFY_SOCKET", "VLLM_*", "WATCHDOG_*"});
}

engine::ShadowOptions to_shadow_options(const Options& options) {
  engine::ShadowOptions shadow = options.shadow;
  shadow.command = options.common.command;
  if (shadow.command.empty()) refuse("missing command of the engine after '--'");
  shadow.failover = !options.no_failover;
  set_locks(options, shadow);
  shadow.id = options.id.empty() ? lock::lock_id_from_environment() : options.id;
  lock::check_lock_id(shadow.id);
  const bool is_sglang = shadow.driver.kind == EngineKind::kSglang;
  shadow.driver.url = !options.engine_url.empty() ? options.engine_url
                      : is_sglang                 ? "http://127.0.0.1:30000"
                                                  : "http://127.0.0.1:8000";
  shadow.port.reset();
  if (options.port >= 0) shadow.port = static_cast<std::uint16_t>(options.port);
  int engine_port = options.engine_port;
  if (engine_port == 0 && options.port > 0) engine_port = options.port + 100;
  if (engine_port > std::numeric_limits<std::uint16_t>::max()) {
    refuse("--port " + std::to_string(options.port) + ": needs --engine-port, too");
  }
  shadow.engine_port = static_cast<std::uint16_t>(engine_port);
  shadow.driver.system_url = "http://127.0.0.1:" + std::to_string(engine_port);
  if (shadow.driver.kind == EngineKind::kDynamo && engine_port == 0) {
    refuse("--engine dynamo needs --engine-port");
  }
  if (!shadow.publish.empty()) net::parse_address(shadow.publish);
  for (const std::string& target : options.targets) {
    const std::size_t sign = target.find('=');
    if (sign == 0 || sign == std::string::npos) {
      refuse("--health-target " + base::quoted(target) + ": not NAME=URL");
    }
    const std::string url = target.substr(sign + 1);
    if (net::parse_url(url).is_tls) {
      refuse("--health-target " + base::quoted(target) + ": https is not supported");
    }
    shadow.targets.emplace_back(target.substr(0, sign), url);
  }
  set_places(options, shadow);
  check_engine(shadow);
  return shadow;
}

}  // namespace fo::fo_shadow
