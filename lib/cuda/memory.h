// Owners of virtual-memory-management objects and of primary contexts, and the copies in and out.
// Declare them in the order PrimaryContext, AddressRange, PhysicalMemory, Mapping, so that
// destruction unmaps before it releases and frees.
//
// Owners are movable and not copyable. A moved-from or closed owner owns nothing. Destructors
// ignore driver errors, because a dead GPU must not keep a process from ending; close() throws
// them. Every function throws CudaError; creation throws OutOfMemory for CUDA_ERROR_OUT_OF_MEMORY.
// Only PrimaryContext and the copies need or create a context.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "cuda/driver.h"

namespace fo::cuda {

enum class Access { kRead, kReadWrite };

/// The base of the owners. An object of the driver is released with its owner: `Object` has a
/// release(driver) and, if it can be closed, a what_is_done() for the message.
template <typename Object>
class Owner {
 public:
  Owner() = default;
  Owner(Owner&& other) noexcept = default;
  Owner& operator=(Owner other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owner() {
    if (driver_) static_cast<void>(object_.release(*driver_));
  }
  explicit operator bool() const { return driver_ != nullptr; }

 protected:
  Owner(std::shared_ptr<const Driver> driver, Object object)
      : driver_(std::move(driver)), object_(object) {}
  void close() {
    const auto driver = std::move(driver_);
    if (driver) driver->check(object_.release(*driver), [&] { return object_.what_is_done(); });
  }
  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] const Object& object() const { return object_; }

 private:
  std::shared_ptr<const Driver> driver_;
  Object object_;
};

/// The objects of the owners below.
struct OwnedMemory {
  abi::AllocationHandle handle = 0;
  base::ByteCount size = 0;
  abi::Result release(const Driver& driver) const noexcept;
  std::string what_is_done() const;
};
struct OwnedRange {
  abi::DevicePtr address = 0;
  base::ByteCount size = 0;
  abi::Result release(const Driver& driver) const noexcept;
};
struct OwnedMapping {
  abi::DevicePtr address = 0;
  base::ByteCount size = 0;
  abi::Result release(const Driver& driver) const noexcept;
  std::string what_is_done() const;
};
struct OwnedContext {
  base::DeviceOrdinal device;
  abi::Context context = nullptr;
  abi::Result release(const Driver& driver) const noexcept;
};

/// The properties of new memory: exportable, on `device`.
abi::AllocationProp prop_of(base::DeviceOrdinal device);

/// A reference to physical memory of a device. The memory is freed when the last reference of any
/// process (handle, exported descriptor, mapping) is released. New memory has undefined content.
class PhysicalMemory : public Owner<OwnedMemory> {
 public:
  /// `size` must be a multiple of the device's granularity.
  static PhysicalMemory create(std::shared_ptr<const Driver> driver, base::DeviceOrdinal device,
                               base::ByteCount size);

  /// Another reference to the memory that `fd` was exported from by any process. The caller keeps
  /// `fd` and may close it at once. The driver does not report the size: `size` comes from the
  /// exporter, and a wrong one fails when the memory is mapped.
  static PhysicalMemory import_fd(std::shared_ptr<const Driver> driver, int fd,
                                  base::ByteCount size);

  /// A new close-on-exec descriptor, which is a reference of its own.
  [[nodiscard]] base::UniqueFd export_fd() const;
  /// Releases the reference. Its mappings stay valid.
  using Owner::close;

  [[nodiscard]] abi::AllocationHandle handle() const { return object().handle; }
  [[nodiscard]] base::ByteCount size() const { return object().size; }

 private:
  using Owner::Owner;
};

/// Reserved address space without memory. Everything in it must be unmapped before it is freed.
class AddressRange : public Owner<OwnedRange> {
 public:
  /// `size` must be a multiple of the granularity; `alignment` a power of two, or 0 for the
  /// driver's default.
  static AddressRange reserve(std::shared_ptr<const Driver> driver, base::ByteCount size,
                              base::ByteCount alignment = 0);

  [[nodiscard]] abi::DevicePtr address() const { return object().address; }
  [[nodiscard]] base::ByteCount size() const { return object().size; }

 private:
  using Owner::Owner;
};

/// Memory mapped into a reserved range; inaccessible until set_access.
class Mapping : public Owner<OwnedMapping> {
 public:
  /// `address` and `size` must lie in one reserved range where nothing is mapped yet. The mapping
  /// holds its own reference to the memory.
  static Mapping map(std::shared_ptr<const Driver> driver, abi::DevicePtr address,
                     base::ByteCount size, const PhysicalMemory& memory);

  /// Unmaps; the range stays reserved.
  using Owner::close;

  [[nodiscard]] abi::DevicePtr address() const { return object().address; }
  [[nodiscard]] base::ByteCount size() const { return object().size; }

 private:
  using Owner::Owner;
};

/// Makes whole mappings accessible to `device`. One call for several adjacent mappings costs far
/// less than one call for each.
void set_access(const Driver& driver, abi::DevicePtr address, base::ByteCount size,
                base::DeviceOrdinal device, Access access);

/// A retained primary context. It costs hundreds of MiB of device memory while any part of the
/// process retains it.
class PrimaryContext : public Owner<OwnedContext> {
 public:
  /// Retains the context and makes it current on the calling thread. The destructor, on the same
  /// thread, restores the previous one; nested owners must be destroyed in reverse order.
  static PrimaryContext retain(std::shared_ptr<const Driver> driver, base::DeviceOrdinal device);

  /// Makes the context current on the calling thread, too.
  void make_current() const;

 private:
  using Owner::Owner;
};

/// The copies need a current context and accessible memory. Copies to or from pageable host memory
/// are complete when they return.
void copy_to_device(const Driver& driver, abi::DevicePtr to, std::span<const std::byte> from);
void copy_to_host(const Driver& driver, std::span<std::byte> to, abi::DevicePtr from);
void synchronize(const Driver& driver);

}  // namespace fo::cuda
