#include "oracle/slots.h"

#include <utility>

namespace fo::oracle {

Slots::Place::Place(std::shared_ptr<Slots> slots)
    : slots_(std::move(slots)), at_(slots_->queue_.insert(slots_->queue_.end(), this)) {}

Slots::Place::~Place() {
  if (is_running_) {
    --slots_->running_;
  } else {
    slots_->queue_.erase(at_);
  }
  slots_->changed_.notify();
}

bool Slots::Place::must_wait(std::uint64_t slots) const {
  return slots > 0 && (slots_->running_ >= slots || slots_->queue_.front() != this);
}

boost::asio::awaitable<void> Slots::Place::wait(std::uint64_t slots) {
  while (must_wait(slots)) co_await slots_->changed_.wait();
  slots_->queue_.erase(at_);
  is_running_ = true;
  ++slots_->running_;
  // The next one may have room, too.
  slots_->changed_.notify();
}

}  // namespace fo::oracle
