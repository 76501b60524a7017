// Computes the rate of requests that replicas of an engine carry within the limits of their
// latency. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/times.h"

namespace fo::plan {

/// The time that a mean request may stay in an engine: ttft + tokens * tpot, for the limits of the
/// time to first token and the time per output token, and the mean number of output tokens. All
/// are more than 0; the times at most a day, 1e12 tokens. Throws Error(kUsage) otherwise.
Seconds residence_time(Seconds ttft, double tokens, Seconds tpot);

/// A measurement of an engine: the time per output token with this many requests at a time.
struct MeasuredTpot {
  std::uint64_t concurrency;
  Seconds tpot;
};

/// The limits of one replica's concurrent requests.
struct Replica {
  /// The number of tokens that the whole KV cache holds, not of its free part: the free part
  /// excludes running requests already, so that they would be counted twice.
  double kv_tokens;
  /// The mean length of a sequence, prompt and answer.
  double sequence_tokens;
  /// The engine's limit on requests at a time.
  std::uint64_t slots;
  /// Empty: no measurement bounds the concurrency.
  std::vector<MeasuredTpot> measured;
};

/// The number of concurrent requests of a replica: the least of kv_tokens / sequence_tokens, slots,
/// and the largest measured concurrency whose TPOT is within `tpot`. 0 if no sequence fits into the
/// cache, or no measurement is within the limit. Throws Error(kUsage) for a value that is 0 or out
/// of its range.
std::uint64_t concurrency_of(const Replica& replica, Seconds tpot);

/// The requests per second that `replicas` carry: replicas * concurrency / residence, by Little's
/// law, L = lambda * W (J. D. C. Little, Operations Research 9, 1961). `concurrency` may be 0.
double carried_rate(std::uint64_t replicas, std::uint64_t concurrency, Seconds residence);

/// The least number of replicas that carry `rate` (more than 0) requests per second; nullopt if the
/// concurrency is 0, or more than 1e12 would be needed.
std::optional<std::uint64_t> replicas_needed(double rate, std::uint64_t concurrency,
                                             Seconds residence);

}  // namespace fo::plan
