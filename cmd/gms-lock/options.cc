#include "options.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "lock/lock_uri.h"

namespace fo::gms_lock {
namespace {

CLI::App* add_command(CLI::App& app, Options& options, Options::Command command, const char* name,
                      const char* description) {
  CLI::App* sub = cli::add_command(app, options.command, command, name, description);
  Options::Place& place = options.places[static_cast<std::size_t>(command)];
  place.locks = {std::string(lock::kDefaultLockPath)};
  CLI::Option* lock = cli::add_locks(*sub, place.locks);
  if (command != Options::Command::kAcquire) lock->description("the lock to query");
  cli::add_kube_api(*sub, place.kube_api);
  cli::add_variables(*sub, {"KUBERNETES_SERVICE_*"});
  return sub;
}

// A bare number counts seconds, as in flock(1).
CLI::Option* add_timeout(CLI::App& app, std::optional<base::Duration>& timeout) {
  const auto read = [&timeout](const std::string& text) {
    timeout = base::parse_duration(text);
    if (!timeout) timeout = base::parse_duration(text + "s");
    if (!timeout) throw CLI::ValidationError("--timeout", "'" + text + "' is not a duration");
  };
  return app.add_option_function<std::string>("-w,--timeout", read, "stop waiting after this time")
      ->type_name("DURATION");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  using enum Options::Command;
  CLI::App* acquire = add_command(app, options, kAcquire, "acquire",
                                  "wait for the lock and run a command under it");
  lock::AcquireOptions& wanted = options.acquire;
  cli::add_id(*acquire, options.id, "id of this holder");
  CLI::Option* timeout = add_timeout(*acquire, wanted.timeout);
  acquire->add_flag("-n,--nonblock", options.nonblock, "do not wait")->excludes(timeout);
  cli::add_number(*acquire, "-E,--conflict-exit-code", wanted.busy_status,
                  "exit status if the lock is not granted in time", 0, 255);
  CLI::Option* gpu_free = cli::add_size(*acquire, "--gpu-free", wanted.gpu_free,
                                        "then wait until the device has this much memory free");
  cli::add_device(*acquire, wanted.device, "the device of --gpu-free")->needs(gpu_free);
  cli::add_duration(*acquire, "--warn-after", wanted.warn_after,
                    "log the lock's holder after this wait; 0: never");
  acquire->add_flag("--exec", wanted.exec, "exec the command instead of supervising it");
  acquire->add_option("--fd", wanted.fd, "descriptor that holds the lock (default: lowest free)")
      ->type_name("N");
  cli::add_duration(*acquire, "--grace", wanted.grace, "from SIGTERM to SIGKILL");
  cli::add_status_fd(*acquire, wanted.status_fd);
  add_command(app, options, kOwner, "owner", "print the holder's id; exit 1 if the lock is free");
  add_command(app, options, kStatus, "status",
              "show holder, generation, waiters and the processes that have it open");
  cli::add_variables(*acquire,
                     {"ENGINE_ID", "FO_LIBEXEC_DIR", "GMS_DRIVER", "KUBERNETES_SERVICE_*"});
}

void check(const Options& options) {
  const auto refuse = [](const char* reason) {
    throw base::Error(base::ExitStatus::kUsage, reason);
  };
  if (options.command != Options::Command::kAcquire && options.place().locks.size() != 1) {
    refuse("only acquire takes several locks");
  }
  const bool has_command = !options.common.command.empty();
  if (options.acquire.exec && !has_command) refuse("--exec needs a command after '--'");
}

}  // namespace fo::gms_lock
