// Implements the owners and copies of memory.h.
#include "cuda/memory.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/units.h"

namespace fo::cuda {
namespace {

using abi::Result;

/// "verb 512 MiB", for messages.
std::string sized(const char* verb, base::ByteCount size) {
  return std::string(verb) + " " + base::format_size(size);
}

std::string on_device(std::string text, base::DeviceOrdinal device) {
  return std::move(text) + " on device " + std::to_string(device.value());
}

/// In every driver a CUdevice equals its ordinal, and VMM locations use the ordinal, so no lookup
/// is needed.
abi::Location location_of(base::DeviceOrdinal device) {
  return {abi::LocationType::kDevice, device.value()};
}

}  // namespace

abi::AllocationProp prop_of(base::DeviceOrdinal device) {
  abi::AllocationProp prop{};
  prop.type = abi::AllocationType::kPinned;
  prop.requested_handle_types = abi::HandleType::kPosixFileDescriptor;
  prop.location = location_of(device);
  return prop;
}

PhysicalMemory PhysicalMemory::create(std::shared_ptr<const Driver> driver,
                                      base::DeviceOrdinal device, base::ByteCount size) {
  const abi::AllocationProp prop = prop_of(device);
  abi::AllocationHandle handle = 0;
  driver->check(driver->api().cuMemCreate(&handle, size, &prop, 0),
                [&] { return on_device(sized("cuMemCreate", size), device); });
  return {std::move(driver), {handle, size}};
}

PhysicalMemory PhysicalMemory::import_fd(std::shared_ptr<const Driver> driver, int fd,
                                         base::ByteCount size) {
  abi::AllocationHandle handle = 0;
  // The driver takes the descriptor's number itself where other handle types take a pointer.
  void* const shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  driver->check(driver->api().cuMemImportFromShareableHandle(&handle, shareable,
                                                             abi::HandleType::kPosixFileDescriptor),
                [&] { return sized("cuMemImportFromShareableHandle", size); });
  return {std::move(driver), {handle, size}};
}

Result OwnedMemory::release(const Driver& driver) const noexcept {
  return driver.api().cuMemRelease(handle);
}

std::string OwnedMemory::what_is_done() const { return sized("cuMemRelease", size); }

base::UniqueFd PhysicalMemory::export_fd() const {
  int number = -1;
  driver().check(driver().api().cuMemExportToShareableHandle(
                     &number, handle(), abi::HandleType::kPosixFileDescriptor, 0),
                 [&] { return sized("cuMemExportToShareableHandle", size()); });
  base::UniqueFd fd(number);
  // The driver does not set close-on-exec. A fork and exec in another thread before this line would
  // leak the descriptor.
  if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) < 0) {
    base::throw_errno(errno, "exported memory: set close-on-exec");
  }
  return fd;
}

AddressRange AddressRange::reserve(std::shared_ptr<const Driver> driver, base::ByteCount size,
                                   base::ByteCount alignment) {
  abi::DevicePtr address = 0;
  driver->check(driver->api().cuMemAddressReserve(&address, size, alignment, 0, 0),
                [&] { return sized("cuMemAddressReserve", size); });
  return {std::move(driver), {address, size}};
}

Result OwnedRange::release(const Driver& driver) const noexcept {
  return driver.api().cuMemAddressFree(address, size);
}

Mapping Mapping::map(std::shared_ptr<const Driver> driver, abi::DevicePtr address,
                     base::ByteCount size, const PhysicalMemory& memory) {
  driver->check(driver->api().cuMemMap(address, size, 0, memory.handle(), 0),
                [&] { return sized("cuMemMap", size); });
  return {std::move(driver), {address, size}};
}

Result OwnedMapping::release(const Driver& driver) const noexcept {
  return driver.api().cuMemUnmap(address, size);
}

std::string OwnedMapping::what_is_done() const { return sized("cuMemUnmap", size); }

void set_access(const Driver& driver, abi::DevicePtr address, base::ByteCount size,
                base::DeviceOrdinal device, Access access) {
  const abi::AccessDesc desc{location_of(device), access == Access::kRead
                                                      ? abi::AccessFlags::kRead
                                                      : abi::AccessFlags::kReadWrite};
  driver.check(driver.api().cuMemSetAccess(address, size, &desc, 1),
               [&] { return on_device(sized("cuMemSetAccess", size), device); });
}

PrimaryContext PrimaryContext::retain(std::shared_ptr<const Driver> driver,
                                      base::DeviceOrdinal device) {
  abi::Context context = nullptr;
  driver->check(driver->api().cuDevicePrimaryCtxRetain(&context, device.value()),
                [&] { return on_device("cuDevicePrimaryCtxRetain", device); });
  if (const Result result = driver->api().cuCtxPushCurrent_v2(context);
      result != Result::kSuccess) {
    driver->api().cuDevicePrimaryCtxRelease_v2(device.value());
    driver->fail(result, on_device("cuCtxPushCurrent", device));
  }
  return {std::move(driver), {device, context}};
}

Result OwnedContext::release(const Driver& driver) const noexcept {
  abi::Context current = nullptr;
  if (driver.api().cuCtxGetCurrent(&current) == Result::kSuccess && current == context) {
    driver.api().cuCtxPopCurrent_v2(&current);
  }
  return driver.api().cuDevicePrimaryCtxRelease_v2(device.value());
}

void PrimaryContext::make_current() const {
  driver().check(driver().api().cuCtxSetCurrent(object().context),
                 [&] { return on_device("cuCtxSetCurrent", object().device); });
}

void copy_to_device(const Driver& driver, abi::DevicePtr to, std::span<const std::byte> from) {
  driver.check(driver.api().cuMemcpyHtoD_v2(to, from.data(), from.size()),
               [&] { return sized("cuMemcpyHtoD", from.size()); });
}

void copy_to_host(const Driver& driver, std::span<std::byte> to, abi::DevicePtr from) {
  driver.check(driver.api().cuMemcpyDtoH_v2(to.data(), from, to.size()),
               [&] { return sized("cuMemcpyDtoH", to.size()); });
}

void synchronize(const Driver& driver) {
  driver.check(driver.api().cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace fo::cuda
