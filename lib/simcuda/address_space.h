// The device address space of this process: reserved, mapped and accessible ranges. A device
// address is a host address, so a mapping is a shared mmap of the memory's file, and access is what
// mprotect gives: a write through a read-only mapping faults. As on a real driver nothing of it is
// inherited over fork.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "simcuda/abi.h"
#include "simcuda/result.h"
#include "simcuda/store.h"

namespace fo::simcuda {

/// What is behind a mapping.
struct Backing {
  int device = 0;
  FileId file = 0;
  AllocationHandle handle = 0;  // the one it was mapped by; may have been released since
  HandleType exportable = HandleType::kNone;
  bool imported = false;
};

struct Mapping {
  std::uint64_t size = 0;
  Backing backing;
  std::map<int, AccessFlags> access;  // by device; absent is none
};

/// Functions throw Failure: invalid value for any misuse. Not thread-safe.
class AddressSpace {
 public:
  /// Who made a range: cuMemAddressReserve or cuMemAlloc. Neither's functions touch the other's.
  enum class Kind { kReserved, kLinear };

  explicit AddressSpace(std::uint64_t granularity) : granularity_(granularity) {}

  /// `alignment`: a power of two, or 0 for the granularity.
  DevicePtr reserve(std::uint64_t size, std::uint64_t alignment, DevicePtr hint, Kind kind);
  /// The exact range of a reserve(), with nothing mapped in it.
  void free(DevicePtr address, std::uint64_t size, Kind kind);
  /// Within one reserved range, over nothing mapped. `fd` is not kept.
  void map(DevicePtr address, std::uint64_t size, const Fd& fd, const Backing& backing, Kind kind);
  /// One or more whole adjacent mappings; what was behind them. The range stays reserved.
  std::vector<Backing> unmap(DevicePtr address, std::uint64_t size, Kind kind);
  /// One or more whole adjacent mappings.
  void set_access(DevicePtr address, std::uint64_t size, int device, AccessFlags flags);

  /// Whether any mapping is of this file.
  [[nodiscard]] bool maps(FileId file) const { return uses_.contains(file); }

  struct Found {
    DevicePtr address = 0;
    const Mapping* mapping = nullptr;
  };
  /// The mapping that covers `address`. Throws where there is none.
  [[nodiscard]] Found find(DevicePtr address) const;

  /// Throws invalid value unless all of the range is mapped, illegal address unless all of it
  /// allows reading, or writing.
  void check_access(DevicePtr address, std::uint64_t size, bool writing) const;

 private:
  struct Range {
    std::uint64_t size = 0;
    Kind kind = Kind::kReserved;
  };

  bool mapped_within(DevicePtr address, std::uint64_t size) const;
  void require_range(DevicePtr address, std::uint64_t size, Kind kind) const;
  void require_whole_mappings(DevicePtr address, std::uint64_t size) const;

  std::uint64_t granularity_;
  std::map<DevicePtr, Range> ranges_;
  std::map<DevicePtr, Mapping> mappings_;
  std::unordered_map<FileId, std::size_t> uses_;  // how many mappings each file has
};

}  // namespace fo::simcuda
