// gms-stat's options.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "gms/stat/stat.h"

namespace fo::gms_stat {

struct Options {
  cli::CommonOptions common;
  cli::EndpointOptions endpoint;
  bool all = false;
  bool holders = false;
  /// Sockets of servers outside the folder that may own memory of the device, too.
  std::vector<std::string> servers;
  std::string driver;
  gms::StatRequest stat;
  /// The interval of queries; nullopt for a single one.
  std::optional<base::Duration> watch;
  base::Duration timeout = std::chrono::seconds(5);
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::gms_stat
