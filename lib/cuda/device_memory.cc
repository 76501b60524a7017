// Chooses the source of the answer and the interval of the queries. See device_memory.h.
#include "cuda/device_memory.h"

#include <algorithm>
#include <thread>

#include "cuda/device.h"
#include "cuda/nvml.h"

namespace fo::cuda {
namespace {

using Clock = base::Deadline::Clock;

// NVML has no event for free memory, and each query takes a lock of the driver, so the interval
// grows with the wait.
constexpr base::Duration kMinPause = std::chrono::milliseconds(5);
constexpr base::Duration kMaxPause = std::chrono::milliseconds(20);

base::Duration pause_after(base::Duration waited) {
  return std::clamp(waited / 64, kMinPause, kMaxPause);
}

}  // namespace

DeviceMemory device_memory(const std::shared_ptr<const Driver>& driver,
                           base::DeviceOrdinal ordinal) {
  const base::GpuUuid uuid = device_info(*driver, ordinal).uuid;
  if (!driver->simulated()) return nvml_device_memory(uuid);
  return {uuid, [driver, ordinal] {
            std::size_t free = 0;
            std::size_t total = 0;
            driver->check(driver->simulated_memory_info()(ordinal.value(), &free, &total), [&] {
              return "free memory of device " + std::to_string(ordinal.value());
            });
            return MemoryInfo{free, total};
          }};
}

MemoryInfo wait_until_free(const DeviceMemory& memory, base::ByteCount wanted,
                           const base::Deadline& deadline) {
  const auto start = Clock::now();
  for (;;) {
    const bool last = deadline.expired();
    const MemoryInfo now = memory.ask();
    if (wanted > now.total) {
      throw base::Error(base::ExitStatus::kUsage,
                        "wait for free memory of device " + base::quoted(memory.uuid.value()) +
                            ": it has " + std::to_string(now.total) + " bytes, " +
                            std::to_string(wanted) + " needed");
    }
    if (now.free >= wanted || last) return now;
    const base::Duration pause = pause_after(Clock::now() - start);
    std::this_thread::sleep_for(std::min(pause, deadline.remaining().value_or(pause)));
  }
}

}  // namespace fo::cuda
