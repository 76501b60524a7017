// The memory of a rank's KV cache: device memory of this process, released while the engine sleeps.
// If the host cannot access device memory, the rank works on a copy and writes it through.
#pragma once

#include <memory>
#include <vector>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "refengine/kv/kv_layout.h"

namespace fo::refengine {

class KvMemory {
 public:
  /// Reserves addresses; allocates nothing yet. `copies`: the host can't reach device memory.
  KvMemory(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
           const KvLayout& layout, base::ByteCount bytes, bool copies);

  /// Allocates the memory. While the device is full, it retries until `deadline`, because memory
  /// that another process has released may become free late. Throws cuda::OutOfMemory (status 75)
  /// at the deadline.
  void allocate(const base::Deadline& deadline);
  void free();

  /// The memory that Transformer::forward reads and writes.
  [[nodiscard]] float* data();
  /// Copies `count` positions from `position` on to the device, if there are copies. To be called
  /// after data() was written; needs a current context.
  void write_through(std::size_t position, std::size_t count);

  /// The size, rounded up to the device's granularity.
  [[nodiscard]] base::ByteCount bytes() const { return range_.size(); }

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  KvLayout layout_;
  bool copies_;
  cuda::AddressRange range_;
  cuda::Mapping mapping_;
  std::vector<float> host_copy_;
};

}  // namespace fo::refengine
