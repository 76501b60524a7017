// fo-gpu's options.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/strong.h"
#include "base/units.h"
#include "cli/app.h"

namespace fo::fo_gpu {

struct Options {
  enum class Command { kMapCheck, kFree, kHealth };
  cli::CommonOptions common;
  Command command = Command::kMapCheck;
  std::string driver;
  base::DeviceOrdinal device;
  // map-check
  std::string socket;
  std::optional<uid_t> server_uid;
  std::string expect_hash;
  base::Duration map_timeout = std::chrono::seconds(30);
  // free, health
  base::GpuUuid uuid;
  // free
  std::optional<base::ByteCount> until_free;
  std::optional<base::Duration> free_timeout;
};

void declare(CLI::App& app, Options& options);

}  // namespace fo::fo_gpu
