// Options that name a GMS: `--socket`, or `--socket-dir`, `--device` and `--tag`; and the user
// whose servers are accepted.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/strong.h"

namespace fo::cli {

struct EndpointOptions {
  std::string socket;
  std::string socket_dir;
  base::DeviceOrdinal device;
  std::string tag = "weights";
  /// The user whose servers are accepted besides those of root and our own user.
  std::optional<uid_t> server_uid;
};

}  // namespace fo::cli
