// The SHA-256 of a file whose parts several threads have, each when it has its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>

#include "base/strong.h"
#include "gms/protocol/sha256.h"

namespace fo::weights {

class OrderedHash {
 public:
  /// Waits until everything before `offset` has been added, then adds `bytes`. Whoever takes parts
  /// takes them in their order, so that the thread with the first that is missing never waits.
  /// False, and nothing done, after cancel().
  [[nodiscard]] bool add(base::ByteCount offset, std::span<const std::byte> bytes);
  /// For a thread whose part is not going to come: nobody waits any more.
  void cancel();
  /// In lower-case hex, after the last part; the end of this object's use.
  std::string finish();

 private:
  std::mutex mutex_;  // guards added_ and cancelled_; the hash is that thread's whose turn it is
  std::condition_variable turn_;
  base::ByteCount added_ = 0;
  bool cancelled_ = false;
  gms::Sha256 hash_;
};

}  // namespace fo::weights
