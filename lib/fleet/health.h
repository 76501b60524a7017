// What one observer, such as a router or a canary, makes of a worker from the outcomes of its
// requests. Pure: time, which must not go back, and randomness are arguments.
//
//     state (weight)     success        fault           conviction   acquittal   time
//     healthy (1)        -              suspicious      convicted    -           -
//     suspicious (1/2)   2 in a row:    unhealthy (a)   convicted    -           -
//                        healthy
//     unhealthy (0)      -              -               convicted    -           after the
//     cool-down:
//                                                                                probation
//     probation (0,      5 in a row:    unhealthy,      convicted    -           lease expired:
//       one lease)       healthy (b)    n + 1                                    a fault
//     convicted (0)      -              -               -            probation   -
//
// (a) After 3 faults in a row, with that which made it suspicious, or when over half of at least 20
//     outcomes in 30 s are faults. The cool-down is 5 s * 2^n, a random part of 25 % more or less,
//     and at most 300 s; n is the number of failed probations, less one for each 10 minutes
//     healthy.
// (b) The weight then rises from 1/10 of the state's to all of it in 10 s.
//
// HealthRules has these numbers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace fo::fleet {

enum class HealthState { kHealthy, kSuspicious, kUnhealthy, kProbation, kConvicted };
std::string_view to_string(HealthState state);
std::optional<HealthState> parse_health_state(std::string_view text);

enum class HealthEvent {
  kSuccess,
  kFault,
  kConviction,  // its answers are wrong, or its hardware has failed
  kAcquittal,   // an operator lifts the conviction
  kTime,        // nothing but time has passed
};

struct HealthRules {
  double suspicious_weight = 0.5;
  std::uint64_t suspicious_successes = 2;
  std::uint64_t faults_in_row = 3;
  /// The share of faults in `window`, which is rounded up to seconds, counts if there were at least
  /// this many outcomes; 0: it never counts.
  std::uint64_t window_outcomes = 20;
  base::Duration window = std::chrono::seconds(30);
  /// More than this share makes the worker unhealthy.
  double fault_share = 0.5;
  base::Duration cool_down = std::chrono::seconds(5);
  base::Duration max_cool_down = std::chrono::seconds(300);
  /// The part by which a cool-down is longer or shorter.
  double jitter = 0.25;
  std::uint64_t probation_successes = 5;
  /// The time in which the weight rises after a probation.
  base::Duration rise = std::chrono::seconds(10);
  /// The time of health for which a failed probation is forgotten.
  base::Duration forget = std::chrono::minutes(10);
  friend bool operator==(const HealthRules&, const HealthRules&) = default;
};

/// The usual circuit breaker: it opens after 3 faults in a row, and one request closes it 60 s
/// later.
inline constexpr HealthRules kClassicBreaker{
    .suspicious_weight = 1,
    .suspicious_successes = 1,
    .window_outcomes = 0,
    .cool_down = std::chrono::seconds(60),
    .max_cool_down = std::chrono::seconds(60),
    .jitter = 0,
    .probation_successes = 1,
    .rise = base::Duration(0),
};

class Health {
 public:
  explicit Health(const HealthRules& rules = {}) : rules_(rules), window_(rules.window) {}

  /// Sets the rules of later events. The state and the outcomes stay, and so does the end of a
  /// cool-down.
  void set_rules(const HealthRules& rules);

  /// Applies the time until `now`, then the event. `random` is uniform in [0, 1).
  void apply(HealthEvent event, base::Duration now, double random);

  [[nodiscard]] HealthState state() const { return state_; }
  /// The worker's part of requests, in relation to others: 0 to 1. In probation it is 0, and a
  /// request needs a lease.
  [[nodiscard]] double weight(base::Duration now) const;
  /// The weight of a worker that stays in although its own weight is 0.
  [[nodiscard]] double panic_weight() const { return rules_.suspicious_weight; }
  /// The n of the cool-down.
  [[nodiscard]] unsigned failed_probations() const { return failed_probations_; }

  /// The state that an observer keeps when it restarts.
  struct Snapshot {
    HealthState state = HealthState::kHealthy;
    unsigned failed_probations = 0;
    /// The rest of the cool-down of an unhealthy worker.
    base::Duration cool_down{};
  };
  [[nodiscard]] Snapshot snapshot(base::Duration now) const;
  /// Continues with an earlier state, without its outcomes, its lease and its rise.
  void restore(const Snapshot& snapshot, base::Duration now);

  /// Permits one request to a worker in probation. nullopt in any other state, and while another
  /// lease is out. Without end_lease() until `deadline`, the worker has a fault.
  std::optional<std::uint64_t> take_lease(base::Duration deadline);
  /// The request has ended; its outcome, if it counts, is an event of its own. Leases that are over
  /// already are ignored.
  void end_lease(std::uint64_t lease);

 private:
  // Outcomes of a time, by seconds.
  class Window {
   public:
    explicit Window(base::Duration time);
    /// Keeps the outcomes that are in the new time.
    void set_time(base::Duration time);
    void add(base::Duration now, bool is_fault);
    /// Whether there are at least `outcomes`, more than a `share` of them faults.
    [[nodiscard]] bool is_mostly_faults(base::Duration now, std::uint64_t outcomes,
                                        double share) const;

   private:
    struct Second {
      std::int64_t number = std::numeric_limits<std::int64_t>::min();
      std::uint64_t outcomes = 0;
      std::uint64_t faults = 0;
    };
    [[nodiscard]] std::size_t place_of(std::int64_t number) const;

    std::vector<Second> seconds_;
  };

  void on_time(base::Duration now, double random);
  void on_outcome(bool is_fault, base::Duration now, double random);
  void on_probation_outcome(bool is_fault, base::Duration now, double random);
  void enter(HealthState state, base::Duration now);
  void become_unhealthy(base::Duration now, double random);
  [[nodiscard]] unsigned max_failed_probations() const;

  HealthRules rules_;
  HealthState state_ = HealthState::kHealthy;
  std::uint64_t successes_in_row_ = 0;
  std::uint64_t faults_in_row_ = 0;
  Window window_;
  unsigned failed_probations_ = 0;
  base::Duration cool_down_ends_{0};
  /// When the last probation was passed.
  std::optional<base::Duration> rising_since_;
  /// The time when the worker became healthy, or when n was last reduced.
  std::optional<base::Duration> healthy_since_;
  struct Lease {
    std::uint64_t number;
    base::Duration deadline;
  };
  std::optional<Lease> lease_;
  std::uint64_t leases_ = 0;
};

/// A worker of a set, as far as its own health decides. Workers that are not registered any more
/// are not members. A router leaves out those that it can't reach, too; a canary counts them.
struct SetMember {
  HealthState state = HealthState::kHealthy;
  double weight = 1;
  unsigned failed_probations = 0;
  double panic_weight = HealthRules{}.suspicious_weight;
};

struct SetWeights {
  /// Weights in the order of the members.
  std::vector<double> weights;
  /// Number of members that stay in although their own weight is 0; more than 0 is a panic.
  std::size_t kept_in = 0;
};

inline constexpr double kMaxOut = 0.5;

/// At most this part of the members that are not convicted, rounded down, have a weight of 0: if
/// more of them are suspected, the fault is probably elsewhere, and the least bad stay in, with
/// their panic_weight. One of them is always in, and a convicted one never.
SetWeights weights_of_set(std::span<const SetMember> members, double max_out_part = kMaxOut);

}  // namespace fo::fleet
