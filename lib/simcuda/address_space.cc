// See address_space.h.
#include "simcuda/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace fo::simcuda {
namespace {

void* pointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

/// Address space without memory.
void* reserve_pages(void* at, std::uint64_t size, int flags) {
  void* pages =
      ::mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (pages == MAP_FAILED) throw failure_of_errno(errno);
  return pages;
}

void keep_from_children(DevicePtr address, std::uint64_t size) {
  if (::madvise(pointer(address), size, MADV_DONTFORK) < 0) throw failure_of_errno(errno);
}

/// Access is per device, but all simulated devices read and write as this process.
int protection_of(const Mapping& mapping) {
  int protection = PROT_NONE;
  for (const auto& [device, flags] : mapping.access) {
    if (flags != AccessFlags::kNone) protection |= PROT_READ;
    if (flags == AccessFlags::kReadWrite) protection |= PROT_WRITE;
  }
  return protection;
}

}  // namespace

DevicePtr AddressSpace::reserve(std::uint64_t size, std::uint64_t alignment, DevicePtr hint) {
  if (alignment == 0) alignment = granularity_;
  require(size > 0 && size % granularity_ == 0 && (alignment & (alignment - 1)) == 0);
  alignment = std::max(alignment, granularity_);
  require(size + alignment > size, Result::kOutOfMemory);

  DevicePtr address = 0;
  if (hint != 0 && hint % alignment == 0) {
    void* pages = ::mmap(pointer(hint), size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (pages != MAP_FAILED) address = hint;
  }
  if (address == 0) {
    // The kernel aligns only to pages, so this reserves more and keeps the aligned part.
    const auto start = reinterpret_cast<DevicePtr>(reserve_pages(nullptr, size + alignment, 0));
    address = (start + alignment - 1) & ~(alignment - 1);
    if (address > start) ::munmap(pointer(start), address - start);
    ::munmap(pointer(address + size), start + alignment - address);
  }
  keep_from_children(address, size);
  ranges_[address] = size;
  return address;
}

void AddressSpace::free(DevicePtr address, std::uint64_t size) {
  const auto found = ranges_.find(address);
  require(found != ranges_.end() && found->second == size);
  require(!mapped_within(address, size));
  ::munmap(pointer(address), size);
  ranges_.erase(found);
}

void AddressSpace::map(DevicePtr address, std::uint64_t size, const Fd& fd,
                       const Backing& backing) {
  require(size > 0 && address % granularity_ == 0 && size % granularity_ == 0);
  require_range(address, size);
  require(!mapped_within(address, size));
  if (::mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd.get(), 0) ==
      MAP_FAILED) {
    throw failure_of_errno(errno);
  }
  mappings_[address] = {size, backing, {}};
  ++uses_[backing.file];
  keep_from_children(address, size);
}

std::vector<Backing> AddressSpace::unmap(DevicePtr address, std::uint64_t size) {
  require_whole_mappings(address, size);
  require_range(address, size);
  reserve_pages(pointer(address), size, MAP_FIXED);
  keep_from_children(address, size);
  std::vector<Backing> gone;
  const auto first = mappings_.find(address);
  const auto end = mappings_.lower_bound(address + size);
  for (auto it = first; it != end; ++it) {
    gone.push_back(it->second.backing);
    const auto use = uses_.find(it->second.backing.file);
    if (--use->second == 0) uses_.erase(use);
  }
  mappings_.erase(first, end);
  return gone;
}

void AddressSpace::set_access(DevicePtr address, std::uint64_t size, int device,
                              AccessFlags flags) {
  require(flags == AccessFlags::kNone || flags == AccessFlags::kRead ||
          flags == AccessFlags::kReadWrite);
  require_whole_mappings(address, size);
  const auto end = mappings_.lower_bound(address + size);
  for (auto it = mappings_.find(address); it != end;) {
    // One call for adjacent mappings with equal protection.
    const DevicePtr start = it->first;
    std::uint64_t length = 0;
    it->second.access[device] = flags;
    const int protection = protection_of(it->second);
    for (;
         it != end && (it->second.access[device] = flags, protection_of(it->second)) == protection;
         ++it) {
      length += it->second.size;
    }
    if (::mprotect(pointer(start), length, protection) < 0) throw failure_of_errno(errno);
  }
}

AddressSpace::Found AddressSpace::find(DevicePtr address) const {
  auto after = mappings_.upper_bound(address);
  require(after != mappings_.begin());
  const auto found = std::prev(after);
  require(address - found->first < found->second.size);
  return {found->first, &found->second};
}

void AddressSpace::check_access(DevicePtr address, std::uint64_t size, bool writing) const {
  bool allowed = true;
  const int need = writing ? PROT_WRITE : PROT_READ;
  while (size > 0) {
    const Found found = find(address);
    allowed = allowed && (protection_of(*found.mapping) & need) != 0;
    const std::uint64_t step = std::min(size, found.address + found.mapping->size - address);
    address += step;
    size -= step;
  }
  require(allowed, Result::kIllegalAddress);
}

bool AddressSpace::mapped_within(DevicePtr address, std::uint64_t size) const {
  const auto after = mappings_.lower_bound(address + size);
  if (after == mappings_.begin()) return false;
  const auto last = std::prev(after);
  return last->first + last->second.size > address;
}

void AddressSpace::require_range(DevicePtr address, std::uint64_t size) const {
  const auto after = ranges_.upper_bound(address);
  require(after != ranges_.begin());
  const auto& [start, length] = *std::prev(after);
  const std::uint64_t offset = address - start;
  require(offset < length && size <= length - offset);
}

void AddressSpace::require_whole_mappings(DevicePtr address, std::uint64_t size) const {
  require(size > 0);
  auto it = mappings_.find(address);
  while (size > 0) {
    require(it != mappings_.end() && it->first == address && it->second.size <= size);
    address += it->second.size;
    size -= it->second.size;
    ++it;
  }
}

}  // namespace fo::simcuda
