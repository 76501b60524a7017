// One thread's way between files and device memory: straight, where device memory is host memory
// (the simulated driver), or through a ring of pinned staging buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/strong.h"
#include "cuda/driver.h"
#include "weights/model.h"

namespace fo::weights {

/// How the lanes of all threads are made.
struct LaneConfig {
  std::shared_ptr<const cuda::Driver> driver;
  /// No call takes more than this at a time.
  base::ByteCount chunk = 0;
  /// Staging buffers of `chunk` bytes each; 0: straight.
  std::size_t buffers = 0;
};

/// Every call throws CudaError for what the device refuses. With staging buffers, the thread needs
/// a current context for as long as the lane lives.
class Lane {
 public:
  explicit Lane(const LaneConfig& config);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  /// Reads a file's bytes into device memory; done after finish().
  void load(const ModelFile& file, base::ByteCount offset, base::ByteCount size,
            cuda::abi::DevicePtr to);
  /// What is in device memory; valid until the next call.
  std::span<const std::byte> view(cuda::abi::DevicePtr from, base::ByteCount size);
  /// Host memory of this thread's, of the chunk's size.
  std::span<std::byte> scratch();
  /// Waits until everything loaded is in device memory.
  void finish();

 private:
  class Buffer;

  LaneConfig config_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::size_t next_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace fo::weights
