#include "gms/bundle/crash_history.h"

namespace fo::gms {

std::optional<base::Duration> CrashHistory::add(TimePoint now) {
  while (!crashes_.empty() && now - crashes_.front() >= kWindow) crashes_.pop_front();
  crashes_.push_back(now);
  if (crashes_.size() >= kTooMany) return std::nullopt;
  constexpr base::Duration kFirst = std::chrono::milliseconds(100);
  if (crashes_.size() == 1) return base::Duration::zero();
  return kFirst * (1 << (2 * (crashes_.size() - 2)));
}

}  // namespace fo::gms
