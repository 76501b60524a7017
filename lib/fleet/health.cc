#include "fleet/health.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fo::fleet {
namespace {

using std::chrono::seconds;

// In the order of HealthState.
constexpr std::array<std::string_view, 5> kStateNames{"healthy", "suspicious", "unhealthy",
                                                      "probation", "convicted"};
// Limits of n. At the first one, the standard rules reach their longest cool-down.
constexpr unsigned kFailedProbations = 6;
constexpr unsigned kMaxFailedProbations = 30;
// The weight with which a worker begins after a probation.
constexpr double kFirstWeight = 0.1;

}  // namespace

std::string_view to_string(HealthState state) {
  return kStateNames.at(static_cast<std::size_t>(state));
}

std::optional<HealthState> parse_health_state(std::string_view text) {
  const auto* const found = std::find(kStateNames.begin(), kStateNames.end(), text);
  if (found == kStateNames.end()) return std::nullopt;
  return static_cast<HealthState>(found - kStateNames.begin());
}

Health::Window::Window(base::Duration time)
    : seconds_(static_cast<std::size_t>(
          std::max<std::int64_t>(std::chrono::ceil<seconds>(time).count(), 1))) {}

std::size_t Health::Window::place_of(std::int64_t number) const {
  const auto size = static_cast<std::int64_t>(seconds_.size());
  return static_cast<std::size_t>((number % size + size) % size);
}

void Health::Window::set_time(base::Duration time) {
  Window other(time);
  for (const Second& second : seconds_) {
    Second& place = other.seconds_[other.place_of(second.number)];
    if (second.number > place.number) place = second;
  }
  *this = std::move(other);
}

void Health::Window::add(base::Duration now, bool is_fault) {
  const std::int64_t number = std::chrono::floor<seconds>(now).count();
  Second& second = seconds_[place_of(number)];
  if (second.number != number) second = {.number = number};
  ++second.outcomes;
  if (is_fault) ++second.faults;
}

bool Health::Window::is_mostly_faults(base::Duration now, std::uint64_t outcomes,
                                      double share) const {
  const std::int64_t number = std::chrono::floor<seconds>(now).count();
  std::uint64_t all = 0;
  std::uint64_t faults = 0;
  for (const Second& second : seconds_) {
    if (second.number <= number - static_cast<std::int64_t>(seconds_.size())) continue;
    all += second.outcomes;
    faults += second.faults;
  }
  return all >= outcomes && static_cast<double>(faults) > share * static_cast<double>(all);
}

void Health::set_rules(const HealthRules& rules) {
  rules_ = rules;
  failed_probations_ = std::min(failed_probations_, max_failed_probations());
  window_.set_time(rules.window);
}

void Health::apply(HealthEvent event, base::Duration now, double random) {
  on_time(now, random);
  switch (event) {
    case HealthEvent::kSuccess:
    case HealthEvent::kFault:
      on_outcome(event == HealthEvent::kFault, now, random);
      break;
    case HealthEvent::kConviction:
      enter(HealthState::kConvicted, now);
      break;
    case HealthEvent::kAcquittal:
      if (state_ == HealthState::kConvicted) enter(HealthState::kProbation, now);
      break;
    case HealthEvent::kTime:
      break;
  }
}

void Health::on_time(base::Duration now, double random) {
  if (rising_since_ && now - *rising_since_ >= rules_.rise) rising_since_.reset();
  if (state_ == HealthState::kHealthy) {
    if (!healthy_since_) healthy_since_ = now;
    while (now - *healthy_since_ >= rules_.forget && failed_probations_ > 0) {
      *healthy_since_ += rules_.forget;
      --failed_probations_;
    }
  } else if (state_ == HealthState::kUnhealthy && now >= cool_down_ends_) {
    enter(HealthState::kProbation, now);
  } else if (lease_ && now >= lease_->deadline) {
    on_probation_outcome(true, now, random);
  }
}

void Health::on_outcome(bool is_fault, base::Duration now, double random) {
  if (state_ == HealthState::kProbation) return on_probation_outcome(is_fault, now, random);
  if (state_ != HealthState::kHealthy && state_ != HealthState::kSuspicious) return;
  window_.add(now, is_fault);
  if (!is_fault) {
    faults_in_row_ = 0;
    if (state_ == HealthState::kSuspicious && ++successes_in_row_ >= rules_.suspicious_successes) {
      enter(HealthState::kHealthy, now);
    }
    return;
  }
  const bool was_healthy = state_ == HealthState::kHealthy;
  if (was_healthy) enter(HealthState::kSuspicious, now);
  successes_in_row_ = 0;
  const bool is_mostly_faults =
      !was_healthy && rules_.window_outcomes > 0 &&
      window_.is_mostly_faults(now, rules_.window_outcomes, rules_.fault_share);
  if (++faults_in_row_ >= rules_.faults_in_row || is_mostly_faults) become_unhealthy(now, random);
}

void Health::on_probation_outcome(bool is_fault, base::Duration now, double random) {
  if (is_fault) {
    failed_probations_ = std::min(failed_probations_ + 1, max_failed_probations());
    become_unhealthy(now, random);
  } else if (++successes_in_row_ >= rules_.probation_successes) {
    window_ = Window(rules_.window);
    enter(HealthState::kHealthy, now);
    rising_since_ = now;
  }
}

void Health::enter(HealthState state, base::Duration now) {
  state_ = state;
  successes_in_row_ = faults_in_row_ = 0;
  // A fault does not end the rise of the weight, because the worker would then get more requests
  // than before the fault.
  const bool is_in = state == HealthState::kHealthy || state == HealthState::kSuspicious;
  if (!is_in) rising_since_.reset();
  healthy_since_.reset();
  if (state == HealthState::kHealthy) healthy_since_ = now;
  lease_.reset();
}

// Above this n, the cool-down does not get longer.
unsigned Health::max_failed_probations() const {
  unsigned n = kFailedProbations;
  while (n < kMaxFailedProbations && rules_.cool_down * (1U << n) < rules_.max_cool_down) ++n;
  return n;
}

void Health::become_unhealthy(base::Duration now, double random) {
  enter(HealthState::kUnhealthy, now);
  const double factor = (1U << failed_probations_) * (1 + rules_.jitter * (2 * random - 1));
  using Seconds = std::chrono::duration<double>;
  const Seconds cool_down = std::min<Seconds>(rules_.cool_down * factor, rules_.max_cool_down);
  cool_down_ends_ = now + std::chrono::duration_cast<base::Duration>(cool_down);
}

double Health::weight(base::Duration now) const {
  double risen = 1;
  if (rising_since_ && now - *rising_since_ < rules_.rise) {
    const std::chrono::duration<double> time = now - *rising_since_;
    risen = std::max(kFirstWeight, time / rules_.rise);
  }
  if (state_ == HealthState::kHealthy) return risen;
  return state_ == HealthState::kSuspicious ? risen * rules_.suspicious_weight : 0;
}

Health::Snapshot Health::snapshot(base::Duration now) const {
  Snapshot snapshot{.state = state_, .failed_probations = failed_probations_};
  if (state_ == HealthState::kUnhealthy) {
    snapshot.cool_down = std::max(cool_down_ends_ - now, base::Duration(0));
  }
  return snapshot;
}

void Health::restore(const Snapshot& snapshot, base::Duration now) {
  window_ = Window(rules_.window);
  failed_probations_ = std::min(snapshot.failed_probations, max_failed_probations());
  enter(snapshot.state, now);
  rising_since_.reset();
  cool_down_ends_ = now + std::min(snapshot.cool_down, rules_.max_cool_down);
}

std::optional<std::uint64_t> Health::take_lease(base::Duration deadline) {
  if (state_ != HealthState::kProbation || lease_) return std::nullopt;
  lease_ = Lease{.number = ++leases_, .deadline = deadline};
  return lease_->number;
}

void Health::end_lease(std::uint64_t lease) {
  if (lease_ && lease_->number == lease) lease_.reset();
}

SetWeights weights_of_set(std::span<const SetMember> members, double max_out_part) {
  SetWeights result;
  std::size_t unconvicted = 0;
  // The indexes of the members that are not convicted and whose own weight is 0.
  std::vector<std::size_t> suspects;
  for (const SetMember& member : members) {
    if (member.state != HealthState::kConvicted) {
      ++unconvicted;
      if (member.weight <= 0) suspects.push_back(result.weights.size());
    }
    result.weights.push_back(member.state == HealthState::kConvicted ? 0 : member.weight);
  }
  const auto part = static_cast<std::size_t>(static_cast<double>(unconvicted) * max_out_part);
  const std::size_t max_out = std::min(part, std::max<std::size_t>(unconvicted, 1) - 1);
  if (suspects.size() <= max_out) return result;
  // A worker in probation is less bad than one in its cool-down.
  const auto badness = [&](std::size_t index) {
    const SetMember& member = members[index];
    return std::tuple(member.state != HealthState::kProbation, member.failed_probations, index);
  };
  std::sort(suspects.begin(), suspects.end(),
            [&](std::size_t a, std::size_t b) { return badness(a) < badness(b); });
  result.kept_in = suspects.size() - max_out;
  for (std::size_t i = 0; i < result.kept_in; ++i) {
    result.weights[suspects[i]] = members[suspects[i]].panic_weight;
  }
  return result;
}

}  // namespace fo::fleet
