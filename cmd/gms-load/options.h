// gms-load's options.
#pragma once

#include <optional>
#include <string>

#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "weights/load.h"

namespace fo::gms_load {

struct Options {
  cli::CommonOptions common;
  cli::EndpointOptions endpoint;
  /// Argument of cuda::Driver::open.
  std::string driver = "auto";
  /// nullopt: from $ENGINE_ID.
  std::optional<gms::LockType> role;
  weights::LoadOptions load;
  bool no_verify = false;
  bool unpublish = false;
};

void declare(CLI::App& app, Options& options);

/// Checks that there is something to do. Throws Error(kUsage).
void check(const Options& options);

/// The lock type to request. Throws Error(kConfig) if ENGINE_ID is not a number.
gms::LockType role(const Options& options);

}  // namespace fo::gms_load
