// The owners and copies of memory.h.
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

/// A CUdevice is its ordinal in every driver, and VMM locations are given by it, so it is not
/// looked up again.
abi::Location location_of(base::DeviceOrdinal device) {
  return {abi::LocationType::kDevice, device.value()};
}

}  // namespace

PhysicalMemory PhysicalMemory::create(std::shared_ptr<const Driver> driver,
                                      base::DeviceOrdinal device, base::ByteCount size) {
  abi::AllocationProp prop{};
  prop.type = abi::AllocationType::kPinned;
  prop.requested_handle_types = abi::HandleType::kPosixFileDescriptor;
  prop.location = location_of(device);
  abi::AllocationHandle handle = 0;
  driver->check(driver->api().cuMemCreate(&handle, size, &prop, 0),
                [&] { return on_device(sized("cuMemCreate", size), device); });
  return {std::move(driver), handle, size};
}

PhysicalMemory PhysicalMemory::import_fd(std::shared_ptr<const Driver> driver, int fd,
                                         base::ByteCount size) {
  abi::AllocationHandle handle = 0;
  // The driver takes the number itself where other handle types have a pointer.
  void* const shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  driver->check(driver->api().cuMemImportFromShareableHandle(&handle, shareable,
                                                             abi::HandleType::kPosixFileDescriptor),
                [&] { return sized("cuMemImportFromShareableHandle", size); });
  return {std::move(driver), handle, size};
}

PhysicalMemory& PhysicalMemory::operator=(PhysicalMemory&& other) noexcept {
  if (this != &other) {
    release();
    driver_ = std::move(other.driver_);
    handle_ = other.handle_;
    size_ = other.size_;
  }
  return *this;
}

PhysicalMemory::~PhysicalMemory() { release(); }

Result PhysicalMemory::release() noexcept {
  const auto driver = std::move(driver_);
  return driver ? driver->api().cuMemRelease(handle_) : Result::kSuccess;
}

void PhysicalMemory::close() {
  const auto driver = driver_;
  const Result result = release();
  if (driver) driver->check(result, [&] { return sized("cuMemRelease", size_); });
}

base::UniqueFd PhysicalMemory::export_fd() const {
  int number = -1;
  driver_->check(driver_->api().cuMemExportToShareableHandle(
                     &number, handle_, abi::HandleType::kPosixFileDescriptor, 0),
                 [&] { return sized("cuMemExportToShareableHandle", size_); });
  base::UniqueFd fd(number);
  // The driver doesn't promise it. A fork and exec by another thread in between would leak the fd.
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
  return {std::move(driver), address, size};
}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  if (this != &other) {
    release();
    driver_ = std::move(other.driver_);
    address_ = other.address_;
    size_ = other.size_;
  }
  return *this;
}

AddressRange::~AddressRange() { release(); }

Result AddressRange::release() noexcept {
  const auto driver = std::move(driver_);
  return driver ? driver->api().cuMemAddressFree(address_, size_) : Result::kSuccess;
}

void AddressRange::close() {
  const auto driver = driver_;
  const Result result = release();
  if (driver) driver->check(result, [&] { return sized("cuMemAddressFree", size_); });
}

Mapping Mapping::map(std::shared_ptr<const Driver> driver, abi::DevicePtr address,
                     base::ByteCount size, const PhysicalMemory& memory) {
  driver->check(driver->api().cuMemMap(address, size, 0, memory.handle(), 0),
                [&] { return sized("cuMemMap", size); });
  return {std::move(driver), address, size};
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    release();
    driver_ = std::move(other.driver_);
    address_ = other.address_;
    size_ = other.size_;
  }
  return *this;
}

Mapping::~Mapping() { release(); }

Result Mapping::release() noexcept {
  const auto driver = std::move(driver_);
  return driver ? driver->api().cuMemUnmap(address_, size_) : Result::kSuccess;
}

void Mapping::close() {
  const auto driver = driver_;
  const Result result = release();
  if (driver) driver->check(result, [&] { return sized("cuMemUnmap", size_); });
}

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
  return {std::move(driver), device, context};
}

PrimaryContext& PrimaryContext::operator=(PrimaryContext&& other) noexcept {
  if (this != &other) {
    release();
    driver_ = std::move(other.driver_);
    device_ = other.device_;
    context_ = other.context_;
  }
  return *this;
}

PrimaryContext::~PrimaryContext() { release(); }

Result PrimaryContext::release() noexcept {
  const auto driver = std::move(driver_);
  if (!driver) return Result::kSuccess;
  abi::Context current = nullptr;
  if (driver->api().cuCtxGetCurrent(&current) == Result::kSuccess && current == context_) {
    driver->api().cuCtxPopCurrent_v2(&current);
  }
  return driver->api().cuDevicePrimaryCtxRelease_v2(device_.value());
}

void PrimaryContext::make_current() const {
  driver_->check(driver_->api().cuCtxSetCurrent(context_),
                 [&] { return on_device("cuCtxSetCurrent", device_); });
}

void PrimaryContext::close() {
  const auto driver = driver_;
  const Result result = release();
  if (driver) {
    driver->check(result, [&] { return on_device("cuDevicePrimaryCtxRelease", device_); });
  }
}

void copy_to_device(const Driver& driver, abi::DevicePtr to, std::span<const std::byte> from) {
  driver.check(driver.api().cuMemcpyHtoD_v2(to, from.data(), from.size()),
               [&] { return sized("cuMemcpyHtoD", from.size()); });
}

void copy_to_host(const Driver& driver, std::span<std::byte> to, abi::DevicePtr from) {
  driver.check(driver.api().cuMemcpyDtoH_v2(to.data(), from, to.size()),
               [&] { return sized("cuMemcpyDtoH", to.size()); });
}

void fill(const Driver& driver, abi::DevicePtr to, std::byte value, base::ByteCount size) {
  driver.check(driver.api().cuMemsetD8_v2(to, static_cast<unsigned char>(value), size),
               [&] { return sized("cuMemsetD8", size); });
}

void synchronize(const Driver& driver) {
  driver.check(driver.api().cuCtxSynchronize(), "cuCtxSynchronize");
}

MemoryInfo memory_info(const std::shared_ptr<const Driver>& driver, base::DeviceOrdinal device) {
  const auto context = PrimaryContext::retain(driver, device);
  std::size_t free = 0;
  std::size_t total = 0;
  driver->check(driver->api().cuMemGetInfo_v2(&free, &total),
                [&] { return on_device("cuMemGetInfo", device); });
  return {free, total};
}

}  // namespace fo::cuda
