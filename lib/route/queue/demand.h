// Measures the demand of a set's clients and the capacity of its workers, and computes the level of
// degradation from their ratio. Pure: time, which must not go back, is an argument.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "base/units.h"
#include "plan/degradation.h"
#include "plan/times.h"

namespace fo::route {

struct DemandSettings {
  /// The time that is measured: whole slices of ten seconds, at most an hour.
  base::Duration time = std::chrono::minutes(10);
  /// Refusals raise the demand to at most this multiple of the admitted requests.
  double max_factor = 2;
};

/// The requests of DemandSettings::time: those that were admitted, and the first refusal of each
/// client in ten seconds, since clients that are refused send their requests again. Refusals raise
/// the demand by `max_factor` at most, so that no client can degrade the service by being refused.
class Demand {
 public:
  explicit Demand(base::Duration now, const DemandSettings& settings = {})
      : settings_(settings), started_(now) {}
  void set_settings(const DemandSettings& settings) { settings_ = settings; }

  void on_admitted(base::Duration now);
  /// A request that on_admitted() counted at `admitted_at` was refused before a worker had it. Its
  /// admission is subtracted, and the client's first refusal in ten seconds counts. `client` is
  /// the client's key, or its address if there are no keys. Of more than 10,000 clients in ten
  /// seconds, the rest is not counted.
  void on_refused(const std::string& client, base::Duration admitted_at, base::Duration now);

  /// Requests per second in DemandSettings::time, or since the start if that is shorter. They are
  /// divided by at least ten seconds.
  [[nodiscard]] double rate(base::Duration now) const;

 private:
  static constexpr base::Duration kSlice = std::chrono::seconds(10);
  struct Slice {
    std::int64_t number = -1;
    std::uint64_t admitted = 0;
    std::uint64_t refused = 0;
  };
  /// The number of the slice since the start.
  [[nodiscard]] std::int64_t number_at(base::Duration now) const;
  /// The place of the slice with this number.
  Slice& place_of(std::int64_t number);
  Slice& slice_at(base::Duration now);

  DemandSettings settings_;
  base::Duration started_;
  std::array<Slice, 360> slices_;
  /// The clients that were refused in the present slice.
  std::unordered_set<std::string> refused_;
};

/// The part of a worker that this router uses.
struct UsedWorker {
  /// 0 to 1.
  double weight = 1;
  /// Number of concurrent requests at level 0.
  std::uint64_t slots = 0;
  /// nullopt if unknown: only the slots bound its requests.
  std::optional<std::uint64_t> kv_tokens = {};
};

/// The mean of the requests that were served.
struct MeanRequest {
  plan::Seconds ttft{0};
  plan::Seconds tpot{0};
  double prompt_tokens = 0;
  double answer_tokens = 0;
};

/// The mean of all requests at first, and later one in which later requests have more weight. It is
/// forgotten when no request was served for a time: otherwise, a router that refuses all requests
/// because they took long would never learn that they have become faster.
class ServedMean {
 public:
  /// As many requests as a mean needs: the first ones may be slow because an engine has just
  /// started.
  static constexpr std::uint64_t kMinRequests = 10;
  static constexpr base::Duration kMemory = std::chrono::minutes(10);

  /// `ttft` is the time to the first token, or to the end of an answer in one piece; `total` is the
  /// time to the last token.
  void add(base::Duration ttft, base::Duration total, std::uint64_t prompt_tokens,
           std::uint64_t answer_tokens, base::Duration now);
  /// nullopt if too few requests were served, or none in kMemory.
  [[nodiscard]] std::optional<MeanRequest> mean(base::Duration now) const;

 private:
  MeanRequest mean_;
  std::uint64_t requests_ = 0;
  base::Duration last_{};
};

/// The requests per second that the workers carry together. A worker without slots carries nothing;
/// errors are those of plan::residence_time and plan::concurrency_of.
double carried_rate(std::span<const UsedWorker> workers, const MeanRequest& mean);

/// carried / demanded; infinity without a demand.
double capacity_ratio(double carried, double demanded);

/// The level of degradation in force: that of the ratio, or one that an operator has pinned.
class Level {
 public:
  explicit Level(const plan::DegradationRules& rules = {}) : rules_(rules) {}
  void set_rules(const plan::DegradationRules& rules) { rules_ = rules; }

  /// To be called regularly, because levels are left after a time.
  void update(double ratio, base::Duration now);
  /// Pins a level. nullopt: the level is automatic again, and is at once the one that the ratio has
  /// required meanwhile. Throws Error(kUsage) for a level that does not exist.
  void pin(std::optional<std::size_t> level);

  [[nodiscard]] std::size_t level() const { return pinned_.value_or(automatic_.level); }
  [[nodiscard]] plan::DegradationSetting setting() const {
    return plan::setting_of(level(), ratio_, rules_);
  }

 private:
  plan::DegradationRules rules_;
  plan::DegradationState automatic_;
  std::optional<std::size_t> pinned_;
  double ratio_ = 1;
};

}  // namespace fo::route
