// Who holds a lock that is waited for, as log lines.
#pragma once

#include <string>

#include "base/units.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// What a lock server gets to say who holds the lock, when it is only for a message.
inline constexpr base::Duration kGlanceTime = std::chrono::milliseconds(200);

/// Called every so often (os::Reminder), it logs who holds the lock, each time that this has
/// changed.
class HolderReport {
 public:
  explicit HolderReport(LockUri lock) : lock_(std::move(lock)) {}

  void operator()() noexcept;

 private:
  LockUri lock_;
  std::string last_;
};

}  // namespace fo::lock
