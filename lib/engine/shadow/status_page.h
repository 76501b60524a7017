// The answer of a fo-shadow to GET /status.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/strong.h"
#include "engine/gms_watch.h"
#include "engine/shadow/life_record.h"
#include "engine/shadow/shadow.h"

namespace fo::engine {

struct StatusFacts {
  /// The engine's process; 0 while no engine runs.
  pid_t engine = 0;
  /// The port of the status server; 0 without one.
  std::uint16_t port = 0;
  /// Whether a switchover is in progress.
  bool switching = false;
  /// The size that the gate waits for, by device.
  std::vector<base::ByteCount> gpu_free;
};

/// The answer, one JSON object.
std::string status_json(const ShadowOptions& options, const LifeRecord& life, const GmsWatch& gms,
                        const StatusFacts& facts);

}  // namespace fo::engine
