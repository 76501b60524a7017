#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"
#include "lock/lock_uri.h"

namespace fo::gms_probe {
namespace {

void declare_sockets(CLI::App& app, Options& options) {
  gms::SocketsProbe& probe = options.sockets;
  probe.tags = {"weights", "kv_cache"};
  CLI::App* sockets = app.add_subcommand("sockets", "does every GMS server answer?");
  sockets->callback([&options] { options.probe = Options::Probe::kSockets; });
  cli::add_socket_dir(*sockets, probe.socket_dir);
  cli::add_devices(*sockets, probe.devices, "devices to expect; all: those found in the folder");
  cli::add_tags(*sockets, probe.tags, "tags to expect, on each device");
  sockets->add_flag("--committed", probe.committed, "each must have a layout published, too");
  cli::add_duration(*sockets, "--wait", probe.wait, "go on asking for this long");
}

void declare_lock(CLI::App& app, Options& options) {
  lock::LockProbe& probe = options.lock;
  options.lock_uri = lock::kDefaultLockPath;
  CLI::App* lock = app.add_subcommand("lock", "can the lock be asked for, and who holds it?");
  lock->callback([&options] { options.probe = Options::Probe::kLock; });
  cli::add_lock(*lock, options.lock_uri);
  lock->add_flag("--held", probe.held, "somebody must hold it");
  lock->add_option("--holder", probe.holder, "this one must hold it")->type_name("ID");
  cli::add_duration(*lock, "--wait", probe.wait, "go on asking for this long");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  declare_sockets(app, options);
  declare_lock(app, options);
}

}  // namespace fo::gms_probe
