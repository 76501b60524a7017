// The device address space of this process: reserved, mapped and accessible ranges. A device
// address is a host address: a mapping is a shared mmap of the memory's file, and access is set by
// mprotect, so a write through a read-only mapping faults. As with a real driver, nothing is
// inherited across fork.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "simcuda/result.h"
#include "simcuda/store.h"

namespace fo::simcuda {

/// The memory of a mapping.
struct Backing {
  int device = 0;
  FileId file = 0;
  AllocationHandle handle = 0;  // the handle it was mapped by; may have been released since
  HandleType exportable = HandleType::kNone;
  bool imported = false;
};

struct Mapping {
  std::uint64_t size = 0;
  Backing backing;
  std::map<int, AccessFlags> access;  // by device; missing means no access
};

/// Functions throw Failure: invalid value for any misuse. Not thread-safe.
class AddressSpace {
 public:
  explicit AddressSpace(std::uint64_t granularity) : granularity_(granularity) {}

  /// `alignment` must be a power of two, or 0 for the granularity.
  DevicePtr reserve(std::uint64_t size, std::uint64_t alignment, DevicePtr hint);
  /// Frees exactly the range of a reserve(); nothing may be mapped in it.
  void free(DevicePtr address, std::uint64_t size);
  /// The range must lie within one reserved range without mappings. `fd` is not kept.
  void map(DevicePtr address, std::uint64_t size, const Fd& fd, const Backing& backing);
  /// Unmaps one or more whole adjacent mappings; returns their memory. The range stays reserved.
  std::vector<Backing> unmap(DevicePtr address, std::uint64_t size);
  /// For one or more whole adjacent mappings.
  void set_access(DevicePtr address, std::uint64_t size, int device, AccessFlags flags);

  /// Whether a mapping of this file exists.
  [[nodiscard]] bool maps(FileId file) const { return uses_.contains(file); }

  struct Found {
    DevicePtr address = 0;
    const Mapping* mapping = nullptr;
  };
  /// The mapping that covers `address`. Throws if there is none.
  [[nodiscard]] Found find(DevicePtr address) const;

  /// Throws invalid value unless the whole range is mapped, and illegal address unless all of it
  /// may be read, or written.
  void check_access(DevicePtr address, std::uint64_t size, bool writing) const;

 private:
  bool mapped_within(DevicePtr address, std::uint64_t size) const;
  void require_range(DevicePtr address, std::uint64_t size) const;
  void require_whole_mappings(DevicePtr address, std::uint64_t size) const;

  std::uint64_t granularity_;
  std::map<DevicePtr, std::uint64_t> ranges_;  // sizes
  std::map<DevicePtr, Mapping> mappings_;
  std::unordered_map<FileId, std::size_t> uses_;  // the number of mappings of each file
};

}  // namespace fo::simcuda
