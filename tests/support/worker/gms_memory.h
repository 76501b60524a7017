// An engine's use of one GMS socket: the memory manager of Dynamo's client, with the plain requests
// of its protocol and without our extensions. Addresses survive a sleep.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "gms/client/rpc_client.h"
#include "gms/protocol/types.h"

namespace fo::stand_in {

/// Device memory at an address of this process.
struct Piece {
  cuda::abi::DevicePtr address = 0;
  base::ByteCount size = 0;
};

class GmsMemory {
 public:
  GmsMemory(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device, std::string tag);

  /// Requests a lock, with or without a limit. A missing socket is retried for 30 s. Throws Error:
  /// kUnavailable, or kTryAgain if the lock was not granted in time.
  gms::Grant connect(gms::LockType type, std::optional<base::Duration> timeout = std::nullopt);

  // With a writer's lock.

  /// Allocates and maps, at new addresses.
  void allocate(const std::vector<base::ByteCount>& sizes);
  /// The same at the addresses that scratch memory or a sleep has left.
  void allocate_again();
  /// Names the beginning of allocation `index`.
  void put_tensor(const std::string& name, std::size_t index, base::ByteCount floats);
  /// Unmaps, commits, and reconnects as a reader with everything mapped.
  void publish();

  // With a reader's lock.

  /// Maps the whole layout, at new addresses, and stores it.
  void import_layout();
  /// Maps it again at the same addresses. Throws Error(kBadData) for another layout.
  void remap();

  /// Without a session: reserves addresses of these sizes, all backed by one granule of device
  /// memory.
  void map_scratch(const std::vector<base::ByteCount>& sizes);

  /// Unmaps everything and ends the session. The addresses stay.
  void unmap_and_abort();

  [[nodiscard]] bool mapped() const { return !mappings_.empty(); }
  /// The layout's tensors, in the order of their names.
  [[nodiscard]] const std::vector<Piece>& tensors() const { return tensors_; }
  [[nodiscard]] cuda::abi::DevicePtr address(std::size_t index = 0) const {
    return blocks_.at(index).range.address();
  }
  [[nodiscard]] base::ByteCount bytes() const;

 private:
  struct Block {
    cuda::AddressRange range;
    gms::AllocationId id;
    base::ByteCount size = 0;
  };

  void reserve(base::ByteCount size);
  /// Maps server memory to the block, by its id.
  void map(const Block& block, cuda::Access access);
  void map_granules(const Block& block, const cuda::PhysicalMemory& granule);
  void read_tensors();

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string tag_;
  std::string path_;
  std::optional<gms::RpcClient> rpc_;
  gms::LayoutHash hash_;
  std::vector<Block> blocks_;
  std::vector<Piece> tensors_;
  // Mappings are destroyed before their ranges.
  std::vector<cuda::Mapping> mappings_;
};

}  // namespace fo::stand_in
