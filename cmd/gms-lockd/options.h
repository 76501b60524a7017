// gms-lockd's options.
#pragma once

#include "cli/app.h"
#include "lock/lockd/lockd_server.h"

namespace fo::gms_lockd {

struct Options {
  cli::CommonOptions common;
  lock::LockdConfig serve;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::gms_lockd
