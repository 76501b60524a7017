// The places of an engine: requests run at once up to a limit, the others wait in order.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <list>
#include <memory>

#include "loop/event.h"

namespace fo::oracle {

class Slots {
 public:
  explicit Slots(const boost::asio::any_io_executor& executor) : changed_(executor) {}

  /// A request's place, from its arrival to its end.
  class Place {
   public:
    explicit Place(std::shared_ptr<Slots> slots);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Whether wait() would have to wait, with this many slots (0: any number).
    [[nodiscard]] bool must_wait(std::uint64_t slots) const;
    /// Waits until the request may run.
    boost::asio::awaitable<void> wait(std::uint64_t slots);

   private:
    std::shared_ptr<Slots> slots_;
    /// Place in the queue, while the request waits.
    std::list<Place*>::iterator at_;
    bool is_running_ = false;
  };

  [[nodiscard]] std::uint64_t running() const { return running_; }
  [[nodiscard]] std::uint64_t waiting() const { return queue_.size(); }

 private:
  std::list<Place*> queue_;
  std::uint64_t running_ = 0;
  loop::Event changed_;
};

}  // namespace fo::oracle
