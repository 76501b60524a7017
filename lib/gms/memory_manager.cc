#include "gms/memory_manager.h"

#include <utility>

#include "base/error.h"

namespace fo::gms {

using base::Deadline;
using base::Error;
using base::ExitStatus;

MemoryManager::MemoryManager(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                             std::string socket_path)
    : driver_(std::move(driver)),
      device_(std::move(device)),
      socket_path_(std::move(socket_path)) {}

std::optional<Grant> MemoryManager::connect(LockType type, const Deadline& deadline,
                                            RpcClient::Retry retry) {
  RpcClient rpc = RpcClient::connect(socket_path_, deadline, retry);
  const Handshake handshake = rpc.shake_hands(type, deadline);
  if (handshake.grant) {
    rpc.set_deadline(Deadline::never());
    rpc_.emplace(std::move(rpc));
  }
  return handshake.grant;
}

void MemoryManager::disconnect() { rpc_.reset(); }

void MemoryManager::reserve(Allocation allocation) {
  cuda::AddressRange range = cuda::AddressRange::reserve(driver_, allocation.aligned_size);
  allocations_.push_back({std::move(allocation), range.address()});
  ranges_.push_back(std::move(range));
}

void MemoryManager::map(std::size_t rank, cuda::Access access) {
  const MappedAllocation& target = allocations_[rank];
  const base::UniqueFd fd = rpc_->export_allocation(target.allocation.allocation_id);
  const base::ByteCount size = target.allocation.aligned_size;
  // The handle may go: the mapping is a reference of its own.
  const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), size);
  cuda::Mapping mapping = cuda::Mapping::map(driver_, target.address, size, memory);
  cuda::set_access(*driver_, target.address, size, device_.ordinal, access);
  mappings_.push_back(std::move(mapping));
}

const MappedAllocation& MemoryManager::allocate(base::ByteCount size, const std::string& tag) {
  const AllocateResponse made = rpc_->allocate(size, tag);
  reserve({made.allocation_id, size, static_cast<base::ByteCount>(made.aligned_size), tag,
           static_cast<std::uint64_t>(made.layout_slot)});
  map(allocations_.size() - 1, cuda::Access::kReadWrite);
  return allocations_.back();
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

std::string MemoryManager::seal() { return layout_hash_ = rpc_->seal(); }

void MemoryManager::import_all(cuda::Access access) {
  if (!allocations_.empty()) {
    throw Error(ExitStatus::kSoftware, "import a layout: one is there already");
  }
  access_ = access;
  layout_hash_ = rpc_->layout_hash();
  for (Allocation& allocation : rpc_->list_allocations()) reserve(std::move(allocation));
  for (std::size_t rank = 0; rank < allocations_.size(); ++rank) map(rank, access);
  synchronize_if_current();
}

Metadata MemoryManager::fetch_metadata() {
  Metadata metadata;
  for (std::string& key : rpc_->list_metadata()) {
    std::optional<MetadataEntry> entry = rpc_->get_metadata(key);
    if (entry) metadata.emplace(std::move(key), std::move(*entry));
  }
  return metadata;
}

void MemoryManager::unmap_all() {
  synchronize_if_current();
  for (cuda::Mapping& mapping : mappings_) mapping.close();
  mappings_.clear();
  disconnect();
}

std::optional<std::string> MemoryManager::difference_from(
    const std::vector<Allocation>& found) const {
  if (found.size() != allocations_.size()) {
    return std::to_string(found.size()) + " allocations instead of " +
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
  if (!mappings_.empty()) throw Error(ExitStatus::kSoftware, "remap: something is mapped");
  const auto give_up = [this](RemapResult result, std::string reason) {
    mappings_.clear();
    disconnect();
    return RemapOutcome{result, std::move(reason)};
  };
  try {
    if (!connect(LockType::kRo, deadline)) {
      return give_up(RemapResult::kTimedOut,
                     "remap from " + base::quoted(socket_path_) + ": no reader's lock in time");
    }
    rpc_->set_deadline(deadline);
    const std::string hash = rpc_->layout_hash();
    if (!layout_hash_.empty() && hash != layout_hash_) {
      return give_up(RemapResult::kStaleLayout, "remap from " + base::quoted(socket_path_) +
                                                    ": layout " + hash + " instead of " +
                                                    layout_hash_);
    }
    std::vector<Allocation> found = rpc_->list_allocations();
    if (const auto difference = difference_from(found)) {
      return give_up(RemapResult::kStaleLayout,
                     "remap from " + base::quoted(socket_path_) + ": " + *difference);
    }
    layout_hash_ = hash;
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      allocations_[rank].allocation = std::move(found[rank]);
      map(rank, access_);
    }
    synchronize_if_current();
    rpc_->set_deadline(Deadline::never());
    return {};
  } catch (const cuda::CudaError&) {
    give_up(RemapResult::kOk, {});
    throw;
  } catch (const Error& error) {
    give_up(RemapResult::kOk, {});
    return outcome_of(error);
  }
}

base::ByteCount MemoryManager::bytes() const {
  base::ByteCount sum = 0;
  for (const MappedAllocation& one : allocations_) sum += one.allocation.aligned_size;
  return sum;
}

}  // namespace fo::gms
