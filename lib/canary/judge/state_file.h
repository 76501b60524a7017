// The state that fo-canary run keeps over a restart (--state): the health and the baselines of each
// worker. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/strong.h"
#include "canary/check/baseline.h"
#include "canary/judge/worker_health.h"

namespace fo::canary {

/// The usual durations of a worker's checks.
struct Baselines {
  /// Time of a whole answer, as a multiple of the time in the file of canaries.
  Baseline answer;
  /// Time of the first token, in seconds.
  Baseline first_token;
};

struct SavedWorker {
  WorkerHealth::Saved health;
  Baselines baselines = {};
};
/// Keys are ids of workers.
using SavedWorkers = std::map<std::string, SavedWorker>;

inline constexpr base::ByteCount kMaxStateBytes = 64 * base::kMiB;

std::string encode(const SavedWorkers& workers);
/// Throws Error(kBadData) "read 'path': reason".
SavedWorkers parse_state(std::string_view text, const std::string& path);

}  // namespace fo::canary
