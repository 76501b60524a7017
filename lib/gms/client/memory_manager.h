// A process's view of one GMS: its lock, its allocations, and their addresses. Addresses stay
// reserved while nothing is mapped, so that all pointers of a sleeping engine are valid when it
// wakes. Blocking; for one thread.
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

/// One allocation as this process sees it. The address is valid while the manager lives; it is
/// backed by memory only while it is mapped.
struct MappedAllocation {
  Allocation allocation;
  cuda::abi::DevicePtr address = 0;
};

class MemoryManager {
 public:
  /// `server_uid` as RpcClient::connect takes it.
  MemoryManager(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                std::string socket_path, std::optional<uid_t> server_uid = std::nullopt);

  /// Connects and requests a lock; nullopt if it is not granted by `deadline`. Throws
  /// Error(kUnavailable) without a server.
  std::optional<Grant> connect(LockType type, const base::Deadline& deadline,
                               RpcClient::Retry retry = RpcClient::Retry::kNever);
  /// Releases the lock. Mappings stay valid: memory lives while any process maps it.
  void disconnect();
  [[nodiscard]] bool connected() const { return rpc_.has_value(); }
  /// The connection, for requests without a wrapper here. Only while connected.
  [[nodiscard]] RpcClient& rpc() { return *rpc_; }

  // For writers (rw).

  /// Allocates and maps, readable and writable. The reference is valid until the next allocation.
  const MappedAllocation& allocate(base::ByteCount size, const std::string& tag = "default");
  /// The same for several allocations at consecutive addresses; returns the new ones in order.
  std::span<const MappedAllocation> allocate_many(const std::vector<base::ByteCount>& sizes,
                                                  const std::string& tag = "default");
  /// Waits for the device, unmaps everything, publishes, and disconnects.
  void commit();
  /// Seals the layout; the mappings stay writable. Returns the layout's hash.
  LayoutHash seal();

  // For readers (ro, rw_data).

  /// Imports and maps the whole layout at consecutive addresses, and stores its hash. Nothing may
  /// be mapped before.
  void import_all(cuda::Access access);
  /// All metadata of the layout.
  Metadata fetch_metadata();
  /// Unmaps and disconnects; the addresses stay reserved.
  void unmap_all();
  /// Maps what unmap_all unmapped, at the same addresses, if the layout is unchanged: it has the
  /// same hash and, in slot order, the same sizes and tags (ids and slots may differ after a
  /// re-publish). Unless the result is kOk, nothing is mapped. Throws CudaError if the device
  /// fails, Error(kSoftware) if a layout is mapped, and the errors that outcome_of() throws.
  RemapOutcome remap_all(const base::Deadline& deadline);

  /// By layout slot.
  [[nodiscard]] const std::vector<MappedAllocation>& allocations() const { return allocations_; }
  [[nodiscard]] bool mapped() const { return !mappings_.empty(); }
  /// The hash of the layout that import_all imported.
  [[nodiscard]] const LayoutHash& layout_hash() const { return layout_hash_; }
  [[nodiscard]] base::ByteCount bytes() const;
  [[nodiscard]] const cuda::DeviceInfo& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<const cuda::Driver>& driver() const { return driver_; }

 private:
  /// One range for all of them, at consecutive addresses.
  void reserve(std::vector<Allocation> allocations);
  /// Imports and maps allocations_[rank] and all after it at their addresses.
  void map_from(std::size_t rank, cuda::Access access);
  /// Waits for pending work of the device, if this thread has a context that could have started it.
  void synchronize_if_current() const;
  [[nodiscard]] std::optional<std::string> difference_from(
      const std::vector<Allocation>& found) const;

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string socket_path_;
  std::optional<uid_t> server_uid_;
  std::optional<RpcClient> rpc_;
  LayoutHash layout_hash_;
  std::vector<MappedAllocation> allocations_;
  // Mappings, one per allocation, are destroyed before the ranges that contain them.
  std::vector<cuda::AddressRange> ranges_;
  std::vector<cuda::Mapping> mappings_;
};

}  // namespace fo::gms
