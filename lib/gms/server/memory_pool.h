// The device memory of a server's layout. CUDA calls may stall, so they run on a separate thread,
// in order: memory released before a creation is free for it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/memory.h"

namespace fo::gms {

/// The memory of one allocation: created by this process, or kept by a descriptor that survived a
/// crash in the descriptor store. A kept one is never imported: it is not documented whether a
/// driver exports imported memory and imports without a context, and a copy of the descriptor
/// suffices.
class ServedMemory {
 public:
  explicit ServedMemory(cuda::PhysicalMemory made) : made_(std::move(made)), size_(made_.size()) {}
  ServedMemory(base::UniqueFd kept, base::ByteCount size) : kept_(std::move(kept)), size_(size) {}

  /// A new descriptor for a client to import: an export, or a copy. Throws CudaError, and
  /// Error(kOsError) if a descriptor cannot be copied.
  [[nodiscard]] base::UniqueFd export_fd() const;
  /// Releases the memory; throws CudaError. May wait for the driver.
  void close();
  [[nodiscard]] base::ByteCount size() const { return size_; }

 private:
  cuda::PhysicalMemory made_;
  base::UniqueFd kept_;
  base::ByteCount size_;
};

class MemoryPool {
 public:
  using Memory = std::shared_ptr<ServedMemory>;

  /// `on_failure` is called on the loop if a release failed.
  MemoryPool(boost::asio::io_context& io, std::shared_ptr<const cuda::Driver> driver,
             base::DeviceOrdinal device, std::function<void(std::exception_ptr)> on_failure);

  struct Created {
    std::vector<Memory> memory;
    /// False if creation stopped because the process ran out of file descriptors.
    bool has_descriptors = true;
  };
  /// Creates memory of these sizes (multiples of the granularity), in order: all of it, or as much
  /// as the device and the free descriptors allow. Throws CudaError.
  boost::asio::awaitable<Created> create(std::vector<base::ByteCount> sizes);
  /// A new descriptor of each. Throws CudaError; Error(kTryAgain) without free descriptors.
  boost::asio::awaitable<std::vector<base::UniqueFd>> export_fds(std::vector<Memory> memory);
  /// Total and free memory of the device; nullopt if it is unknown without a context. Runs on
  /// another thread, because the answer may be slow.
  boost::asio::awaitable<std::optional<cuda::MemoryInfo>> memory_info();
  /// Releases the memory in the background.
  void release(std::vector<Memory> memory);

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  base::DeviceOrdinal device_;
  std::function<void(std::exception_ptr)> on_failure_;
  boost::asio::io_context& io_;
  boost::asio::thread_pool thread_{1};
  /// Created by the first query.
  std::optional<boost::asio::thread_pool> asking_;
};

}  // namespace fo::gms
