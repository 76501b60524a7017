#include "lock/holder_report.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "lock/lock_status.h"
#include "os/log.h"

namespace fo::lock {

base::Duration glance_time(const LockUri& lock) {
  return is_local(lock) ? kGlanceTime : std::chrono::seconds(1);
}

void HolderReport::operator()() noexcept {
  last_.resize(locks_.size());
  for (std::size_t i = 0; i < locks_.size(); ++i) report(locks_[i], last_[i]);
}

void HolderReport::report(const LockUri& lock, std::string& last) const noexcept {
  try {
    const LockStatus status = read_lock_status(lock, glance_time(lock));
    if (!status.held || (locks_.size() > 1 && status.holder == id_)) return;
    std::string text = describe_holders(status);
    if (text == last) return;
    os::log(os::LogLevel::kWarning, "waiting for lock {}: {}", base::quoted(lock.path), text);
    last = std::move(text);
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kInfo, "waiting for lock {}: {}", base::quoted(lock.path), error.what());
  }
}

}  // namespace fo::lock
