// What one GMS socket is to an engine: the memory manager of Dynamo's client, spoken with the plain
// requests of its protocol and none of our extensions. Addresses outlive a sleep.
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

/// Bytes of the device, at an address of this process.
struct Piece {
  cuda::abi::DevicePtr address = 0;
  base::ByteCount size = 0;
};

class GmsMemory {
 public:
  GmsMemory(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device, std::string tag);

  /// Asks for a lock, for so long, or without a limit. A socket that is not there yet is looked for
  /// again for 30 s. Throws Error: kUnavailable, or kTryAgain where the lock was not to be had.
  gms::Grant connect(gms::LockType type, std::optional<base::Duration> timeout = std::nullopt);

  // With a writer's lock.

  /// Allocates and maps, at new addresses.
  void allocate(const std::vector<base::ByteCount>& sizes);
  /// The same for what scratch memory or a sleep left the addresses of.
  void allocate_again();
  /// Names what allocation `index` begins with.
  void put_tensor(const std::string& name, std::size_t index, base::ByteCount floats);
  /// Unmaps, commits, and comes back as a reader with everything mapped.
  void publish();

  // With a reader's lock.

  /// Maps the whole layout, at new addresses, and remembers it.
  void import_layout();
  /// Maps it again where it was. Throws Error(kBadData) where it is another layout.
  void remap();

  /// Without a session: these sizes of addresses, all backed by one granule of the device's memory.
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
    std::string id;
    base::ByteCount size = 0;
  };

  void reserve(base::ByteCount size);
  /// Gives the block memory of the server's, by its id.
  void map(const Block& block, cuda::Access access);
  void map_granules(const Block& block, const cuda::PhysicalMemory& granule);
  void read_tensors();

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string tag_;
  std::string path_;
  std::optional<gms::RpcClient> rpc_;
  std::string hash_;
  std::vector<Block> blocks_;
  std::vector<Piece> tensors_;
  // Mappings go before the ranges that they lie in.
  std::vector<cuda::Mapping> mappings_;
};

}  // namespace fo::stand_in
