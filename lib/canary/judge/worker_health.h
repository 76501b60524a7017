// The health of one worker, as this canary concludes it from the findings of its checks and writes
// it in its verdicts. Pure except for now(); time and randomness are arguments. Faults are events
// of the table in fleet/health.h. A weak finding makes the worker suspicious until two checks have
// passed after the last one; weak findings never lead to a worse state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fleet/health.h"
#include "fleet/verdict.h"

namespace fo::canary {

/// The result of a check of a worker, after its repetitions.
enum class Finding {
  kPass,
  kNeutral,     // no result: the engine was busy, or the answer could not be compared
  kWeak,        // slow, or a vote without a majority
  kFault,       // down, hung, failed, drift, or a wrong token that was not repeated
  kConviction,  // wrong tokens by the vote of its set, or a fatal error of its GPU
};

/// One moment on both clocks.
struct Now {
  base::Duration steady;
  text::WallTime wall;
};
Now now();

/// The cause of the present health.
struct Cause {
  std::string reason = {};
  std::optional<fleet::Evidence> evidence = {};
};

class WorkerHealth {
 public:
  void apply(Finding finding, Cause cause, const Now& at, double random);
  /// An operator lifts the conviction.
  void acquit(const Now& at, double random);
  /// Applies the time that has passed, which may end a cool-down.
  void advance(const Now& at, double random);

  [[nodiscard]] fleet::HealthState state() const;
  /// The worker's own weight, 0 to 1, without regard to other workers.
  [[nodiscard]] double weight(base::Duration steady) const;
  [[nodiscard]] unsigned failed_probations() const { return table_.failed_probations(); }
  [[nodiscard]] bool is_convicted() const { return state() == fleet::HealthState::kConvicted; }
  /// Empty for a healthy worker.
  [[nodiscard]] const Cause& cause() const { return cause_; }
  /// The time of the last change of state.
  [[nodiscard]] text::WallTime since() const { return since_; }

  /// The state to keep over a restart.
  struct Saved {
    fleet::HealthState state = fleet::HealthState::kHealthy;
    unsigned failed_probations = 0;
    /// The end of the cool-down of an unhealthy worker.
    std::optional<text::WallTime> cool_down_until = {};
    text::WallTime since = {};
    Cause cause = {};
  };
  [[nodiscard]] Saved save(const Now& at) const;
  void restore(Saved saved, const Now& at);

 private:
  /// Applies `change` to the table and the weak suspicion, and updates the time and the cause of
  /// the state.
  template <typename Change>
  void change(const Now& at, const Change& change);

  fleet::Health table_;
  /// Number of passed checks that end a weak suspicion; 0 without a suspicion.
  std::uint64_t passes_needed_ = 0;
  Cause cause_;
  text::WallTime since_{};
};

}  // namespace fo::canary
