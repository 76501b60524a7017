#include "lock/failover_lock.h"

#include "base/error.h"
#include "lock/flock_lock.h"
#include "lock/grant.h"
#include "lock/lockd_lock.h"

namespace fo::lock {

FailoverLock::FailoverLock(std::string path, std::string id)
    : path_(std::move(path)), id_(std::move(id)) {
  check_lock_id(id_);
}

std::unique_ptr<FailoverLock> open_lock(const LockUri& uri, const std::string& id,
                                        std::optional<int> fd) {
  if (uri.kind == LockUri::Kind::kFlock) return std::make_unique<FlockLock>(uri.path, id, fd);
  if (fd) {
    throw base::Error(base::ExitStatus::kUsage, "lock " + base::quoted(uri.path) +
                                                    ": only a flock has a descriptor to place");
  }
  return std::make_unique<LockdLock>(uri.path, id);
}

}  // namespace fo::lock
