// Who holds a lock that is waited for, as log lines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// What a lock server gets to say who holds the lock, when it is only for a message.
inline constexpr base::Duration kGlanceTime = std::chrono::milliseconds(200);
/// The same for any lock: one across a network takes longer.
base::Duration glance_time(const LockUri& lock);

/// Called every so often (os::Reminder), it logs who holds the lock, each time that this has
/// changed. It asks on a thread of its own: whoever waits goes on waiting, and renews what it has
/// meanwhile. The last copy waits for that thread, up to glance_time() for each lock.
class HolderReport {
 public:
  /// Of several locks, those that `id` holds are not waited for.
  HolderReport(std::vector<LockUri> locks, std::string id);

  /// Does nothing while the last one is under way.
  void operator()() noexcept;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::lock
