// Who holds a lock that is waited for, as log lines.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// What a lock server gets to say who holds the lock, when it is only for a message.
inline constexpr base::Duration kGlanceTime = std::chrono::milliseconds(200);
/// The same for any lock: one across a network takes longer.
base::Duration glance_time(const LockUri& lock);

/// Called every so often (os::Reminder), it logs who holds the lock, each time that this has
/// changed.
class HolderReport {
 public:
  /// Of several locks, those that `id` holds are not waited for.
  HolderReport(std::vector<LockUri> locks, std::string id)
      : locks_(std::move(locks)), id_(std::move(id)) {}

  void operator()() noexcept;

 private:
  void report(const LockUri& lock, std::string& last) const noexcept;

  std::vector<LockUri> locks_;
  std::string id_;
  // What was said last, by lock.
  std::vector<std::string> last_;
};

}  // namespace fo::lock
