#include "route/queue/set_queue.h"

#include <algorithm>
#include <cmath>

namespace fo::route {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kSlices = 64;
// A request that waited for less did not wait for room.
constexpr base::Duration kNoWait = std::chrono::milliseconds(10);
// Older measurements of the pace fade in about this time; shorter ones mean nothing.
constexpr Seconds kPaceTime{10};
constexpr Seconds kMinPaceTime{1};
constexpr Seconds kMaxWait{24 * 3600};
constexpr Seconds kMinRetryAfter{1};

}  // namespace

SetQueue::SetQueue(const QueueLimits& limits) : limits_(limits) {}

void SetQueue::set_limits(const QueueLimits& limits) {
  limits_ = limits;
  // The width of a slice follows from the timeout.
  for (Tier& tier : tiers_) {
    tier.slices.clear();
    for (const Place& place : tier.places) {
      tier.slices[slice_of(place.order)] += entries_.at(place.id).request.tokens;
    }
  }
}

double SetQueue::share(std::size_t tier) const {
  const double admitted = level_.admitted_share[tier];
  return limits_.shares[tier] * (admitted > 0 ? admitted : 1);
}

std::int64_t SetQueue::slice_of(base::Duration order) const {
  return order / std::max(limits_.timeout / kSlices, base::Duration(1));
}

SetQueue::Added SetQueue::add(const QueuedRequest& request, base::Duration now,
                              const QueueLoad& elsewhere) {
  measure(now);
  if (level_.admitted_share[request.tier] <= 0) return {.answer = Answer::kTierRefused};
  const auto timeout =
      std::chrono::duration_cast<base::Duration>(limits_.timeout * level_.deadline_factor);
  const base::Duration expires = std::min(request.deadline, now + timeout);
  const auto min_order = std::chrono::duration_cast<base::Duration>(timeout * limits_.min_order);
  const base::Duration order = std::max(expires, now + min_order);
  const std::int64_t slice = slice_of(order);
  std::uint64_t before = 0;
  for (const auto& [number, tokens] : tiers_[request.tier].slices) {
    if (number > slice) break;
    before += tokens;
  }
  if (expires <= now || wait_behind(before, request.tier) > expires - now) {
    return {.answer = Answer::kTooLate};
  }
  const auto removals = removals_for(request, elsewhere);
  if (!removals) return {.answer = Answer::kFull};
  for (const std::uint64_t id : *removals) erase(id);
  insert(request, order, now);
  return {.answer = Answer::kQueued, .removed = *removals};
}

// The requests without which there is room for this one; nullopt if none of them has more than the
// share of its tier.
std::optional<std::vector<std::uint64_t>> SetQueue::removals_for(const QueuedRequest& request,
                                                                 const QueueLoad& elsewhere) const {
  std::vector<std::uint64_t> removals;
  std::array<double, plan::kTiers> tokens{};
  std::array<std::set<Place>::const_reverse_iterator, plan::kTiers> last;
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
    tokens[tier] = static_cast<double>(tiers_[tier].tokens);
    last[tier] = tiers_[tier].places.rbegin();
  }
  std::size_t requests = entries_.size() + elsewhere.requests;
  std::uint64_t all = all_tokens_ + elsewhere.tokens;
  while (requests > 0 && (requests >= limits_.requests || all + request.tokens > limits_.tokens)) {
    const auto used = [&](std::size_t tier) { return tokens[tier] / share(tier); };
    std::size_t most = request.tier;
    double most_used = (tokens[most] + static_cast<double>(request.tokens)) / share(most);
    for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
      if (tier != request.tier && used(tier) > most_used) {
        most = tier;
        most_used = used(tier);
      }
    }
    if (most == request.tier) return std::nullopt;
    const Entry& entry = entries_.at(last[most]->id);
    removals.push_back(entry.request.id);
    ++last[most];
    tokens[most] -= static_cast<double>(entry.request.tokens);
    all -= entry.request.tokens;
    --requests;
  }
  return removals;
}

void SetQueue::insert(QueuedRequest request, base::Duration order, base::Duration arrived) {
  // Without tokens, a request would be free, and its slice could not be found.
  request.tokens = std::max<std::uint64_t>(request.tokens, 1);
  Tier& tier = tiers_[request.tier];
  // A tier collects no claim while it is empty.
  if (tier.places.empty()) tier.served = std::max(tier.served, served_);
  const Place place{.order = order, .number = ++numbers_, .id = request.id};
  tier.places.insert(place);
  tier.tokens += request.tokens;
  tier.slices[slice_of(order)] += request.tokens;
  all_tokens_ += request.tokens;
  by_arrival_.emplace(arrived, request.id);
  entries_.emplace(request.id, Entry{request, place, arrived});
}

void SetQueue::erase(std::uint64_t id) {
  const auto found = entries_.find(id);
  const Entry& entry = found->second;
  Tier& tier = tiers_[entry.request.tier];
  tier.places.erase(entry.place);
  tier.tokens -= entry.request.tokens;
  all_tokens_ -= entry.request.tokens;
  const auto slice = tier.slices.find(slice_of(entry.place.order));
  slice->second -= entry.request.tokens;
  if (slice->second == 0) tier.slices.erase(slice);
  by_arrival_.erase({entry.arrived, id});
  entries_.erase(found);
}

std::optional<std::size_t> SetQueue::next_tier(const std::array<bool, plan::kTiers>& others) const {
  std::optional<std::size_t> next;
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
    if (tiers_[tier].places.empty() && !others[tier]) continue;
    if (!next || tiers_[tier].served < tiers_[*next].served) next = tier;
  }
  return next;
}

void SetQueue::charge(std::size_t tier, std::uint64_t tokens) {
  served_ = std::max(served_, tiers_[tier].served);
  // A tier collects no claim while its requests cannot be served, either.
  tiers_[tier].served =
      served_ + static_cast<double>(std::max<std::uint64_t>(tokens, 1)) / share(tier);
}

std::optional<QueuedRequest> SetQueue::head() const {
  const std::optional<std::size_t> tier = next_tier();
  if (!tier) return std::nullopt;
  return entries_.at(tiers_[*tier].places.begin()->id).request;
}

QueuedRequest SetQueue::take(base::Duration now) {
  measure(now);
  const Entry& entry = entries_.at(tiers_[*next_tier()].places.begin()->id);
  const QueuedRequest request = entry.request;
  if (now - entry.arrived >= kNoWait) taken_tokens_ += static_cast<double>(request.tokens);
  charge(request.tier, request.tokens);
  erase(request.id);
  return request;
}

bool SetQueue::cancel(std::uint64_t id, base::Duration now) {
  measure(now);
  if (!entries_.contains(id)) return false;
  erase(id);
  return true;
}

std::optional<base::Duration> SetQueue::oldest_arrival() const {
  if (by_arrival_.empty()) return std::nullopt;
  return by_arrival_.begin()->first;
}

void SetQueue::forget_pace() {
  taken_tokens_ = 0;
  waited_seconds_ = 0;
}

// Adds the time until now to the pace, if the queue had requests in it.
void SetQueue::measure(base::Duration now) {
  const Seconds time = now - measured_at_.value_or(now);
  measured_at_ = now;
  const double kept = std::exp(-time / kPaceTime);
  taken_tokens_ *= kept;
  waited_seconds_ *= kept;
  if (!entries_.empty()) waited_seconds_ += time.count();
}

base::Duration SetQueue::wait_behind(std::uint64_t tokens, std::size_t tier) const {
  if (taken_tokens_ <= 0 || waited_seconds_ < kMinPaceTime.count()) return base::Duration(0);
  const auto own = static_cast<double>(tokens);
  double before = own;
  for (std::size_t other = 0; other < plan::kTiers; ++other) {
    if (other == tier) continue;
    // Another tier is served beside this one by their shares, until it is empty.
    before += std::min(static_cast<double>(tiers_[other].tokens), own * share(other) / share(tier));
  }
  const Seconds wait{before * waited_seconds_ / taken_tokens_};
  return std::chrono::duration_cast<base::Duration>(std::min(wait, kMaxWait));
}

base::Duration SetQueue::predicted_wait(std::size_t tier) const {
  return wait_behind(tiers_[tier].tokens, tier);
}

base::Duration SetQueue::retry_after(base::Duration predicted, double random) const {
  const double factor = 1 + limits_.retry_after_spread * (2 * random - 1);
  const Seconds wait = Seconds(predicted) * factor;
  return std::chrono::duration_cast<base::Duration>(
      std::clamp(wait, kMinRetryAfter, Seconds(limits_.max_retry_after)));
}

}  // namespace fo::route
