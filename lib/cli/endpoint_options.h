// How a tool names a GMS: `--socket`, or `--socket-dir`, `--device` and `--tag`.
#pragma once

#include <string>

namespace fo::cli {

struct EndpointOptions {
  std::string socket;
  std::string socket_dir;
  int device = 0;
  std::string tag = "weights";
};

}  // namespace fo::cli
