#include "options.h"

#include <CLI/CLI.hpp>
#include <chrono>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "engine/status_socket.h"
#include "gms/client/remap_check.h"
#include "gms/protocol/endpoint.h"
#include "lock/grant.h"
#include "lock/lock_uri.h"
#include "os/probe.h"

namespace fo::gms_probe {
namespace {

// Starting a driver takes longer than the answer of a server.
constexpr base::Duration kDriverTime = std::chrono::seconds(30);

void add_wait(CLI::App& app, base::Duration& wait) {
  cli::add_duration(app, "--wait", wait, "retry for this long");
}

void add_timeout(CLI::App& app, base::Duration& timeout, base::Duration value) {
  timeout = value;
  cli::add_duration(app, "--timeout", timeout, "for one answer");
}

void declare_sockets(CLI::App& app, Options& options) {
  gms::SocketsProbe& probe = options.sockets;
  probe.tags = {"weights", "kv_cache"};
  CLI::App* sockets = cli::add_command(app, options.probe, Options::Probe::kSockets, "sockets",
                                       "does every GMS server answer?");
  cli::add_socket_dir(*sockets, probe.socket_dir);
  cli::add_devices(*sockets, probe.devices, "devices to expect; all: those found in the folder");
  cli::add_tags(*sockets, probe.tags, "tags to expect, on each device");
  sockets->add_flag("--committed", probe.committed,
                    "each server must have a published layout, too");
  cli::add_server_uid(*sockets, probe.server_uid);
  add_wait(*sockets, probe.wait);
  cli::add_variables(*sockets, {"TMPDIR"});
}

void declare_http(CLI::App& app, Options& options) {
  http::HttpProbe& probe = options.http;
  CLI::App* http = cli::add_command(app, options.probe, Options::Probe::kHttp, "http",
                                    "does this endpoint answer as expected?");
  http->add_option("URL", probe.url, "http://HOST:PORT/PATH or unix:SOCKET:/PATH")
      ->required()
      ->type_name("");
  cli::add_number(*http, "--status", probe.status, "the expected status; default: any 2xx", 100,
                  599);
  http->add_option_function<std::vector<std::string>>(
          "--field",
          [&probe](const std::vector<std::string>& fields) {
            for (const std::string& field : fields) {
              const std::size_t equals = field.find('=');
              if (equals == std::string::npos || equals == 0) {
                throw CLI::ValidationError("--field", "'" + field + "' is not PATH=VALUE");
              }
              probe.fields.emplace_back(field.substr(0, equals), field.substr(equals + 1));
            }
          },
          "the answer's JSON must have this value there (a.b.0=x)")
      ->allow_extra_args(false)
      ->type_name("PATH=VALUE");
  add_timeout(*http, probe.timeout, os::kProbeTime);
  add_wait(*http, probe.wait);
}

void declare_engine(CLI::App& app, Options& options) {
  engine::EngineProbe& probe = options.engine;
  options.engine_lock = lock::kDefaultLockPath;
  std::vector<std::string> states;
  for (const auto state : engine::kAllStates) states.emplace_back(engine::state_name(state));
  CLI::App* engine = cli::add_command(app, options.probe, Options::Probe::kEngine, "engine",
                                      "is this engine in that state?");
  engine
      ->add_option_function<std::vector<std::string>>(
          "--state",
          [&probe](const std::vector<std::string>& names) {
            for (const std::string& name : names) {
              const auto state = engine::parse_state(name);
              if (!state) {
                throw CLI::ValidationError("--state", "'" + name + "' is not an engine's state");
              }
              probe.states.push_back(*state);
            }
          },
          "the engine must be in one of these; default: any but dead")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(cli::example_words(states))
      ->type_name("STATE,...");
  CLI::Option* lock = cli::add_lock(*engine, options.engine_lock);
  // cli::add_id is not used, because it treats an empty id like a missing one; here it is refused.
  CLI::Option* id =
      engine->add_option("--id", options.engine_id, "the engine's (default: engine-$ENGINE_ID)")
          ->type_name("ID");
  engine
      ->add_option("--url", options.engine_url,
                   "of the engine's status page, instead of lock and id")
      ->excludes(lock)
      ->excludes(id)
      ->type_name("URL");
  add_timeout(*engine, probe.timeout, os::kProbeTime);
  add_wait(*engine, probe.wait);
  cli::add_variables(*engine, {"ENGINE_ID"});
}

void declare_lock(CLI::App& app, Options& options) {
  lock::LockProbe& probe = options.lock;
  options.lock_uri = lock::kDefaultLockPath;
  CLI::App* lock = cli::add_command(app, options.probe, Options::Probe::kLock, "lock",
                                    "does the lock service answer, and who holds it?");
  cli::add_lock(*lock, options.lock_uri);
  cli::add_kube_api(*lock, options.kube_api);
  lock->add_flag("--held", probe.held, "the lock must be held");
  lock->add_option("--holder", probe.holder, "this id must hold it")->type_name("ID");
  add_wait(*lock, probe.wait);
  cli::add_variables(*lock, {"KUBERNETES_SERVICE_*"});
}

void declare_remap(CLI::App& app, Options& options) {
  gms::RemapProbe& probe = options.remap;
  CLI::App* remap = cli::add_command(app, options.probe, Options::Probe::kRemap, "remap",
                                     "could an engine that sleeps wake on this layout?");
  cli::add_endpoint(*remap, options.endpoint);
  remap->add_option("--expect-hash", options.expect_hash, "the layout must have this hash")
      ->type_name("HASH");
  add_timeout(*remap, probe.timeout, os::kProbeTime);
  add_wait(*remap, probe.wait);
  cli::add_variables(*remap, {"TMPDIR"});
}

void declare_gpu(CLI::App& app, Options& options) {
  device::GpuProbe& probe = options.gpu;
  CLI::App* gpu = cli::add_command(app, options.probe, Options::Probe::kGpu, "gpu",
                                   "does the device have this much free memory?");
  cli::add_size(*gpu, "--free", probe.wanted, "how much")->required()->default_str("");
  cli::add_device(*gpu, probe.device, "CUDA device");
  add_timeout(*gpu, probe.timeout, kDriverTime);
  add_wait(*gpu, probe.wait);
  cli::add_variables(*gpu, {"FO_LIBEXEC_DIR", "GMS_DRIVER"});
}

void settle_engine(Options& options) {
  if (options.engine_url) {
    options.engine.url = *options.engine_url;
    return;
  }
  const std::string id = options.engine_id ? *options.engine_id : lock::lock_id_from_environment();
  const lock::LockUri lock = lock::parse_local_lock_uri(options.engine_lock);
  options.engine.url = "unix:" + engine::status_socket_path(lock, id) + ":/status";
}

void settle_remap(Options& options) {
  const cli::EndpointOptions& endpoint = options.endpoint;
  gms::RemapProbe& probe = options.remap;
  probe.socket =
      gms::resolve_socket(endpoint.socket, endpoint.socket_dir, endpoint.device, endpoint.tag);
  probe.server_uid = endpoint.server_uid;
  if (!options.expect_hash) return;
  if (!gms::is_layout_hash(*options.expect_hash)) {
    throw base::Error(base::ExitStatus::kUsage, "--expect-hash " +
                                                    base::quoted(*options.expect_hash) +
                                                    ": not 64 lower case hexadecimal digits");
  }
  probe.expect_hash = gms::LayoutHash(*options.expect_hash);
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  declare_sockets(app, options);
  declare_http(app, options);
  declare_engine(app, options);
  declare_lock(app, options);
  declare_remap(app, options);
  declare_gpu(app, options);
}

void settle(Options& options) {
  switch (options.probe) {
    case Options::Probe::kSockets:
      options.sockets.socket_dir = gms::socket_dir_or_default(options.sockets.socket_dir);
      break;
    case Options::Probe::kEngine:
      settle_engine(options);
      break;
    case Options::Probe::kLock:
      options.lock.lock = lock::parse_lock_uri(options.lock_uri, options.kube_api);
      break;
    case Options::Probe::kRemap:
      settle_remap(options);
      break;
    case Options::Probe::kHttp:
    case Options::Probe::kGpu:
      break;
  }
}

}  // namespace fo::gms_probe
