#include "route/resume/budget.h"

#include <algorithm>
#include <utility>

namespace fo::route {
namespace {

std::uint64_t part_of(std::uint64_t count, double part) {
  return static_cast<std::uint64_t>(static_cast<double>(count) * part);
}

}  // namespace

std::size_t ResumeBudget::max_running(std::uint64_t slots, const BudgetSettings& settings) {
  return std::max(settings.min_resumes, part_of(slots, settings.resumes));
}

void ResumeBudget::set_slots(std::uint64_t slots, const BudgetSettings& settings) {
  max_running_ = max_running(slots, settings);
}

void ResumeBudget::add(std::uint64_t answer, std::size_t tier, base::Duration deadline) {
  const Place place{tier, deadline, arrivals_++};
  waiting_.emplace(place, answer);
  places_.emplace(answer, place);
}

void ResumeBudget::begin_next(const std::function<bool(std::uint64_t answer)>& begin,
                              std::size_t max_failures) {
  auto at = waiting_.lower_bound(std::exchange(search_from_, {}));
  std::size_t failures = 0;
  while (at != waiting_.end() && running_.size() < max_running_) {
    if (failures >= max_failures) {
      search_from_ = at->first;
      return;
    }
    const std::uint64_t answer = (at++)->second;
    if (begin(answer)) {
      remove(answer);
      running_.insert(answer);
    } else {
      ++failures;
    }
  }
}

void ResumeBudget::remove(std::uint64_t answer) {
  running_.erase(answer);
  const auto found = places_.find(answer);
  if (found == places_.end()) return;
  waiting_.erase(found->second);
  places_.erase(found);
}

void RetryBudget::set_settings(const BudgetSettings& settings) {
  if (settings.time != settings_.time) slices_ = {};
  settings_ = settings;
}

RetryBudget::Slice& RetryBudget::slice_at(base::Duration now) {
  const std::int64_t number = now / (settings_.time / static_cast<int>(slices_.size()));
  Slice& slice = slices_[static_cast<std::size_t>(number) % slices_.size()];
  if (slice.number != number) slice = {.number = number};
  return slice;
}

void RetryBudget::on_request(base::Duration now) { ++slice_at(now).requests; }

bool RetryBudget::begin_retry(base::Duration now) {
  Slice& present = slice_at(now);
  std::uint64_t requests = 0;
  std::uint64_t retries = 0;
  for (const Slice& slice : slices_) {
    if (slice.number + static_cast<std::int64_t>(slices_.size()) <= present.number) continue;
    requests += slice.requests;
    retries += slice.retries;
  }
  if (retries >= std::max(settings_.min_retries, part_of(requests, settings_.retries)))
    return false;
  ++present.retries;
  return true;
}

}  // namespace fo::route
