// The gate before an engine wakes: its devices must have as much free memory as the engine released
// when it slept, as the previous engine had in a GMS for its KV cache, or as was configured.
// Queries the private helper fo-gpu, like device::GpuGate, without blocking.
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
  /// `wanted` is the size for each device; nullopt: what the engine and the servers of KV memory
  /// release. 0: no gate.
  DeviceGate(loop::Children& children, std::vector<base::DeviceOrdinal> devices,
             std::optional<base::ByteCount> wanted, std::vector<GmsPlace> kv = {});

  /// With a configured size: checks that the devices can be queried for it, so that a gate that
  /// cannot work fails before the wait for the lock. Throws what device::GpuMemory::ask throws.
  boost::asio::awaitable<void> check();

  /// Call before and after the engine is put to sleep, unless is_known(). If the devices cannot be
  /// queried, logs a warning, and there is no gate. A driver may release memory late: after_sleep()
  /// waits until the free memory is constant, or for two seconds.
  boost::asio::awaitable<void> before_sleep();
  boost::asio::awaitable<void> after_sleep();

  /// Waits until no engine holds KV memory in a GMS (unless the size was configured), and every
  /// device has the wanted memory free. False if there is nothing to wait for. Throws kTryAgain if
  /// `deadline` passes, kUnavailable if a device did not answer by then, and what
  /// device::GpuMemory::ask throws.
  boost::asio::awaitable<bool> wait(base::Deadline deadline);

  /// The sizes by device; 0: no wait.
  [[nodiscard]] const std::vector<base::ByteCount>& wanted() const { return wanted_; }
  /// True if the sizes need no measurement: they were configured, or the engine has already
  /// released memory.
  [[nodiscard]] bool is_known() const;
  /// Whether a GMS for KV memory answers. Such a server reports the size, once an engine has used
  /// it.
  boost::asio::awaitable<bool> has_kv_server() { return kv_.is_served(); }

 private:
  // True if there is memory to wait for.
  [[nodiscard]] bool is_gated() const;
  // Queries each device once.
  boost::asio::awaitable<void> query_all();
  // The free memory of each device; nullopt if it cannot be determined.
  boost::asio::awaitable<std::optional<std::vector<base::ByteCount>>> measure();

  loop::Children& children_;
  std::vector<base::DeviceOrdinal> devices_;
  KvGate kv_;
  bool is_configured_;
  std::vector<base::ByteCount> wanted_;
  std::vector<base::ByteCount> free_before_;
  // One for each device. The uuids of known devices make later queries fast.
  std::vector<device::GpuMemory> memory_;
};

}  // namespace fo::engine
