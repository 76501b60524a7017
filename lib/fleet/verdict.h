// A canary's verdict on a worker, the record "verdicts/ID/WRITER", and the joint verdict of all
// canaries. Pure; time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "fleet/health.h"
#include "fleet/registry/registry.h"
#include "text/time_text.h"

namespace fo::fleet {

/// A difference that a check found between the expected answer and the answer.
struct Evidence {
  /// The name of the question.
  std::string canary;
  /// Position of the token in the answer.
  std::uint64_t position = 0;
  /// A token id or a log-probability.
  std::string expected;
  std::string got;
};

/// The four members, as in the record.
nlohmann::json to_json(const Evidence& evidence);
/// The member "evidence" of an object; nullopt if it is missing or null. Throws json::Misfit.
std::optional<Evidence> evidence_in(const nlohmann::json& object);
/// A member with the text of a time. Throws json::Misfit.
text::WallTime needed_time(const nlohmann::json& object, const char* name);

struct Verdict {
  /// The id of the worker.
  std::string id;
  /// The state of the worker as the writer concludes it (health.h).
  HealthState health = HealthState::kHealthy;
  /// 0 to 1; 0 for a conviction.
  double weight = 1;
  std::string reason = {};
  std::optional<Evidence> evidence = {};
  /// The time of the last change of health.
  text::WallTime since = {};
  /// nullopt exactly for a conviction.
  std::optional<text::WallTime> expires = {};

  [[nodiscard]] bool is_conviction() const { return health == HealthState::kConvicted; }
  [[nodiscard]] bool counts(text::WallTime now) const { return !expires || now < *expires; }
};

/// True for a key of a verdict.
bool is_verdict_key(std::string_view key);
/// Throws kUsage for the name of a writer that is empty or too long.
std::string verdict_key(const std::string& worker_id, std::string_view writer);

/// One line of JSON.
std::string encode(const Verdict& verdict);
/// Throws kBadData for a text that is not a record of a verdict: "record 'key': reason".
Verdict decode_verdict(const Record& record);

/// The result of several verdicts on one worker.
struct JointVerdict {
  /// nullopt: no verdict counts, so that nothing changes.
  std::optional<HealthState> health = {};
  double weight = 1;
  /// Reason of the verdict that decides.
  std::string reason = {};

  [[nodiscard]] bool is_conviction() const { return health == HealthState::kConvicted; }
  [[nodiscard]] bool is_adverse() const { return health && *health != HealthState::kHealthy; }
};
/// The health, or "unknown".
std::string_view to_string(const JointVerdict& verdict);

/// The verdicts of all writers on all workers, in which a verdict that has expired does not count.
///
/// Of the verdicts on a worker, the one with the lowest weight decides. A conviction decides only
/// if at least half of the writers have convicted the worker; otherwise it makes it suspicious. A
/// writer is a canary that convicts this worker, or has a verdict on any worker that has not
/// expired. So a canary that has ended stops counting when its last verdict expires, but each of
/// its convictions remains until the record is removed.
class Verdicts {
 public:
  /// Stores the verdict, and returns a reference to it, valid until the next change. Throws
  /// kBadData for an invalid record, and then keeps the writer's last verdict.
  const Verdict& put(const Record& record);
  /// Removes the verdict with this key, if there is one.
  void remove(const std::string& key);

  /// The joint verdict on a worker at this time.
  [[nodiscard]] JointVerdict on(const std::string& worker_id, text::WallTime now) const;

 private:
  /// The number of writers that have a verdict on any worker that has not expired, and that have
  /// not convicted the worker whose verdicts are `on_worker`.
  [[nodiscard]] std::size_t count_others(const std::map<std::string, Verdict>& on_worker,
                                         text::WallTime now) const;

  /// Verdicts by worker and writer.
  std::map<std::string, std::map<std::string, Verdict>> by_worker_;
  /// The times at which the verdicts of each writer expire; convictions have none.
  std::map<std::string, std::multiset<text::WallTime>> expiries_;
};

}  // namespace fo::fleet
