// Numbers that /metrics shows: gauges, counters and histograms. They are atomic, and zero in fresh
// memory, so that several processes may share them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace fo::metrics {

/// A number that increases and decreases. Zero in fresh memory.
class Gauge {
 public:
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A number that only increases.
class Counter {
 public:
  void add(std::uint64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A histogram of durations. `kBounds` are the buckets' upper bounds, inclusive and rising; one
/// more bucket counts all longer times.
template <const auto& kBounds>
class Histogram {
 public:
  static constexpr std::size_t kBuckets = kBounds.size() + 1;

  /// A negative time counts as zero.
  void observe(base::Duration took) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), took);
    counts_[static_cast<std::size_t>(bound - kBounds.begin())].add();
    sum_.add(static_cast<std::uint64_t>(std::max(took, base::Duration::zero()).count()));
  }
  /// The count of this bucket alone.
  [[nodiscard]] std::uint64_t count(std::size_t bucket) const { return counts_[bucket].get(); }
  [[nodiscard]] base::Duration sum() const {
    return base::Duration(static_cast<base::Duration::rep>(sum_.get()));
  }

 private:
  std::array<Counter, kBuckets> counts_;
  /// The sum of the times in nanoseconds.
  Counter sum_;
};

}  // namespace fo::metrics
