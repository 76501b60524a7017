// What a watch of a registry reports: valid records, each change once, and why a record vanished.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

class RecordReports {
 public:
  /// `registry` is its URI, for the log.
  RecordReports(std::string registry, std::function<void(const RegistryChange&)> on_change)
      : registry_(std::move(registry)), on_change_(std::move(on_change)) {}

  /// The record is new, or has changed. An invalid one is ignored, with a warning in the log; a
  /// process whose life is kGone has deregistered.
  void put(Record record);
  /// The record's process has ended.
  void gone(const std::string& key) { end(key, RegistryChange::Kind::kGone); }
  /// The record was deleted: stale if a process keeps it, because that would have deregistered.
  void vanish(const std::string& key);

  /// The keys that were last reported with kPut.
  [[nodiscard]] const std::set<std::string>& reported() const { return reported_; }

 private:
  void end(const std::string& key, RegistryChange::Kind kind);

  const std::string registry_;
  const std::function<void(const RegistryChange&)> on_change_;
  std::set<std::string> reported_;
};

}  // namespace fo::fleet
