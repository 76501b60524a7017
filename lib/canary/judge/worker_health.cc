#include "canary/judge/worker_health.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fo::canary {
namespace {

using fleet::HealthEvent;
using fleet::HealthState;

}  // namespace

Now now() {
  return {.steady = std::chrono::steady_clock::now().time_since_epoch(),
          .wall = std::chrono::system_clock::now()};
}

template <typename Change>
void WorkerHealth::change(const Now& at, const Change& change) {
  const HealthState before = state();
  change();
  if (state() != before || since_ == text::WallTime()) since_ = at.wall;
  if (state() == HealthState::kHealthy) cause_ = {};
}

void WorkerHealth::apply(Finding finding, Cause cause, const Now& at, double random) {
  // Only an acquittal changes a convicted worker; its evidence is kept.
  if (is_convicted()) return;
  change(at, [&] {
    switch (finding) {
      case Finding::kPass:
        table_.apply(HealthEvent::kSuccess, at.steady, random);
        if (passes_needed_ > 0) --passes_needed_;
        return;
      case Finding::kNeutral:
        table_.apply(HealthEvent::kTime, at.steady, random);
        return;
      case Finding::kWeak:
        table_.apply(HealthEvent::kTime, at.steady, random);
        passes_needed_ = fleet::HealthRules{}.suspicious_successes;
        // A worse state keeps its own cause.
        if (table_.state() == HealthState::kUnhealthy ||
            table_.state() == HealthState::kProbation) {
          return;
        }
        break;
      case Finding::kFault:
        table_.apply(HealthEvent::kFault, at.steady, random);
        break;
      case Finding::kConviction:
        table_.apply(HealthEvent::kConviction, at.steady, random);
        break;
    }
    cause_ = std::move(cause);
  });
}

void WorkerHealth::acquit(const Now& at, double random) {
  if (!is_convicted()) return;
  change(at, [&] {
    table_.apply(HealthEvent::kAcquittal, at.steady, random);
    passes_needed_ = 0;
    cause_ = {.reason = "acquitted by an operator"};
  });
}

void WorkerHealth::advance(const Now& at, double random) {
  change(at, [&] { table_.apply(HealthEvent::kTime, at.steady, random); });
}

HealthState WorkerHealth::state() const {
  const HealthState state = table_.state();
  return state == HealthState::kHealthy && passes_needed_ > 0 ? HealthState::kSuspicious : state;
}

double WorkerHealth::weight(base::Duration steady) const {
  const double weight = table_.weight(steady);
  return passes_needed_ > 0 ? std::min(weight, fleet::HealthRules{}.suspicious_weight) : weight;
}

WorkerHealth::Saved WorkerHealth::save(const Now& at) const {
  const fleet::Health::Snapshot table = table_.snapshot(at.steady);
  Saved saved{.state = state(),
              .failed_probations = table.failed_probations,
              .since = since_,
              .cause = cause_};
  if (table.state == HealthState::kUnhealthy) {
    saved.cool_down_until =
        at.wall + std::chrono::duration_cast<text::WallTime::duration>(table.cool_down);
  }
  return saved;
}

void WorkerHealth::restore(Saved saved, const Now& at) {
  fleet::Health::Snapshot table{.state = saved.state, .failed_probations = saved.failed_probations};
  if (saved.cool_down_until) {
    table.cool_down = std::max(base::Duration(*saved.cool_down_until - at.wall), base::Duration(0));
  }
  table_.restore(table, at.steady);
  passes_needed_ = 0;
  cause_ = std::move(saved.cause);
  since_ = saved.since;
}

}  // namespace fo::canary
