// Files and holders for the tests of this room.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "lock/flock/flock_lock.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/temp_dir.h"

namespace fo::test {

inline std::string slurp(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

/// A process that acquires the lock, tells the generation, and holds it until it is killed.
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
