// The gate before an engine wakes: its devices have the memory free that it gave back when it
// slept, or that it was said to need. Asked of the private helper fo-gpu, as lock::GpuGate does,
// without blocking.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"
#include "lock/gpu_memory.h"

namespace fo::engine {

class Children;

class DeviceGate {
 public:
  /// `wanted` on each device; nullopt: what the engine gives back. 0: no gate at all.
  DeviceGate(Children& children, std::vector<int> devices, std::optional<base::ByteCount> wanted);

  /// To be called before the engine is put to sleep, and after. Where the size was given, only
  /// whether the devices can be asked is found out. Throws what lock::GpuMemory::ask throws where
  /// the size was given; otherwise there is no gate, and a warning.
  boost::asio::awaitable<void> before_sleep();
  boost::asio::awaitable<void> after_sleep();

  /// Waits until every device has it free. False when there is no memory. Throws kTryAgain when
  /// `deadline` passes, and what lock::GpuMemory::ask throws.
  boost::asio::awaitable<bool> wait(base::Deadline deadline);

  /// The sizes, device by device; 0: nothing is waited for.
  [[nodiscard]] const std::vector<base::ByteCount>& wanted() const { return wanted_; }
  /// Nothing is to be found out: the sizes were given, or the engine gave something back already.
  [[nodiscard]] bool is_known() const;

 private:
  // What each device has free; nullopt where it can't be told.
  boost::asio::awaitable<std::optional<std::vector<base::ByteCount>>> measure();

  Children& children_;
  std::vector<int> devices_;
  bool is_given_;
  std::vector<base::ByteCount> wanted_;
  std::vector<base::ByteCount> free_before_;
  // For their uuids, which make the later answers fast.
  std::vector<lock::GpuMemory> asked_;
};

}  // namespace fo::engine
