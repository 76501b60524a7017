#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::gms_probe {

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  gms::SocketsProbe& probe = options.sockets;
  probe.tags = {"weights", "kv_cache"};
  CLI::App* sockets = app.add_subcommand("sockets", "does every GMS server answer?");
  cli::add_socket_dir(*sockets, probe.socket_dir);
  cli::add_devices(*sockets, probe.devices, "devices to expect; all: those found in the folder");
  cli::add_tags(*sockets, probe.tags, "tags to expect, on each device");
  sockets->add_flag("--committed", probe.committed, "each must have a layout published, too");
  cli::add_duration(*sockets, "--wait", probe.wait, "go on asking for this long");
}

}  // namespace fo::gms_probe
