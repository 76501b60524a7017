// A process's view of one GMS: its lock, its allocations, and where they are mapped. Addresses stay
// reserved while nothing is mapped, so that an engine that sleeps wakes with every pointer valid.
// Blocking; for one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/memory.h"
#include "gms/client/remap_outcome.h"
#include "gms/client/rpc_client.h"
#include "gms/protocol/types.h"

namespace fo::gms {

/// One allocation as this process sees it. The address is valid while the manager lives; there is
/// memory behind it only while it is mapped.
struct MappedAllocation {
  Allocation allocation;
  cuda::abi::DevicePtr address = 0;
};

class MemoryManager {
 public:
  /// `server_uid` as RpcClient::connect takes it.
  MemoryManager(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                std::string socket_path, std::optional<uid_t> server_uid = std::nullopt);

  /// Connects and asks for a lock; nullopt when it was not to be had by `deadline`. Throws Error
  /// (kUnavailable) when there is no server.
  std::optional<Grant> connect(LockType type, const base::Deadline& deadline,
                               RpcClient::Retry retry = RpcClient::Retry::kNever);
  /// Lets the lock go. What is mapped stays mapped: the memory lives as long as anybody maps it.
  void disconnect();
  [[nodiscard]] bool connected() const { return rpc_.has_value(); }
  /// The connection, for requests that have no wrapper here. Only while connected.
  [[nodiscard]] RpcClient& rpc() { return *rpc_; }

  // For writers (rw).

  /// Allocates and maps, readable and writable.
  const MappedAllocation& allocate(base::ByteCount size, const std::string& tag = "default");
  /// The same for many at once, at addresses one after another: the new ones, in their order.
  std::span<const MappedAllocation> allocate_many(const std::vector<base::ByteCount>& sizes,
                                                  const std::string& tag = "default");
  /// Waits for the device, unmaps everything, publishes, and is disconnected.
  void commit();
  /// Seals the layout; the mappings stay, to be filled. Returns the layout's hash.
  std::string seal();

  // For readers (ro, rw_data).

  /// Imports and maps the whole layout, at addresses one after another, and remembers its hash.
  /// Nothing may be mapped before.
  void import_all(cuda::Access access);
  /// All metadata of the layout.
  Metadata fetch_metadata();
  /// Unmaps and disconnects; the addresses stay reserved.
  void unmap_all();
  /// Maps again, at the same addresses, what unmap_all took away, if the layout is still the same:
  /// its hash and, rank by rank in slot order, sizes and tags (ids and slots may differ after a
  /// re-publish). On any result but kOk nothing is mapped, nor when this throws:
  /// CudaError when the device fails, and what outcome_of throws.
  RemapOutcome remap_all(const base::Deadline& deadline);

  /// By layout slot.
  [[nodiscard]] const std::vector<MappedAllocation>& allocations() const { return allocations_; }
  [[nodiscard]] bool mapped() const { return !mappings_.empty(); }
  /// The hash of what import_all imported.
  [[nodiscard]] const std::string& layout_hash() const { return layout_hash_; }
  [[nodiscard]] base::ByteCount bytes() const;
  [[nodiscard]] const cuda::DeviceInfo& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<const cuda::Driver>& driver() const { return driver_; }

 private:
  /// One range for all of them, one after another.
  void reserve(std::vector<Allocation> allocations);
  /// Imports and maps allocations_[rank] and those after it at their addresses.
  void map_from(std::size_t rank, cuda::Access access);
  /// Waits for what the device still does, if this thread has a context that could have made it.
  void synchronize_if_current() const;
  [[nodiscard]] std::optional<std::string> difference_from(
      const std::vector<Allocation>& found) const;

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string socket_path_;
  std::optional<uid_t> server_uid_;
  std::optional<RpcClient> rpc_;
  std::string layout_hash_;
  std::vector<MappedAllocation> allocations_;
  // Mappings, one per allocation, go before the ranges they lie in.
  std::vector<cuda::AddressRange> ranges_;
  std::vector<cuda::Mapping> mappings_;
};

}  // namespace fo::gms
