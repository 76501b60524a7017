// What only tests ask of a driver.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cuda/device_memory.h"
#include "cuda/memory.h"

namespace fo::cuda {

/// What is free on the device, as the driver's own function tells it. That answers only to a
/// context: where this process retains none on the device one is made for the call, and what it
/// costs is part of what is not free.
inline MemoryInfo memory_info(const std::shared_ptr<const Driver>& driver,
                              base::DeviceOrdinal device) {
  const auto context = PrimaryContext::retain(driver, device);
  std::size_t free = 0;
  std::size_t total = 0;
  driver->check(driver->api().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return {free, total};
}

/// Needs a current context and accessible memory; may not be done before synchronize().
inline void fill(const Driver& driver, abi::DevicePtr to, std::byte value, base::ByteCount size) {
  driver.check(driver.api().cuMemsetD8_v2(to, static_cast<unsigned char>(value), size),
               "cuMemsetD8");
}

/// What is in accessible memory. Needs a current context.
inline std::string bytes_at(const Driver& driver, abi::DevicePtr address, base::ByteCount size) {
  std::string bytes(size, '\0');
  copy_to_host(driver, std::as_writable_bytes(std::span(bytes)), address);
  return bytes;
}

}  // namespace fo::cuda
