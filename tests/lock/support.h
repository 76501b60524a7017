// Lock holders for the tests of this library.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "lock/failover_lock.h"
#include "lock/lock_uri.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::test {

/// A process that acquires the lock, reports the generation, and holds it until it is killed.
inline std::function<int(int)> holder(const lock::LockUri& uri, const std::string& id) {
  return [uri, id](int ready) {
    const auto lock = lock::open_lock(uri, id);
    const auto result = lock->acquire(base::Deadline::after(kLong));
    if (result.outcome != os::LockWait::kLocked) return 1;
    say(ready, result.grant.generation);
    return pause_for_ever();
  };
}
inline std::function<int(int)> holder(const std::string& path, const std::string& id) {
  return holder(lock::LockUri{.path = path}, id);
}

}  // namespace fo::test
