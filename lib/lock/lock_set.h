// Several locks held as one: leadership from a network, say, and the memory's safety from the node.
// They are taken in the order in which they are named, each while those before are kept, and given
// up in the other one: contenders must name them in the same order.
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
  /// At least two, of the same id; `path` is for messages.
  LockSet(std::string path, std::vector<std::unique_ptr<FailoverLock>> locks);
  ~LockSet() override;

  /// The grant has the first lock's generation. One that is lost while the next is waited for ends
  /// the wait: throws with the loss's status.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;
  [[nodiscard]] Watch watch() override;
  /// Lost with any of them: with the reason of the first that is, which names it, and the least
  /// time of all that are.
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override;
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override;

 private:
  // While those before `index` are looked after.
  Result acquire_next(std::size_t index, const base::Deadline& deadline, int interrupt_fd,
                      const os::Reminder& reminder);
  [[nodiscard]] std::optional<base::Error> lost_before(std::size_t end) const;
  // The first `held`, the last of them first.
  void release_held(std::size_t held);
  static void release_quietly(FailoverLock& lock);

  std::vector<std::unique_ptr<FailoverLock>> locks_;
  base::UniqueFd epoll_;
};

}  // namespace fo::lock
