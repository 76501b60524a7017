// One thread's copies between files and device memory: direct if device memory is host memory (the
// simulated driver), else through a ring of pinned staging buffers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/strong.h"
#include "cuda/driver.h"
#include "cuda/memory.h"
#include "weights/copy_plan.h"
#include "weights/file/weight_file.h"

namespace fo::weights {

/// The configuration of the lanes of all threads.
struct LaneConfig {
  std::shared_ptr<const cuda::Driver> driver;
  /// Maximum size of one call.
  base::ByteCount chunk = 0;
  /// Number of staging buffers of `chunk` bytes each; 0: copy directly.
  std::size_t buffers = 0;
  std::size_t threads = 1;
};

/// Configures lanes for `threads` threads; 0 stands for one per CPU, at most 8. `ring` is the total
/// size of their staging buffers; if it is too small for all threads, there are fewer threads. 0
/// means no buffers, the default with the simulated driver; with a real driver it throws
/// Error(kUsage).
LaneConfig lane_config(const std::shared_ptr<const cuda::Driver>& driver, std::size_t threads,
                       std::optional<base::ByteCount> ring);

/// The context of a load or save. Retain it before anything is mapped, because it is not documented
/// whether mapping works without one. If the device is out of memory, it retries for two seconds,
/// because memory of a process that has just ended may be freed late; then it throws
/// cuda::OutOfMemory.
cuda::PrimaryContext retain_context(const std::shared_ptr<const cuda::Driver>& driver,
                                    base::DeviceOrdinal device);

/// Every call throws CudaError if the device fails. With staging buffers, the thread needs a
/// current context while the lane lives.
class Lane {
 public:
  /// Receives the bytes that pass through, piece by piece.
  using Sink = std::function<void(std::span<const std::byte>)>;

  explicit Lane(LaneConfig config);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  /// Reads a run of a file into the allocation at that device address; complete after finish().
  /// `sink`, if set, receives the bytes.
  void load(const WeightFile& file, const CopyRun& run, cuda::abi::DevicePtr allocation,
            const Sink& sink = {});
  /// The content of device memory, at most one chunk; valid until the next call.
  std::span<const std::byte> view(cuda::abi::DevicePtr from, base::ByteCount size);
  /// Host memory of this thread, a bit larger than a chunk, aligned for direct reads.
  std::span<std::byte> scratch();
  /// Waits until all loaded bytes are in device memory.
  void finish();

 private:
  class Buffer;
  struct Free {
    void operator()(std::byte* memory) const;
  };

  void load_straight(const WeightFile& file, const CopyRun& run, std::byte* to, const Sink& sink);
  void load_staged(const WeightFile& file, const CopyRun& run, cuda::abi::DevicePtr to,
                   const Sink& sink);
  Buffer& next_buffer();

  LaneConfig config_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::size_t next_ = 0;
  std::unique_ptr<std::byte, Free> scratch_;
};

}  // namespace fo::weights
