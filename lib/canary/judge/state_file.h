// The state that fo-canary run keeps over a restart (--state): the health and the baselines of each
// worker. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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

/// {"average", "count"}.
nlohmann::json to_json(const Baseline& baseline);

struct SavedWorker {
  WorkerHealth::Saved health;
  Baselines baselines = {};
  /// As in Worker; false if the file does not have them.
  bool owes_answer = false;
  bool owes_sampler = false;
  /// The time since which it is not registered; nullopt while it is.
  std::optional<text::WallTime> gone_since = {};
};
/// Keys are ids of workers.
using SavedWorkers = std::map<std::string, SavedWorker>;

inline constexpr base::ByteCount kMaxStateBytes = 64 * base::kMiB;

/// The limits of workers that are gone, because their ids may never come back.
inline constexpr std::chrono::hours kKeptFor{24 * 7};
inline constexpr std::size_t kMaxGone = 10'000;
/// Removes workers that exceed these limits. If there are too many, those that have been gone for
/// longest are removed first, and convicted ones last. Convicted workers have no limit of time,
/// because their records stay in the registry. All `workers` are gone; one without a time is gone
/// since `now`.
void forget_gone(SavedWorkers& workers, text::WallTime now);

std::string encode(const SavedWorkers& workers);
/// Throws Error(kBadData) "read 'path': reason".
SavedWorkers parse_state(std::string_view text, const std::string& path);

}  // namespace fo::canary
