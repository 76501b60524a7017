// The SHA-256 of a file whose parts come from several threads.
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
  /// Waits until all bytes before `offset` have been added, then adds `bytes`. Threads must take
  /// parts in order, so that the thread with the first missing part never waits. Returns false and
  /// does nothing after cancel().
  [[nodiscard]] bool add(base::ByteCount offset, std::span<const std::byte> bytes);
  /// Called by a thread that will not add its part. Ends the wait of all other threads.
  void cancel();
  /// The hash in lower-case hex, after the last part. The object cannot be used afterwards.
  std::string finish();

 private:
  std::mutex mutex_;  // guards added_ and cancelled_; the thread whose part is next owns the hash
  std::condition_variable turn_;
  base::ByteCount added_ = 0;
  bool cancelled_ = false;
  gms::Sha256 hash_;
};

}  // namespace fo::weights
