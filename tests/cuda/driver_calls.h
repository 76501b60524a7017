// Driver calls that only tests use.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cuda/device_memory.h"
#include "cuda/memory.h"

namespace fo::cuda {

/// Free memory of the device from the driver's own function, which needs a context. If this process
/// retains none, one is created for the call, and its memory counts as used.
inline MemoryInfo memory_info(const std::shared_ptr<const Driver>& driver,
                              base::DeviceOrdinal device) {
  const auto context = PrimaryContext::retain(driver, device);
  std::size_t free = 0;
  std::size_t total = 0;
  driver->check(driver->api().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return {free, total};
}

/// Needs a current context and accessible memory; may be complete only after synchronize().
inline void fill(const Driver& driver, abi::DevicePtr to, std::byte value, base::ByteCount size) {
  driver.check(driver.api().cuMemsetD8_v2(to, static_cast<unsigned char>(value), size),
               "cuMemsetD8");
}

/// The content of accessible memory. Needs a current context.
inline std::string bytes_at(const Driver& driver, abi::DevicePtr address, base::ByteCount size) {
  std::string bytes(size, '\0');
  copy_to_host(driver, std::as_writable_bytes(std::span(bytes)), address);
  return bytes;
}

}  // namespace fo::cuda
