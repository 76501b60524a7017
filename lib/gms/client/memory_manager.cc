#include "gms/client/memory_manager.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace fo::gms {

using base::Deadline;
using base::Error;
using base::ExitStatus;

MemoryManager::MemoryManager(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                             std::string socket_path, std::optional<uid_t> server_uid)
    : driver_(std::move(driver)),
      device_(std::move(device)),
      socket_path_(std::move(socket_path)),
      server_uid_(server_uid) {}

std::optional<Grant> MemoryManager::connect(LockType type, const Deadline& deadline,
                                            RpcClient::Retry retry) {
  RpcClient rpc = RpcClient::connect(socket_path_, deadline, retry, server_uid_);
  const Handshake handshake = rpc.request_lock(type, deadline);
  if (handshake.grant) {
    rpc.set_deadline(Deadline::never());
    rpc_.emplace(std::move(rpc));
  }
  return handshake.grant;
}

void MemoryManager::disconnect() { rpc_.reset(); }

void MemoryManager::reserve(std::vector<Allocation> allocations) {
  base::ByteCount size = 0;
  for (const Allocation& one : allocations) {
    size += one.aligned_size;
    if (size < one.aligned_size) {
      throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(socket_path_) +
                                             ": the layout's size is over 2^64 bytes");
    }
  }
  if (size == 0) return;
  ranges_.push_back(cuda::AddressRange::reserve(driver_, size));
  cuda::abi::DevicePtr address = ranges_.back().address();
  for (Allocation& one : allocations) {
    allocations_.push_back({std::move(one), address});
    address += allocations_.back().allocation.aligned_size;
  }
}

void MemoryManager::map_from(std::size_t rank, cuda::Access access) {
  std::vector<Allocation> wanted;
  wanted.reserve(allocations_.size() - rank);
  for (const auto& one : std::span(allocations_).subspan(rank)) wanted.push_back(one.allocation);
  // Adjacent mappings are made accessible in one call, which costs far more than a mapping.
  cuda::abi::DevicePtr begin = 0;
  cuda::abi::DevicePtr end = 0;
  const auto make_accessible = [&] {
    if (end > begin) cuda::set_access(*driver_, begin, end - begin, device_.ordinal, access);
  };
  for (std::size_t next = 0; next < wanted.size();) {
    for (const base::UniqueFd& fd : rpc_->export_from(wanted, next)) {
      const MappedAllocation& target = allocations_[rank + next++];
      const base::ByteCount size = target.allocation.aligned_size;
      // The handle can be released: the mapping is a reference of its own.
      const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), size);
      mappings_.push_back(cuda::Mapping::map(driver_, target.address, size, memory));
      if (target.address != end) {
        make_accessible();
        begin = target.address;
      }
      end = target.address + size;
    }
  }
  make_accessible();
}

const MappedAllocation& MemoryManager::allocate(base::ByteCount size, const std::string& tag) {
  return allocate_many({size}, tag).front();
}

std::span<const MappedAllocation> MemoryManager::allocate_many(
    const std::vector<base::ByteCount>& sizes, const std::string& tag) {
  std::vector<Allocation> made;
  std::size_t at = 0;
  for (AllocateResponse& one : rpc_->allocate_many(sizes, tag)) {
    made.push_back({std::move(one.allocation_id), sizes[at++],
                    static_cast<base::ByteCount>(one.aligned_size), tag,
                    static_cast<std::uint64_t>(one.layout_slot)});
  }
  const std::size_t first = allocations_.size();
  reserve(std::move(made));
  map_from(first, cuda::Access::kReadWrite);
  return std::span(allocations_).subspan(first);
}

void MemoryManager::synchronize_if_current() const {
  cuda::abi::Context current = nullptr;
  driver_->check(driver_->api().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current != nullptr) cuda::synchronize(*driver_);
}

void MemoryManager::commit() {
  synchronize_if_current();
  for (cuda::Mapping& mapping : mappings_) mapping.close();
  mappings_.clear();
  rpc_->commit();
  disconnect();
}

LayoutHash MemoryManager::seal() { return layout_hash_ = rpc_->seal(); }

void MemoryManager::import_all(cuda::Access access) {
  if (!allocations_.empty()) {
    throw Error(ExitStatus::kSoftware, "import a layout: one is imported already");
  }
  layout_hash_ = rpc_->layout_hash();
  reserve(rpc_->list_allocations());
  map_from(0, access);
  synchronize_if_current();
}

Metadata MemoryManager::fetch_metadata() { return rpc_->fetch_metadata(); }

void MemoryManager::unmap_all() {
  synchronize_if_current();
  for (cuda::Mapping& mapping : mappings_) mapping.close();
  mappings_.clear();
  disconnect();
}

std::optional<std::string> MemoryManager::difference_from(
    const std::vector<Allocation>& found) const {
  if (found.size() != allocations_.size()) {
    return base::counted(found.size(), "allocation") + " instead of " +
           std::to_string(allocations_.size());
  }
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const Allocation& before = allocations_[rank].allocation;
    if (found[rank].aligned_size != before.aligned_size || found[rank].tag != before.tag) {
      return "allocation " + std::to_string(rank) + " differs in size or tag";
    }
  }
  return std::nullopt;
}

RemapOutcome MemoryManager::remap_all(const Deadline& deadline) {
  if (!mappings_.empty()) throw Error(ExitStatus::kSoftware, "remap: a layout is mapped already");
  const std::string what = "remap from " + base::quoted(socket_path_);
  const auto fail = [this](RemapOutcome outcome) {
    mappings_.clear();
    disconnect();
    return outcome;
  };
  try {
    if (!connect(LockType::kRo, deadline)) return fail(no_lock_in_time(what));
    rpc_->set_deadline(deadline);
    LayoutHash hash = rpc_->layout_hash();
    RemapOutcome compared = compare_layouts(what, hash, layout_hash_);
    if (compared.result != RemapResult::kOk) return fail(std::move(compared));
    std::vector<Allocation> found = rpc_->list_allocations();
    if (const auto difference = difference_from(found)) {
      return fail({RemapResult::kStaleLayout, what + ": Layout changed: " + *difference});
    }
    layout_hash_ = std::move(hash);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      allocations_[rank].allocation = std::move(found[rank]);
    }
    map_from(0, cuda::Access::kRead);
    synchronize_if_current();
    rpc_->set_deadline(Deadline::never());
    return {};
  } catch (const cuda::CudaError&) {
    fail({});
    throw;
  } catch (const Error& error) {
    fail({});
    return outcome_of(error);
  }
}

base::ByteCount MemoryManager::bytes() const {
  base::ByteCount sum = 0;
  for (const MappedAllocation& one : allocations_) sum += one.allocation.aligned_size;
  return sum;
}

}  // namespace fo::gms
