#include "gms/server/memory_pool.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using Memory = MemoryPool::Memory;
using Created = MemoryPool::Created;

// Reserved for the driver, and for clients that connect meanwhile.
constexpr std::size_t kSpareFds = 16;
// The number of allocations that are created between two checks, which take microseconds.
constexpr std::size_t kCreatedAtOnce = 16;

// Whether `count` descriptors and kSpareFds more are free; without them, a driver fails with
// misleading errors. The function opens them for an instant, because no system call counts them.
bool has_descriptors(std::size_t count) {
  std::vector<base::UniqueFd> taken;
  while (taken.size() < count + kSpareFds) {
    taken.emplace_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!taken.back().valid()) return errno == EBADF;
  }
  return true;
}

awaitable<Created> create_all(std::shared_ptr<const cuda::Driver> driver,
                              base::DeviceOrdinal device, std::vector<base::ByteCount> sizes) {
  Created created;
  std::vector<Memory>& made = created.memory;
  made.reserve(sizes.size());
  try {
    std::size_t provided = 0;
    for (const base::ByteCount size : sizes) {
      if (provided == 0) {
        provided = has_descriptors(kCreatedAtOnce) ? kCreatedAtOnce : 1;
        created.has_descriptors = provided > 1 || has_descriptors(1);
        if (!created.has_descriptors) break;
      }
      --provided;
      made.push_back(
          std::make_shared<ServedMemory>(cuda::PhysicalMemory::create(driver, device, size)));
    }
  } catch (const cuda::OutOfMemory&) {
    // Only as many are created as there is memory for.
  }
  co_return created;
}

awaitable<std::vector<base::UniqueFd>> export_all(std::vector<Memory> memory) {
  if (!has_descriptors(memory.size())) {
    throw base::Error(base::ExitStatus::kTryAgain,
                      "export memory: no descriptors left (ulimit -n)");
  }
  std::vector<base::UniqueFd> fds;
  fds.reserve(memory.size());
  for (const Memory& one : memory) fds.push_back(one->export_fd());
  co_return fds;
}

awaitable<void> close_all(std::vector<Memory> memory) {
  for (const Memory& one : memory) one->close();
  co_return;
}

awaitable<std::optional<cuda::MemoryInfo>> ask_device(std::shared_ptr<const cuda::Driver> driver,
                                                      base::DeviceOrdinal device) {
  std::optional<cuda::MemoryInfo> info;
  try {
    info = cuda::device_memory(driver, device).ask();
  } catch (const base::Error&) {
    // A real device without NVML.
  }
  co_return info;
}

}  // namespace

base::UniqueFd ServedMemory::export_fd() const {
  if (made_) return made_.export_fd();
  base::UniqueFd copy(::fcntl(kept_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) base::throw_errno(errno, "copy the descriptor of an allocation");
  return copy;
}

void ServedMemory::close() {
  made_.close();
  kept_.reset();
}

MemoryPool::MemoryPool(asio::io_context& io, std::shared_ptr<const cuda::Driver> driver,
                       base::DeviceOrdinal device,
                       std::function<void(std::exception_ptr)> on_failure)
    : driver_(std::move(driver)), device_(device), on_failure_(std::move(on_failure)), io_(io) {}

awaitable<Created> MemoryPool::create(std::vector<base::ByteCount> sizes) {
  return asio::co_spawn(thread_, create_all(driver_, device_, std::move(sizes)),
                        asio::use_awaitable);
}

awaitable<std::vector<base::UniqueFd>> MemoryPool::export_fds(std::vector<Memory> memory) {
  return asio::co_spawn(thread_, export_all(std::move(memory)), asio::use_awaitable);
}

awaitable<std::optional<cuda::MemoryInfo>> MemoryPool::memory_info() {
  if (!asking_) asking_.emplace(1);
  return asio::co_spawn(*asking_, ask_device(driver_, device_), asio::use_awaitable);
}

void MemoryPool::release(std::vector<Memory> memory) {
  if (memory.empty()) return;
  asio::co_spawn(thread_, close_all(std::move(memory)),
                 asio::bind_executor(io_.get_executor(), [this](std::exception_ptr failure) {
                   if (failure) on_failure_(std::move(failure));
                 }));
}

}  // namespace fo::gms
