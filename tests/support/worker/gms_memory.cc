#include "support/worker/gms_memory.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "gms/protocol/endpoint.h"
#include "gms/protocol/tensor_metadata.h"
#include "refengine/model/dtype.h"

namespace fo::stand_in {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using gms::RpcClient;

// How long to retry a missing socket: as Dynamo's client does, or STAND_IN_CONNECT_TIME for a test
// that waits for the timeout.
base::Duration connect_time() {
  const char* text = std::getenv("STAND_IN_CONNECT_TIME");
  const auto given = text == nullptr ? std::nullopt : base::parse_duration(text);
  return given.value_or(std::chrono::seconds(30));
}

}  // namespace

// By the device's UUID, from NVML at the index that torch uses, and not by the links of gms-serve.
GmsMemory::GmsMemory(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                     std::string tag)
    : driver_(std::move(driver)),
      device_(std::move(device)),
      tag_(std::move(tag)),
      path_(gms::socket_path(gms::socket_dir_or_default(""), device_.uuid, tag_)) {}

gms::Grant GmsMemory::connect(gms::LockType type, std::optional<base::Duration> timeout) {
  RpcClient rpc = RpcClient::connect(path_, Deadline::after(connect_time()),
                                     RpcClient::Retry::kUntilTheDeadline);
  rpc.set_deadline(Deadline::never());
  const gms::Handshake handshake = rpc.request_lock(type, Deadline::after(timeout));
  if (!handshake.grant) {
    throw Error(ExitStatus::kTryAgain, "GMS " + path_ + ": Timeout waiting for lock");
  }
  rpc_.emplace(std::move(rpc));
  return *handshake.grant;
}

void GmsMemory::reserve(base::ByteCount size) {
  Block block;
  block.size = base::round_up(size, device_.granularity);
  block.range = cuda::AddressRange::reserve(driver_, block.size);
  blocks_.push_back(std::move(block));
}

void GmsMemory::map(const Block& block, cuda::Access access) {
  const base::UniqueFd fd = rpc_->export_allocation(block.id);
  const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), block.size);
  mappings_.push_back(cuda::Mapping::map(driver_, block.range.address(), block.size, memory));
  cuda::set_access(*driver_, block.range.address(), block.size, device_.ordinal, access);
}

void GmsMemory::allocate(const std::vector<base::ByteCount>& sizes) {
  for (const base::ByteCount size : sizes) reserve(size);
  allocate_again();
}

void GmsMemory::allocate_again() {
  for (Block& block : blocks_) {
    block.id = rpc_->allocate(block.size, tag_).allocation_id;
    map(block, cuda::Access::kReadWrite);
  }
}

void GmsMemory::put_tensor(const std::string& name, std::size_t index, base::ByteCount floats) {
  gms::TensorMetadata tensor;
  tensor.dtype = "torch.float32";
  tensor.shape = {floats};
  tensor.stride = {1};
  rpc_->put_metadata(name, blocks_.at(index).id, 0, gms::format_tensor_metadata(tensor));
}

void GmsMemory::publish() {
  read_tensors();
  cuda::synchronize(*driver_);
  mappings_.clear();
  rpc_->commit();
  rpc_.reset();
  connect(gms::LockType::kRo);
  remap();
}

void GmsMemory::import_layout() {
  hash_ = rpc_->layout_hash();
  for (const gms::Allocation& one : rpc_->list_allocations()) {
    reserve(one.aligned_size);
    blocks_.back().id = one.allocation_id;
  }
  read_tensors();
  for (const Block& block : blocks_) map(block, cuda::Access::kRead);
}

void GmsMemory::remap() {
  gms::LayoutHash hash = rpc_->layout_hash();
  const std::vector<gms::Allocation> found = rpc_->list_allocations();
  bool same = (hash_.empty() || hash == hash_) && found.size() == blocks_.size();
  for (std::size_t i = 0; same && i < found.size(); ++i) {
    same = found[i].aligned_size == blocks_[i].size;
    blocks_[i].id = found[i].allocation_id;
  }
  if (!same) throw Error(ExitStatus::kBadData, "GMS " + path_ + ": Layout changed");
  hash_ = std::move(hash);
  for (const Block& block : blocks_) map(block, cuda::Access::kRead);
}

// One key after another: Dynamo's protocol has no request for all of them.
void GmsMemory::read_tensors() {
  tensors_.clear();
  std::vector<std::string> names = rpc_->list_metadata();
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto entry = rpc_->get_metadata(name);
    const auto tensor = entry ? gms::parse_tensor_metadata(entry->value) : std::nullopt;
    const auto dtype = tensor ? refengine::parse_torch_dtype(tensor->dtype) : std::nullopt;
    const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& one) {
      return entry && one.id == entry->allocation_id;
    });
    if (!dtype || block == blocks_.end()) continue;
    base::ByteCount size = refengine::dtype_size(*dtype);
    for (const base::ByteCount extent : tensor->shape) size *= extent;
    tensors_.push_back({block->range.address() + entry->offset_bytes, size});
  }
}

void GmsMemory::map_granules(const Block& block, const cuda::PhysicalMemory& granule) {
  for (base::ByteCount at = 0; at < block.size; at += granule.size()) {
    mappings_.push_back(
        cuda::Mapping::map(driver_, block.range.address() + at, granule.size(), granule));
  }
  cuda::set_access(*driver_, block.range.address(), block.size, device_.ordinal,
                   cuda::Access::kReadWrite);
}

void GmsMemory::map_scratch(const std::vector<base::ByteCount>& sizes) {
  const auto granule = cuda::PhysicalMemory::create(driver_, device_.ordinal, device_.granularity);
  for (const base::ByteCount size : sizes) {
    reserve(size);
    map_granules(blocks_.back(), granule);
  }
}

void GmsMemory::unmap_and_abort() {
  cuda::synchronize(*driver_);
  mappings_.clear();
  rpc_.reset();
}

base::ByteCount GmsMemory::bytes() const {
  base::ByteCount sum = 0;
  for (const Block& block : blocks_) sum += block.size;
  return sum;
}

}  // namespace fo::stand_in
