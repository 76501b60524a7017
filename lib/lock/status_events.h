// Events of a lock and its command for --status-fd.
#pragma once

#include <string>

#include "base/strong.h"
#include "lock/failover_lock.h"
#include "os/socket/status_fd.h"

namespace fo::lock {

/// The seconds, or null if they are unknown.
std::string overlap_json(const Loss& loss);

class StatusEvents {
 public:
  /// Argument of os::StatusFd.
  explicit StatusEvents(int fd) : fd_(fd) {}

  void waiting();
  void granted(const Grant& grant);
  void gpu_free(base::ByteCount free, base::Duration waited);
  void child_started(int pid);
  void child_ended(int status);
  void lost(const Loss& loss);

 private:
  os::StatusFd fd_;
};

}  // namespace fo::lock
