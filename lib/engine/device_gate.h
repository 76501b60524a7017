// The gate before an engine wakes: its devices have the memory free that it gave back when it
// slept, that the engine before it had in a GMS for its KV cache, or that it was said to need.
// Asked of the private helper fo-gpu, as lock::GpuGate does, without blocking.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"
#include "device/gpu_memory.h"
#include "engine/kv_gate.h"

namespace fo::loop {
class Children;
}

namespace fo::engine {

class DeviceGate {
 public:
  /// `wanted` on each device; nullopt: what the engine gives back, and what the servers of KV
  /// memory gave back. 0: no gate at all.
  DeviceGate(loop::Children& children, const std::vector<int>& devices,
             std::optional<base::ByteCount> wanted, std::vector<GmsPlace> kv = {});

  /// Where the size was given: whether the devices can be asked for it, so that what can't work
  /// fails before the wait for the lock. Throws what device::GpuMemory::ask throws.
  boost::asio::awaitable<void> check();

  /// To be called before the engine is put to sleep, and after, unless is_known(). Where the
  /// devices can't be asked there is no gate, and a warning. A driver may free late: the second one
  /// waits until what is free does not change any more, or for two seconds.
  boost::asio::awaitable<void> before_sleep();
  boost::asio::awaitable<void> after_sleep();

  /// Waits until no engine holds KV memory in a GMS, unless the size was given, and every device
  /// has what is wanted free. False when nothing is waited for. Throws kTryAgain when `deadline`
  /// passes, kUnavailable when a device did not answer by then, and what device::GpuMemory::ask
  /// throws.
  boost::asio::awaitable<bool> wait(base::Deadline deadline);

  /// The sizes, device by device; 0: nothing is waited for.
  [[nodiscard]] const std::vector<base::ByteCount>& wanted() const { return wanted_; }
  /// Nothing is to be found out: the sizes were given, or the engine gave something back already.
  [[nodiscard]] bool is_known() const;
  /// Whether a GMS for KV memory answers: then that one knows the size, once an engine had it.
  boost::asio::awaitable<bool> has_kv_server() { return kv_.is_served(); }

 private:
  // Something is waited for.
  [[nodiscard]] bool is_gated() const;
  // Asks each device once.
  boost::asio::awaitable<void> ask_all();
  // What each device has free; nullopt where it can't be told.
  boost::asio::awaitable<std::optional<std::vector<base::ByteCount>>> measure();

  loop::Children& children_;
  std::vector<int> devices_;
  KvGate kv_;
  bool is_given_;
  std::vector<base::ByteCount> wanted_;
  std::vector<base::ByteCount> free_before_;
  // Device by device. Their uuids, once known, make the later answers fast.
  std::vector<device::GpuMemory> memory_;
};

}  // namespace fo::engine
