// gms-probe's options.
#pragma once

#include "cli/app.h"
#include "gms/probe.h"

namespace fo::gms_probe {

struct Options {
  cli::CommonOptions common;
  gms::SocketsProbe sockets;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::gms_probe
