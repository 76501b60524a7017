// Owners of virtual-memory-management objects and of primary contexts, and the copies in and out.
// Declare them in the order PrimaryContext, AddressRange, PhysicalMemory, Mapping, so that
// destruction unmaps before it releases and frees.
//
// Owners move and don't copy. A moved-from owner and a closed one own nothing. Destructors ignore
// what the driver answers (a dead GPU must not keep a process from ending); close() throws it.
// Every function throws CudaError; creation throws OutOfMemory for CUDA_ERROR_OUT_OF_MEMORY.
// Only PrimaryContext, the copies and memory_info need or make a context.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "cuda/driver.h"

namespace fo::cuda {

enum class Access { kRead, kReadWrite };

/// One reference to memory of a device. The memory is free when the last reference of any process
/// (handles, exported fds, mappings) is gone, and its content is undefined when it is new.
class PhysicalMemory {
 public:
  /// `size`: a multiple of the device's granularity.
  static PhysicalMemory create(std::shared_ptr<const Driver> driver, base::DeviceOrdinal device,
                               base::ByteCount size);

  /// Another reference to what `fd` was exported from, by any process. `fd` stays the caller's and
  /// may be closed at once. `size` is what the exporter said, for the driver doesn't tell: a wrong
  /// one shows when it is mapped.
  static PhysicalMemory import_fd(std::shared_ptr<const Driver> driver, int fd,
                                  base::ByteCount size);

  PhysicalMemory() = default;
  PhysicalMemory(PhysicalMemory&& other) noexcept = default;
  PhysicalMemory& operator=(PhysicalMemory&& other) noexcept;
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  ~PhysicalMemory();

  /// A new close-on-exec descriptor, a reference of its own.
  [[nodiscard]] base::UniqueFd export_fd() const;
  /// Gives the reference up. Mappings made from it stay.
  void close();

  [[nodiscard]] abi::AllocationHandle handle() const { return handle_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  PhysicalMemory(std::shared_ptr<const Driver> driver, abi::AllocationHandle handle,
                 base::ByteCount size)
      : driver_(std::move(driver)), handle_(handle), size_(size) {}
  abi::Result release() noexcept;

  std::shared_ptr<const Driver> driver_;
  abi::AllocationHandle handle_ = 0;
  base::ByteCount size_ = 0;
};

/// Reserved address space, nothing behind it.
class AddressRange {
 public:
  /// `size`: a multiple of the granularity; `alignment`: a power of two, or 0 for the driver's own.
  static AddressRange reserve(std::shared_ptr<const Driver> driver, base::ByteCount size,
                              base::ByteCount alignment = 0);

  AddressRange() = default;
  AddressRange(AddressRange&& other) noexcept = default;
  AddressRange& operator=(AddressRange&& other) noexcept;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  /// Frees the range; everything in it must be unmapped.
  void close();

  [[nodiscard]] abi::DevicePtr address() const { return address_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  AddressRange(std::shared_ptr<const Driver> driver, abi::DevicePtr address, base::ByteCount size)
      : driver_(std::move(driver)), address_(address), size_(size) {}
  abi::Result release() noexcept;

  std::shared_ptr<const Driver> driver_;
  abi::DevicePtr address_ = 0;
  base::ByteCount size_ = 0;
};

/// Memory mapped into a reserved range; inaccessible until set_access.
class Mapping {
 public:
  /// `address` and `size`: within one reserved range, nothing mapped there yet. The mapping is a
  /// reference to the memory of its own.
  static Mapping map(std::shared_ptr<const Driver> driver, abi::DevicePtr address,
                     base::ByteCount size, const PhysicalMemory& memory);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept = default;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  /// Unmaps; the range stays reserved.
  void close();

  [[nodiscard]] abi::DevicePtr address() const { return address_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  Mapping(std::shared_ptr<const Driver> driver, abi::DevicePtr address, base::ByteCount size)
      : driver_(std::move(driver)), address_(address), size_(size) {}
  abi::Result release() noexcept;

  std::shared_ptr<const Driver> driver_;
  abi::DevicePtr address_ = 0;
  base::ByteCount size_ = 0;
};

/// Makes whole mappings accessible to `device`. One call may span any number of adjacent mappings,
/// and costs far less than one call for each.
void set_access(const Driver& driver, abi::DevicePtr address, base::ByteCount size,
                base::DeviceOrdinal device, Access access);

/// A device's primary context, retained. It costs hundreds of MiB of the device's memory while any
/// part of the process retains it.
class PrimaryContext {
 public:
  /// Retains it and makes it the calling thread's current one, until the owner goes: then, on the
  /// same thread, the one before is current again. Nest them, last in, first out.
  static PrimaryContext retain(std::shared_ptr<const Driver> driver, base::DeviceOrdinal device);

  PrimaryContext() = default;
  PrimaryContext(PrimaryContext&& other) noexcept = default;
  PrimaryContext& operator=(PrimaryContext&& other) noexcept;
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  /// Makes it current on the calling thread too, in place of what was.
  void make_current() const;
  void close();

  [[nodiscard]] base::DeviceOrdinal device() const { return device_; }
  explicit operator bool() const { return driver_ != nullptr; }

 private:
  PrimaryContext(std::shared_ptr<const Driver> driver, base::DeviceOrdinal device,
                 abi::Context context)
      : driver_(std::move(driver)), device_(device), context_(context) {}
  abi::Result release() noexcept;

  std::shared_ptr<const Driver> driver_;
  base::DeviceOrdinal device_;
  abi::Context context_ = nullptr;
};

/// The copies and fill() need a current context and accessible memory. Copies from or to pageable
/// host memory are done when they return; fill() may not be before synchronize().
void copy_to_device(const Driver& driver, abi::DevicePtr to, std::span<const std::byte> from);
void copy_to_host(const Driver& driver, std::span<std::byte> to, abi::DevicePtr from);
void fill(const Driver& driver, abi::DevicePtr to, std::byte value, base::ByteCount size);
void synchronize(const Driver& driver);

struct MemoryInfo {
  base::ByteCount free = 0;
  base::ByteCount total = 0;
};

/// What is free on the device, as the driver's own function tells it. That answers only to a
/// context: where this process retains none on the device one is made for the call, and what it
/// costs is part of what is not free. See device_memory.h for an answer without a context.
MemoryInfo memory_info(const std::shared_ptr<const Driver>& driver, base::DeviceOrdinal device);

}  // namespace fo::cuda
