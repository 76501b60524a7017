// fo-gpu's options.
#pragma once

#include <chrono>
#include <string>

#include "base/units.h"
#include "cli/app.h"

namespace fo::fo_gpu {

struct Options {
  enum class Command { kMapCheck, kFree };
  cli::CommonOptions common;
  Command command = Command::kMapCheck;
  std::string driver;
  int device = 0;
  std::string socket;
  std::string expect_hash;
  base::Duration timeout = std::chrono::seconds(30);
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::fo_gpu
