// The router's counters, and its /metrics. Every series that can be known before its first event
// exists from the start with 0, so that a rate sees the first event.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/units.h"
#include "metrics/numbers.h"
#include "route/answer/outcome.h"
#include "route/worker/workers.h"

namespace fo::route {

inline constexpr std::array<base::Duration, 14> kLatencyBounds{
    std::chrono::milliseconds(1),    std::chrono::milliseconds(2),   std::chrono::milliseconds(5),
    std::chrono::milliseconds(10),   std::chrono::milliseconds(20),  std::chrono::milliseconds(50),
    std::chrono::milliseconds(100),  std::chrono::milliseconds(200), std::chrono::milliseconds(500),
    std::chrono::milliseconds(1000), std::chrono::seconds(2),        std::chrono::seconds(5),
    std::chrono::seconds(20),        std::chrono::seconds(60)};

inline constexpr std::array<const char*, 3> kTierNames{"premium", "standard", "best_effort"};

/// Why a request was refused before a worker got it.
enum class RefusalReason {
  kPath,
  kKey,
  kModel,
  kBody,
  kLimit,
  kCapacity,
  kLevel,
  kDeadline,
  kHttp
};
inline constexpr std::array<const char*, 9> kRefusedNames{
    "path", "key", "model", "body", "limit", "capacity", "level", "deadline", "http"};

/// Why an answer that had begun lost its worker.
enum class LossReason {
  kBroken,   // the connection broke, or the answer ended early
  kError,    // the engine ended the answer with an error
  kStalled,  // no token came in time
  kDrained   // the worker is drained
};
inline constexpr std::array<const char*, 4> kLossReasonNames{"broken", "error", "stalled",
                                                             "drained"};

/// The outcome of an answer that lost its worker.
enum class ResumeEnd {
  kResumed,   // another worker continued it
  kFinished,  // it needed no worker any more
  kRefused,   // it cannot continue
  kNoWorker   // no worker could continue it in time
};
inline constexpr std::array<const char*, 4> kResumeEndNames{"resumed", "finished", "refused",
                                                            "no_worker"};

/// The way in which an answer moved to another worker: its KV cache was transferred, or its tokens
/// were computed again.
enum class MoveMethod { kTransfer, kReprefill };
inline constexpr std::array<const char*, 2> kMoveMethodNames{"transfer", "reprefill"};

struct Metrics {
  /// Requests by model, HTTP status and tier. The status 499 means that the client disconnected.
  /// The model is empty unless it is one of the workers', the tier if the request was refused
  /// before its key was checked.
  std::map<std::tuple<std::string, int, std::string>, std::uint64_t> requests;
  metrics::Histogram<kLatencyBounds> first_token;
  metrics::Histogram<kLatencyBounds> gap;
  metrics::Histogram<kLatencyBounds> queue_time;
  std::array<metrics::Counter, kRefusedNames.size()> refused;
  /// Attempts beyond the first, by the end of the attempt before.
  std::map<OutcomeClass, std::uint64_t> retries;
  /// Answers that lost their worker after their first byte.
  std::array<std::array<metrics::Counter, kLossReasonNames.size()>, kResumeEndNames.size()> resumes;
  /// Time from the loss of a stream's worker to the first token of the next one.
  metrics::Histogram<kLatencyBounds> resume_gap;
  /// Answers that moved to another worker, by the groups of the old and the new one, which are
  /// empty without has_groups.
  std::map<std::tuple<std::string, std::string, MoveMethod>, std::uint64_t> moves;
  bool has_groups = false;
  /// Duration of a move: from the loss of the old worker, or the beginning of the move, to the
  /// first token of the new one.
  std::array<metrics::Histogram<kLatencyBounds>, kMoveMethodNames.size()> move_times;
  /// Streams of which a part was delivered, and that could not continue.
  metrics::Counter lost;
  /// Requests that are refused because engines died of them.
  metrics::Counter poison;
  metrics::Counter ejections;
  metrics::Counter panics;

  void add_move(const std::string& source, const std::string& target, MoveMethod method,
                base::Duration took) {
    ++moves[has_groups ? std::tuple(source, target, method)
                       : std::tuple(std::string(), std::string(), method)];
    move_times[static_cast<std::size_t>(method)].observe(took);
  }
  void add_resume(ResumeEnd end, LossReason reason) {
    resumes[static_cast<std::size_t>(end)][static_cast<std::size_t>(reason)].add();
  }
  void refuse(RefusalReason reason) { refused[static_cast<std::size_t>(reason)].add(); }
};

/// The state of a set's queue.
struct QueueGauge {
  std::size_t requests = 0;
  std::uint64_t tokens = 0;
  /// Age of the request that has waited longest; nullopt if nothing waits.
  std::optional<base::Duration> oldest_age = {};
};

/// Prometheus' format. Beside fo_route_*, the names of NVIDIA Dynamo's plan for fault tolerance:
/// dynamo_worker_status (the worse one of health and verdict: 0 healthy, 1 suspicious or in
/// probation, 2 unhealthy or convicted; 3 draining, 4 gone), dynamo_circuit_breaker_state (0
/// closed, 1 open, 2 half open) and dynamo_degradation_level.
std::string to_text(const Metrics& metrics, const Workers& workers,
                    const std::map<SetKey, QueueGauge>& queues, std::size_t level);

}  // namespace fo::route
