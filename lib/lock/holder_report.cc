#include "lock/holder_report.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "lock/lock_status.h"
#include "os/log.h"

namespace fo::lock {

void HolderReport::operator()() noexcept {
  try {
    const LockStatus status = read_lock_status(lock_, kGlanceTime);
    if (!status.held) return;
    std::string text = describe_holders(status);
    if (text == last_) return;
    os::log(os::LogLevel::kWarning, "waiting for lock {}: {}", base::quoted(lock_.path), text);
    last_ = std::move(text);
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kInfo, "waiting for lock {}: {}", base::quoted(lock_.path), error.what());
  }
}

}  // namespace fo::lock
