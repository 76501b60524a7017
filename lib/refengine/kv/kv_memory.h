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

  /// Takes the memory, waiting until `deadline` for a device that is full: what another process
  /// held a moment ago may be late in coming back. Throws cuda::OutOfMemory (status 75) after it.
  void allocate(const base::Deadline& deadline);
  void free();

  /// The memory that Transformer::forward reads and writes.
  [[nodiscard]] float* data();
  /// After it wrote `count` positions from `position`. With copies, needs a current context.
  void write_through(std::size_t position, std::size_t count);

  /// Rounded up to the device's granularity.
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
