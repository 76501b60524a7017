// The queue of a set of workers: requests that wait until a worker has room. Its tiers share the
// tokens that workers take; within a tier, the request with the earliest deadline is first. Pure:
// time, which must not go back, and randomness are arguments. Every call costs O(log n) in the
// requests, apart from those that it removes.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/degradation.h"

namespace fo::route {

struct QueueLimits {
  std::uint64_t requests = 10'000;
  /// An empty queue accepts a request of any size.
  std::uint64_t tokens = 50'000'000;
  /// A request must be taken within this time, or until its own deadline if that is earlier. This
  /// decides its place, and whether it is accepted. The caller cancels it when the time is over.
  base::Duration timeout = std::chrono::seconds(30);
  /// The shares of the tiers. A tier that does not use its share leaves it to the others.
  std::array<double, plan::kTiers> shares{4, 2, 1};
  /// A client's short deadline does not move its request forward beyond this part of the timeout.
  double min_order = 0.25;
  /// Limit of retry_after(), and its random part.
  base::Duration max_retry_after = std::chrono::seconds(60);
  double retry_after_spread = 0.2;
};

struct QueuedRequest {
  /// Chosen by the caller, and unique in the queue.
  std::uint64_t id = 0;
  std::size_t tier = plan::kPremium;
  /// Tokens of the prompt and of the expected answer.
  std::uint64_t tokens = 0;
  /// The client's deadline.
  base::Duration deadline = base::Duration::max();
};

struct QueueLoad {
  std::size_t requests = 0;
  std::uint64_t tokens = 0;
};

class SetQueue {
 public:
  explicit SetQueue(const QueueLimits& limits = {});

  /// Sets the limits for requests that arrive from now on; those in the queue stay.
  void set_limits(const QueueLimits& limits);

  /// Sets the share of each tier, 0 to refuse it, and the factor of the timeout, for requests that
  /// arrive from now on. Requests of a tier that is refused now keep its share until they are
  /// taken.
  void set_level(const plan::DegradationSetting& setting) { level_ = setting; }

  enum class Answer {
    kQueued,
    kTierRefused,
    kTooLate,  // its predicted wait is longer than its deadline and the timeout allow
    kFull,
  };
  struct Added {
    Answer answer = Answer::kQueued;
    /// In a full queue, the last requests of a tier that has more than its share are removed for a
    /// tier that has less.
    std::vector<std::uint64_t> removed = {};
  };
  /// What waits elsewhere counts towards the limits, too.
  Added add(const QueuedRequest& request, base::Duration now, const QueueLoad& elsewhere = {});

  /// The next request. nullopt if the queue is empty.
  [[nodiscard]] std::optional<QueuedRequest> head() const;
  /// Removes the head, which must exist: a worker gets it.
  QueuedRequest take(base::Duration now);

  /// The tier that is served next, of those with requests in the queue and those in `others`;
  /// nullopt if there is none. Without others, it is the tier of the head.
  [[nodiscard]] std::optional<std::size_t> next_tier(
      const std::array<bool, plan::kTiers>& others = {}) const;
  /// To be called when a worker gets a request that is not in the queue: its tokens count as served
  /// to the tier.
  void charge(std::size_t tier, std::uint64_t tokens);

  /// Removes a request. False if the queue does not have it.
  bool cancel(std::uint64_t id, base::Duration now);

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] std::uint64_t tokens(std::size_t tier) const { return tiers_[tier].tokens; }
  /// Returns the arrival of its oldest request.
  [[nodiscard]] std::optional<base::Duration> oldest_arrival() const;

  /// The wait of a request that is the last of its tier, at the present pace; 0 while the pace is
  /// unknown, because no request has had to wait lately.
  [[nodiscard]] base::Duration predicted_wait(std::size_t tier) const;
  /// Returns the Retry-After of a refusal: the predicted wait, a random part more or less, at least
  /// 1 s. `random` is uniform in [0, 1).
  [[nodiscard]] base::Duration retry_after(std::size_t tier, double random) const {
    return retry_after(predicted_wait(tier), random);
  }
  /// The same for a wait of `predicted`.
  [[nodiscard]] base::Duration retry_after(base::Duration predicted, double random) const;
  /// Makes the pace unknown until it is measured again. To be called when a worker has joined, or
  /// accepts requests again: the pace that was measured without it would refuse requests that it
  /// can serve in time.
  void forget_pace();

 private:
  struct Place {
    base::Duration order;
    std::uint64_t number;
    std::uint64_t id;
    auto operator<=>(const Place&) const = default;
  };
  struct Entry {
    QueuedRequest request;
    Place place;
    base::Duration arrived;
  };
  struct Tier {
    std::set<Place> places;
    std::uint64_t tokens = 0;
    /// Tokens by slices of the order, to add up those before a place.
    std::map<std::int64_t, std::uint64_t> slices;
    /// The tokens that the tier has been served, divided by its share: the least is served next
    /// (start-time fair queueing; P. Goyal and others, SIGCOMM 1996).
    double served = 0;
  };

  [[nodiscard]] double share(std::size_t tier) const;
  [[nodiscard]] std::int64_t slice_of(base::Duration order) const;
  [[nodiscard]] base::Duration wait_behind(std::uint64_t tokens, std::size_t tier) const;
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> removals_for(
      const QueuedRequest& request, const QueueLoad& elsewhere) const;
  void insert(QueuedRequest request, base::Duration order, base::Duration arrived);
  void erase(std::uint64_t id);
  void measure(base::Duration now);

  QueueLimits limits_;
  plan::DegradationSetting level_ = plan::kDegradationLevels[0].setting;
  std::array<Tier, plan::kTiers> tiers_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::set<std::pair<base::Duration, std::uint64_t>> by_arrival_;
  std::uint64_t all_tokens_ = 0;
  std::uint64_t numbers_ = 0;
  double served_ = 0;

  // The pace: tokens of requests that waited, and the time in which there were any. Both fade, also
  // while the queue is empty.
  double taken_tokens_ = 0;
  double waited_seconds_ = 0;
  std::optional<base::Duration> measured_at_;
};

}  // namespace fo::route
