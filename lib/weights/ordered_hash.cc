#include "weights/ordered_hash.h"

namespace fo::weights {

bool OrderedHash::add(base::ByteCount offset, std::span<const std::byte> bytes) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return cancelled_ || added_ == offset; });
    if (cancelled_) return false;
  }
  hash_.add(bytes);
  {
    const std::scoped_lock lock(mutex_);
    added_ += bytes.size();
  }
  turn_.notify_all();
  return true;
}

void OrderedHash::cancel() {
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
  }
  turn_.notify_all();
}

std::string OrderedHash::finish() {
  const std::scoped_lock lock(mutex_);
  return hash_.finish();
}

}  // namespace fo::weights
