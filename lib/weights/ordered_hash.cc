#include "weights/ordered_hash.h"

namespace fo::weights {

bool OrderedHash::add(base::ByteCount offset, std::span<const std::byte> bytes) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return given_up_ || added_ == offset; });
    if (given_up_) return false;
  }
  hash_.add(bytes);
  {
    const std::scoped_lock lock(mutex_);
    added_ += bytes.size();
  }
  turn_.notify_all();
  return true;
}

void OrderedHash::give_up() {
  {
    const std::scoped_lock lock(mutex_);
    given_up_ = true;
  }
  turn_.notify_all();
}

std::string OrderedHash::finish() {
  const std::scoped_lock lock(mutex_);
  return hash_.finish();
}

}  // namespace fo::weights
