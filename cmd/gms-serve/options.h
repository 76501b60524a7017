// gms-serve's options.
#pragma once

#include "cli/app.h"
#include "gms/bundle/serve.h"

namespace fo::gms_serve {

struct Options {
  cli::CommonOptions common;
  gms::ServeConfig serve;
  /// With --socket-path: the only device and tag.
  base::DeviceOrdinal device;
  std::string tag = "weights";
};

void declare(CLI::App& app, Options& options);

/// The configuration for the options.
gms::ServeConfig to_config(const Options& options);

}  // namespace fo::gms_serve
