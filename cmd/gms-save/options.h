// gms-save's options.
#pragma once

#include <string>

#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "weights/save.h"

namespace fo::gms_save {

struct Options {
  cli::CommonOptions common;
  cli::EndpointOptions endpoint;
  /// Argument of cuda::Driver::open.
  std::string driver = "auto";
  bool replace = false;
  weights::SaveOptions save;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::gms_save
