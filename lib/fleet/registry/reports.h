// Turns the events of a registry's watch into reports: valid records only, each change once, and
// kStale or kGone for a record that has vanished.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// True if the record counts; false if its process has deregistered; nullopt, with a warning in the
/// log, if the record is invalid and must be ignored. `registry` is the registry's URI, for the
/// log.
std::optional<bool> counts(const Record& record, const std::string& registry);

class RecordReports {
 public:
  /// `registry` is as for counts().
  RecordReports(std::string registry, std::function<void(const RegistryChange&)> on_change)
      : registry_(std::move(registry)), on_change_(std::move(on_change)) {}

  /// Reports a present record if it is new or has changed; an invalid one changes nothing.
  void put(Record record);
  /// Reports kGone, because the record's process has ended.
  void gone(const std::string& key) { end(key, RegistryChange::Kind::kGone); }
  /// Reports a record that was deleted: kStale for an ephemeral kind, because a process deregisters
  /// before it ends in order; else kGone.
  void vanish(const std::string& key);
  /// Reports kStale for all records of ephemeral kinds, because the registry is unreachable. Each
  /// of them is new for the next put().
  void set_unreachable();

  /// Hashes of the texts that were last reported with kPut, by key; nullopt for a record that is
  /// stale because the registry was unreachable.
  using Reported = std::unordered_map<std::string, std::optional<std::size_t>>;
  [[nodiscard]] const Reported& reported() const { return reported_; }

 private:
  void end(const std::string& key, RegistryChange::Kind kind);

  const std::string registry_;
  const std::function<void(const RegistryChange&)> on_change_;
  Reported reported_;
};

}  // namespace fo::fleet
