// Logs the holder of a lock during the wait for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// The timeout for a lock server to name the holder, for a message only.
inline constexpr base::Duration kHolderQueryTimeout = std::chrono::milliseconds(200);
/// The same for any lock; one across a network needs longer.
base::Duration holder_query_timeout(const LockUri& lock);

/// Called periodically (os::Reminder), it logs the holder of a lock whenever it has changed. The
/// query runs on its own thread, so that the caller continues to wait and to renew its leases. The
/// destructor of the last copy waits for that thread, up to holder_query_timeout() for each lock.
class HolderReport {
 public:
  /// Skips the locks that `id` holds.
  HolderReport(std::vector<LockUri> locks, std::string id);

  /// Does nothing while a query is in progress.
  void operator()() noexcept;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::lock
