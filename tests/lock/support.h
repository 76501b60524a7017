// Lock holders for the tests of this room.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "lock/flock/flock_lock.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::test {

/// A process that acquires the lock, reports the generation, and holds it until it is killed.
inline std::function<int(int)> holder(const std::string& path, const std::string& id) {
  return [path, id](int ready) {
    lock::FlockLock lock(path, id);
    const auto result = lock.acquire(base::Deadline::after(kLong));
    say(ready, result.grant.generation);
    for (;;) ::pause();
    return 0;
  };
}

}  // namespace fo::test
