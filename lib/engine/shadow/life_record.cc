#include "engine/shadow/life_record.h"

#include <utility>

#include "base/error.h"
#include "os/log.h"

namespace fo::engine {
namespace {

std::vector<std::pair<base::DeviceOrdinal, std::string>> places_of(
    const std::vector<GmsPlace>& gms) {
  std::vector<std::pair<base::DeviceOrdinal, std::string>> places;
  for (const GmsPlace& place : gms) places.emplace_back(place.device, place.tag);
  return places;
}

}  // namespace

LifeRecord::LifeRecord(const std::string& id, const std::vector<GmsPlace>& gms,
                       const os::StatusFd& events, loop::Daemon& daemon, HealthRules rules)
    : events_(events),
      daemon_(daemon),
      metrics_(id, places_of(gms), os::wall_seconds()),
      rules_(std::move(rules)) {}

void LifeRecord::step(LifeEvent event) {
  const std::optional<EngineState> next = next_state(state_, event);
  if (!next) {
    throw base::Error(base::ExitStatus::kSoftware,
                      "internal error: event " + std::to_string(static_cast<int>(event)) +
                          " is not valid in state " + base::quoted(state_name(state_)));
  }
  metrics_.enter(state_, *next, os::wall_seconds());
  os::log(os::LogLevel::kInfo, "{} -> {}", state_name(state_), state_name(*next));
  state_ = *next;
  since_ = os::wall_seconds();
  entered_ = Clock::now();
  events_.write("state", R"("state":")" + std::string(state_name(state_)) + "\"");
  daemon_.status(state_name(state_));
}

void LifeRecord::begin_failover(const lock::Grant& grant) {
  generation_ = grant.generation;
  phases_.clear();
  metrics_.set_lock_wait(grant.waited);
  metrics_.set_generation(generation_);
  events_.write("granted", R"("generation":)" + std::to_string(generation_));
  step(LifeEvent::kGranted);
}

void LifeRecord::finish_phase(Phase phase, Clock::time_point begin) {
  const base::Duration took = Clock::now() - begin;
  phases_[phase] = took;
  metrics_.observe(phase, took);
}

void LifeRecord::finish_failover() {
  last_failover_ = Failover{generation_, os::wall_seconds(), phases_};
  step(LifeEvent::kServing);
  daemon_.ready();
}

void LifeRecord::end_grant() {
  generation_ = 0;
  events_.write("released");
  step(LifeEvent::kHandedOver);
}

HealthAnswer LifeRecord::health(HealthFacts facts) const {
  facts.state = state_;
  facts.in_state = Clock::now() - entered_;
  facts.since = since_;
  return answer_health(rules_, facts);
}

}  // namespace fo::engine
