// The simulated driver's state of this process: devices, handles, address space, contexts, host
// memory and streams. It has one function for each of the driver's, which throws Failure for an
// error; api.cc checks output pointers. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "simcuda/address_space.h"
#include "simcuda/result.h"
#include "simcuda/settings.h"
#include "simcuda/store.h"

namespace fo::simcuda {

/// "GPU-" and 8-4-4-4-12 digits, as NVML spells it.
std::string text_of(const Uuid& uuid);

class Driver {
 public:
  /// Opens the folders of the visible devices. Throws SettingsError if the folder is unusable, else
  /// Failure: no device if none is visible.
  explicit Driver(const Settings& settings);

  [[nodiscard]] int device_count() const { return static_cast<int>(devices_.size()); }
  /// Throws invalid device.
  Device device(int ordinal) const;
  [[nodiscard]] Uuid uuid(Device device) const;
  /// cuDeviceGetUuid, the older form: not supported under no-uuid.
  [[nodiscard]] Uuid old_uuid(Device device) const;
  [[nodiscard]] int attribute(DeviceAttribute attribute, Device device) const;
  [[nodiscard]] std::uint64_t total_memory(Device device) const;
  [[nodiscard]] std::uint64_t granularity() const { return granularity_; }

  Context retain_primary_context(Device device);
  void release_primary_context(Device device);
  /// Throws invalid context for an unknown one.
  Device device_of(Context context) const;
  /// The device of the calling thread's current context. Throws kInvalidContext without one,
  /// kContextIsDestroyed if it was released, or the error that broke it in an earlier call.
  Device current_device() const;
  /// For every call that is not about devices or contexts (late-copy-errors): throws the error that
  /// broke the calling thread's current context, if it is broken.
  void require_unbroken() const;
  /// Waits for the copies of the current context. Throws the delayed error of a copy, and breaks
  /// the context.
  void synchronize();
  /// The same for the context of `stream`. Throws invalid handle.
  void synchronize(Stream stream);

  struct MemoryInfo {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
  };
  MemoryInfo memory_info(Device device);

  AllocationHandle create(std::uint64_t size, const AllocationProp& prop);
  void release(AllocationHandle handle);
  int export_fd(AllocationHandle handle, HandleType type);
  AllocationHandle import_fd(int fd);
  AllocationHandle retain(DevicePtr address);
  [[nodiscard]] AllocationProp properties(AllocationHandle handle) const;
  void check_prop(const AllocationProp& prop) const;

  DevicePtr reserve(std::uint64_t size, std::uint64_t alignment, DevicePtr hint);
  void free_range(DevicePtr address, std::uint64_t size);
  void map(DevicePtr address, std::uint64_t size, std::uint64_t offset, AllocationHandle handle);
  void unmap(DevicePtr address, std::uint64_t size);
  void set_access(DevicePtr address, std::uint64_t size, const AccessDesc* desc, std::size_t count);
  [[nodiscard]] AccessFlags access(const Location& location, DevicePtr address) const;

  /// For copies: throw unless the current context can read, or write, the whole range. Returns
  /// false if nothing must be written, because this copy or an earlier one has an error that is
  /// delayed until the next synchronize() (late-copy-errors).
  void check_readable(DevicePtr address, std::uint64_t size);
  [[nodiscard]] bool check_writable(DevicePtr address, std::uint64_t size);
  /// A copy into memory fails with `result`: throws it, or delays it until the next synchronize().
  void fail_copy(Result result);

  void* allocate_host(std::uint64_t size);
  void free_host(void* address);

  Stream create_stream();
  void destroy_stream(Stream stream);
  void require_stream(Stream stream) const;

 private:
  struct PrimaryContext {
    unsigned int references = 0;
    Result broken = Result::kSuccess;  // otherwise the result of every later call
    Result late = Result::kSuccess;    // otherwise the error of a copy, not reported yet
    Allocation memory;                 // the memory that a context costs
  };
  struct SimDevice {
    Uuid uuid{};
    Store store;
    PrimaryContext context;
  };
  struct Handle {
    Device device = 0;
    Allocation memory;
    HandleType exportable = HandleType::kNone;
    unsigned int references = 0;
    bool imported = false;
  };

  SimDevice& at(Device device);
  const SimDevice& at(Device device) const;
  const Handle& find_handle(AllocationHandle handle) const;
  AllocationHandle add_handle(Handle handle);
  void synchronize(PrimaryContext& context);
  /// For map-needs-context: throws unless the current context is valid.
  void require_context_to_map() const;

  std::uint64_t granularity_;
  std::uint64_t context_size_;
  Quirks quirks_;
  /// The GPU whose slices the devices are, with the quirk "mig".
  Uuid whole_gpu_{};
  std::vector<SimDevice> devices_;  // never resized: the addresses of their contexts are CUcontexts
  AddressSpace space_;
  std::unordered_map<AllocationHandle, Handle> handles_;
  AllocationHandle last_handle_ =
      0x1000;  // not a small number, which could be confused with a descriptor
  std::map<DevicePtr, std::uint64_t> host_;  // sizes
  std::map<Stream, Device> streams_;
  std::uintptr_t last_stream_ = 0x1000;  // 1 and 2 are the legacy and the per-thread stream
};

/// The calling thread's stack of contexts, the current one last. Independent of Driver.
std::vector<Context>& thread_contexts();

}  // namespace fo::simcuda
