// The life of one engine as others see it: its state, the phases of its failovers, and where each
// change is reported: events, metrics, the log and the service manager.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "engine/gms_watch.h"
#include "engine/health.h"
#include "engine/metrics.h"
#include "engine/state.h"
#include "lock/failover_lock.h"
#include "loop/daemon.h"
#include "os/socket/status_fd.h"

namespace fo::engine {

/// A failover that made this engine active.
struct Failover {
  std::uint64_t generation = 0;
  /// In seconds since 1970.
  double active_at = 0;
  std::map<Phase, base::Duration> phases;
};

class LifeRecord {
 public:
  using Clock = base::Deadline::Clock;

  LifeRecord(const std::string& id, const std::vector<GmsPlace>& gms, const os::StatusFd& events,
             loop::Daemon& daemon, HealthRules rules);

  /// Enters the next state. Throws Error(kSoftware) if the event is not valid in this one.
  void step(LifeEvent event);
  /// Informs the service manager that this engine is ready.
  void report_ready() { daemon_.ready(); }
  /// Informs the service manager that this engine ends.
  void report_stopping() { daemon_.begin_stop(); }

  /// A lock was granted: the phases of a failover begin.
  void begin_failover(const lock::Grant& grant);
  void finish_phase(Phase phase, Clock::time_point begin);
  /// The engine is active.
  void finish_failover();
  /// The lock was released.
  void end_grant();

  [[nodiscard]] EngineState state() const { return state_; }
  /// When it was entered, in seconds since 1970.
  [[nodiscard]] double since() const { return since_; }
  /// 0 without the lock.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] const std::optional<Failover>& last_failover() const { return last_failover_; }
  Metrics& metrics() { return metrics_; }
  /// The answer to a probe; adds the state to `facts`.
  [[nodiscard]] HealthAnswer health(HealthFacts facts) const;

 private:
  const os::StatusFd& events_;
  loop::Daemon& daemon_;
  Metrics metrics_;
  HealthRules rules_;
  EngineState state_ = EngineState::kInit;
  double since_ = os::wall_seconds();
  Clock::time_point entered_ = Clock::now();
  std::uint64_t generation_ = 0;
  std::map<Phase, base::Duration> phases_;
  std::optional<Failover> last_failover_;
};

}  // namespace fo::engine
