// The device memory behind a server's layout. CUDA calls may stall, so they run on a thread of
// their own, in the order in which they were asked for: what is created sees released what was
// released before.
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
#include "base/units.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "cuda/memory.h"

namespace fo::gms {

/// The memory of one allocation: made by this process, or kept by a descriptor that the vault had
/// over a crash. A kept one is never imported here: whether a driver exports what it has imported,
/// and imports without a context, is not documented, and a copy of the descriptor serves as well.
class ServedMemory {
 public:
  explicit ServedMemory(cuda::PhysicalMemory made) : made_(std::move(made)), size_(made_.size()) {}
  ServedMemory(base::UniqueFd kept, base::ByteCount size) : kept_(std::move(kept)), size_(size) {}

  /// A new descriptor for a client to import: an export, or a copy. Throws CudaError, and
  /// Error(kOsError) for a descriptor that can't be copied.
  [[nodiscard]] base::UniqueFd export_fd() const;
  /// Gives it up; throws CudaError. May wait for the driver.
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

  /// `on_failure` is told, on the loop, of a release that failed.
  MemoryPool(boost::asio::io_context& io, std::shared_ptr<const cuda::Driver> driver,
             base::DeviceOrdinal device, std::function<void(std::exception_ptr)> on_failure);

  struct Created {
    std::vector<Memory> memory;
    /// Whether it was not for want of descriptors that it is not all.
    bool has_descriptors = true;
  };
  /// Memory of these sizes, multiples of the granularity, in their order: all of it, or as much as
  /// there is room and are descriptors for. Throws CudaError.
  boost::asio::awaitable<Created> create(std::vector<base::ByteCount> sizes);
  /// A new descriptor of each. Throws CudaError; Error(kTryAgain) when there are no descriptors
  /// left.
  boost::asio::awaitable<std::vector<base::UniqueFd>> export_fds(std::vector<Memory> memory);
  /// What the device has and has free; nullopt where nobody can tell without a context. Asked on
  /// another thread than the rest: an answer may be long in coming.
  boost::asio::awaitable<std::optional<cuda::MemoryInfo>> memory_info();
  /// Gives the memory up; returns at once.
  void release(std::vector<Memory> memory);

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  base::DeviceOrdinal device_;
  std::function<void(std::exception_ptr)> on_failure_;
  boost::asio::io_context& io_;
  boost::asio::thread_pool thread_{1};
  /// Started by the first question.
  std::optional<boost::asio::thread_pool> asking_;
};

}  // namespace fo::gms
