#include "gms/client/map_check.h"

#include <cstddef>
#include <span>

#include "base/error.h"
#include "cuda/memory.h"
#include "gms/client/memory_manager.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;

void read_byte(const cuda::Driver& driver, cuda::abi::DevicePtr from) {
  std::byte byte{};
  cuda::copy_to_host(driver, std::span(&byte, 1), from);
}

// False if the deadline passes meanwhile.
bool read_granules(const MemoryManager& manager, const Deadline& deadline) {
  const cuda::Driver& driver = *manager.driver();
  for (const MappedAllocation& one : manager.allocations()) {
    const base::ByteCount size = one.allocation.aligned_size;
    for (base::ByteCount at = 0; at < size; at += manager.device().granularity) {
      if (deadline.expired()) return false;
      read_byte(driver, one.address + at);
    }
    read_byte(driver, one.address + size - 1);
  }
  return true;
}

RemapOutcome check(MemoryManager& manager, const LayoutHash& expect_hash, const Deadline& deadline,
                   const std::string& what) {
  if (!manager.connect(LockType::kRo, deadline)) return no_lock_in_time(what);
  manager.rpc().set_deadline(deadline);
  RemapOutcome compared = compare_layouts(what, manager.rpc().layout_hash(), expect_hash);
  if (compared.result != RemapResult::kOk) return compared;
  manager.import_all(cuda::Access::kRead);
  if (!read_granules(manager, deadline)) {
    return {RemapResult::kTimedOut, what + ": not read in time"};
  }
  return {};
}

}  // namespace

RemapCheck map_and_read(const std::shared_ptr<const cuda::Driver>& driver,
                        const cuda::DeviceInfo& device, const RemapCheckRequest& request,
                        const Deadline& deadline) {
  const auto start = Deadline::Clock::now();
  const auto context = cuda::PrimaryContext::retain(driver, device.ordinal);
  MemoryManager manager(driver, device, request.socket, request.server_uid);
  RemapCheck result;
  result.socket = request.socket;
  try {
    result.outcome = check(manager, request.expect_hash, deadline,
                           "map the layout of the GMS at " + base::quoted(request.socket));
  } catch (const cuda::CudaError&) {
    throw;
  } catch (const Error& error) {
    result.outcome = outcome_of(error);
  }
  result.memory_layout_hash = manager.layout_hash();
  result.allocation_count = manager.allocations().size();
  result.bytes = manager.bytes();
  result.mapped = result.outcome.result == RemapResult::kOk;
  result.took = Deadline::Clock::now() - start;
  return result;
}

}  // namespace fo::gms
