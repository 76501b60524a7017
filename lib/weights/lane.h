// One thread's way between files and device memory: straight, where device memory is host memory
// (the simulated driver), or through a ring of pinned staging buffers.
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
#include "weights/weight_file.h"

namespace fo::weights {

/// How the lanes of all threads are made.
struct LaneConfig {
  std::shared_ptr<const cuda::Driver> driver;
  /// No call takes more than this at a time.
  base::ByteCount chunk = 0;
  /// Staging buffers for `chunk` bytes each; 0: straight.
  std::size_t buffers = 0;
  std::size_t threads = 1;
};

/// Lanes of so many threads, where 0 is one for each CPU, at most 8; their staging buffers are
/// `ring` bytes together, of which fewer threads get what more would have too little of; 0 for
/// none, which is what the simulated driver gets by default. Throws Error(kUsage) for none with a
/// real one.
LaneConfig lane_config(const std::shared_ptr<const cuda::Driver>& driver, std::size_t threads,
                       std::optional<base::ByteCount> ring);

/// The context of a load or save, to be retained before anything is mapped: whether a driver maps
/// without one is not documented. Tried again for two seconds where the device has no room for it,
/// since memory of a process that has just ended may be freed late; then throws cuda::OutOfMemory.
cuda::PrimaryContext retain_context(const std::shared_ptr<const cuda::Driver>& driver,
                                    base::DeviceOrdinal device);

/// Every call throws CudaError for what the device refuses. With staging buffers, the thread needs
/// a current context for as long as the lane lives.
class Lane {
 public:
  /// Takes bytes on their way, piece after piece.
  using Sink = std::function<void(std::span<const std::byte>)>;

  explicit Lane(LaneConfig config);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  /// Reads a run of a file to where its allocation begins in device memory; done after finish().
  /// `sink`, where there is one, sees the bytes that were read.
  void load(const WeightFile& file, const CopyRun& run, cuda::abi::DevicePtr allocation,
            const Sink& sink = {});
  /// What is in device memory, of at most the chunk's size; valid until the next call.
  std::span<const std::byte> view(cuda::abi::DevicePtr from, base::ByteCount size);
  /// Host memory of this thread's, of the chunk's size and a bit more, aligned for direct reads.
  std::span<std::byte> scratch();
  /// Waits until everything loaded is in device memory.
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
