// Limits the share of the workers' time that repeats the work of a failed worker, so that the death
// of one worker does not overload the others. Pure: time, which must not go back, is an argument.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/units.h"

namespace fo::route {

struct BudgetSettings {
  /// The limit of answers that are resumed at a time: this part of the slots, but at least
  /// `min_resumes`.
  double resumes = 0.2;
  std::uint64_t min_resumes = 3;
  /// The limit of retries: this part of the requests in the last `time`, but at least
  /// `min_retries`.
  double retries = 0.2;
  std::uint64_t min_retries = 10;
  base::Duration time = std::chrono::seconds(10);
  /// The limit of retries of one request.
  std::uint64_t max_retries_per_request = 2;
};

/// The answers of a set that are resumed at a time: by default at most a fifth of the slots of its
/// workers, but at least three. The others wait: the highest tier is first, then the earliest
/// deadline.
class ResumeBudget {
 public:
  /// The number of answers that may be resumed at a time by workers with so many slots.
  static std::size_t max_running(std::uint64_t slots, const BudgetSettings& settings = {});

  /// Sets the number of slots of the set's workers. When it falls, resumes that have begun go on.
  void set_slots(std::uint64_t slots, const BudgetSettings& settings = {});

  /// Adds an answer that waits to be resumed. Its number is unique among those here.
  void add(std::uint64_t answer, std::size_t tier, base::Duration deadline);
  /// Calls `begin` for the waiting answers, in order, until the budget is used up. `begin` returns
  /// false if no worker that may resume the answer has room. After `max_failures` of these, the
  /// search ends, and the next call goes on there. An answer that has begun counts until remove().
  void begin_next(const std::function<bool(std::uint64_t answer)>& begin, std::size_t max_failures);
  /// To be called when an answer has been resumed, its resume has failed, or it does not wait any
  /// more. An unknown answer is ignored.
  void remove(std::uint64_t answer);

  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t max_running() const { return max_running_; }

 private:
  struct Place {
    std::size_t tier;
    base::Duration deadline;
    std::uint64_t arrival;
    auto operator<=>(const Place&) const = default;
  };

  std::size_t max_running_ = BudgetSettings{}.min_resumes;
  std::uint64_t arrivals_ = 0;
  std::map<Place, std::uint64_t> waiting_;
  Place search_from_{};
  std::map<std::uint64_t, Place> places_;
  std::set<std::uint64_t> running_;
};

/// The retries of requests whose answers have not begun: by default at most a fifth of the requests
/// of the last ten seconds, but at least ten. A retry beyond the budget waits; it does not fail.
class RetryBudget {
 public:
  explicit RetryBudget(const BudgetSettings& settings = {}) : settings_(settings) {}
  /// With another `time`, the count begins again at 0.
  void set_settings(const BudgetSettings& settings);

  void on_request(base::Duration now);
  /// Whether a request may be retried now; if so, this counts as a retry.
  bool begin_retry(base::Duration now);

 private:
  /// Counts in the slice with this number since the epoch.
  struct Slice {
    std::int64_t number = -1;
    std::uint64_t requests = 0;
    std::uint64_t retries = 0;
  };
  Slice& slice_at(base::Duration now);

  BudgetSettings settings_;
  /// A ring of slices, which together cover BudgetSettings::time.
  std::array<Slice, 20> slices_;
};

}  // namespace fo::route
