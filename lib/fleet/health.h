// The health of a worker, as one observer, such as a router or a canary, concludes it from the
// outcomes of the worker's requests. Pure: time, which must not decrease, and randomness are
// arguments.
//
//     state (weight)     success        fault           conviction   acquittal   time
//     healthy (1)        -              suspicious      convicted    -           -
//     suspicious (1/2)   2 in a row:    unhealthy (a)   convicted    -           -
//                        healthy
//     unhealthy (0)      -              -               convicted    -           cool-down over:
//                                                                                probation
//     probation (0,      5 in a row:    unhealthy,      convicted    -           lease expired:
//       one lease)       healthy (b)    n + 1                                    a fault
//     convicted (0)      -              -               -            probation   -
//
// (a) After 3 faults in a row, the one that made it suspicious included, or if over half of at
//     least 20 outcomes in 30 s are faults. The cool-down is 5 s * 2^n, randomly up to 25 % longer
//     or shorter, and at most 300 s. n is the number of failed probations, less one for each 10
//     minutes of health.
// (b) The weight then rises from 1/10 of the state's weight to all of it in 10 s.
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
inline constexpr std::array kHealthStates{HealthState::kHealthy, HealthState::kSuspicious,
                                          HealthState::kUnhealthy, HealthState::kProbation,
                                          HealthState::kConvicted};
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
  /// The largest part by which a cool-down is longer or shorter.
  double jitter = 0.25;
  std::uint64_t probation_successes = 5;
  /// The time for which the weight rises after a probation.
  base::Duration rise = std::chrono::seconds(10);
  /// The time in health after which one failed probation is forgotten.
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

  /// Sets the rules of later events. The state, the outcomes and the end of a cool-down are kept.
  void set_rules(const HealthRules& rules);

  /// Applies the time that has passed until `now`, then the event. `random` is uniform in [0, 1).
  void apply(HealthEvent event, base::Duration now, double random);

  [[nodiscard]] HealthState state() const { return state_; }
  /// The worker's share of requests relative to other workers: 0 to 1. In probation it is 0, and a
  /// request needs a lease.
  [[nodiscard]] double weight(base::Duration now) const;
  /// The weight that weights_of_set gives to a worker that stays in although its own weight is 0.
  [[nodiscard]] double panic_weight() const { return rules_.suspicious_weight; }
  /// The n of note (a).
  [[nodiscard]] unsigned failed_probations() const { return failed_probations_; }

  /// The state that an observer keeps when it restarts.
  struct Snapshot {
    HealthState state = HealthState::kHealthy;
    unsigned failed_probations = 0;
    /// The rest of the cool-down of an unhealthy worker.
    base::Duration cool_down{};
  };
  [[nodiscard]] Snapshot snapshot(base::Duration now) const;
  /// Continues with a saved state. Outcomes, a lease and a rise of the weight are not part of it.
  void restore(const Snapshot& snapshot, base::Duration now);

  /// Permits one request to a worker in probation, and returns the number of the lease; nullopt in
  /// any other state, and while another lease is in use. If end_lease() is not called until
  /// `deadline`, the lease expires, which is a fault.
  std::optional<std::uint64_t> take_lease(base::Duration deadline);
  /// Ends the lease, because its request has ended; the outcome, if it counts, is a separate event.
  /// A lease that has expired is ignored.
  void end_lease(std::uint64_t lease);

 private:
  // The outcomes of the last seconds, counted for each second.
  class Window {
   public:
    explicit Window(base::Duration time);
    /// Changes the length of the window, and keeps the outcomes that are within it.
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
  /// The time when the last probation was passed; nullopt once the weight has risen.
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

/// A registered worker of a set, with its own health. A router leaves out workers that it can't
/// reach; a canary counts them.
struct SetMember {
  HealthState state = HealthState::kHealthy;
  double weight = 1;
  unsigned failed_probations = 0;
  double panic_weight = HealthRules{}.suspicious_weight;
};

struct SetWeights {
  /// Weights in the order of the members.
  std::vector<double> weights;
  /// The number of members that stay in although their own weight is 0. If it is more than 0, the
  /// set is in a panic.
  std::size_t kept_in = 0;
};

inline constexpr double kMaxOut = 0.5;

/// Convicted members have a weight of 0. Of the others, at most the part `max_out_part`, rounded
/// down, has a weight of 0, and at least one member is in. If more have an own weight of 0, the
/// fault is probably elsewhere: the least bad of them stay in, with their panic_weight.
SetWeights weights_of_set(std::span<const SetMember> members, double max_out_part = kMaxOut);

}  // namespace fo::fleet
