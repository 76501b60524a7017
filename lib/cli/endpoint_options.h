// How a tool names a GMS: `--socket`, or `--socket-dir`, `--device` and `--tag`.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"

namespace fo::cli {

struct EndpointOptions {
  std::string socket;
  std::string socket_dir;
  int device = 0;
  std::string tag = "weights";
};

/// $GMS_REMAP_TIMEOUT_MS, a number of milliseconds; nullopt when it is unset or empty. Throws
/// Error(kConfig) for anything else.
std::optional<base::Duration> remap_timeout_from_environment();

}  // namespace fo::cli
