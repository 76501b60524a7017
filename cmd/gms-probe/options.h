// gms-probe's options.
#pragma once

#include <string>

#include "cli/app.h"
#include "gms/probe.h"
#include "lock/lock_probe.h"

namespace fo::gms_probe {

struct Options {
  enum class Probe { kSockets, kLock };
  cli::CommonOptions common;
  Probe probe = Probe::kSockets;
  gms::SocketsProbe sockets;
  /// As it was given.
  std::string lock_uri;
  lock::LockProbe lock;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::gms_probe
