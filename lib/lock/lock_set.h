// Several locks held as one, for example a network service for leadership and a local lock for the
// safety of the memory. They are acquired in the given order, while earlier ones are kept, and
// released in reverse. All contenders must use the same order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "lock/failover_lock.h"

namespace fo::lock {

class LockSet final : public FailoverLock {
 public:
  /// At least two locks with the same id; `path` is for messages.
  LockSet(std::string path, std::vector<std::unique_ptr<FailoverLock>> locks);
  ~LockSet() override;

  /// The grant has the first lock's generation. If a held lock is lost during the wait, it throws
  /// with the loss's status.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;
  [[nodiscard]] Watch watch() override;
  /// Lost if any of them is lost, with the reason and the name of the first one, and the shortest
  /// time of all.
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override;
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override;

 private:
  // Acquires the lock at `index`; checks the locks before it during the wait.
  Result acquire_next(std::size_t index, const base::Deadline& deadline, int interrupt_fd,
                      const os::Reminder& reminder);
  [[nodiscard]] std::optional<base::Error> lost_before(std::size_t end) const;
  // Releases the first `held` locks, in reverse order.
  void release_held(std::size_t held);
  static void release_quietly(FailoverLock& lock);

  std::vector<std::unique_ptr<FailoverLock>> locks_;
  base::UniqueFd epoll_;
};

}  // namespace fo::lock
