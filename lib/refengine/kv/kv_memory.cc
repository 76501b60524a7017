#include "refengine/kv/kv_memory.h"

#include <chrono>
#include <thread>
#include <utility>

namespace fo::refengine {
namespace {

// The interval of retries on a full device; the driver does not report free memory.
constexpr auto kRetryInterval = std::chrono::milliseconds(10);

}  // namespace

KvMemory::KvMemory(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceInfo device,
                   const KvLayout& layout, base::ByteCount bytes, bool copies)
    : driver_(std::move(driver)),
      device_(std::move(device)),
      layout_(layout),
      copies_(copies),
      range_(cuda::AddressRange::reserve(driver_, base::round_up(bytes, device_.granularity))) {}

void KvMemory::allocate(const base::Deadline& deadline) {
  cuda::PhysicalMemory memory;
  while (!memory) {
    try {
      memory = cuda::PhysicalMemory::create(driver_, device_.ordinal, range_.size());
    } catch (const cuda::OutOfMemory& error) {
      if (deadline.expired()) {
        throw cuda::OutOfMemory(error.status(),
                                "allocate KV cache of " + base::format_size(range_.size()) +
                                    " on device " + std::to_string(device_.ordinal.value()) + ": " +
                                    error.what());
      }
      std::this_thread::sleep_for(kRetryInterval);
    }
  }
  // The handle can be released, because the mapping keeps the memory.
  cuda::Mapping mapping = cuda::Mapping::map(driver_, range_.address(), range_.size(), memory);
  cuda::set_access(*driver_, range_.address(), range_.size(), device_.ordinal,
                   cuda::Access::kReadWrite);
  mapping_ = std::move(mapping);
  if (copies_) host_copy_.resize(layout_.used_bytes() / sizeof(float));
}

void KvMemory::free() {
  mapping_.close();
  host_copy_ = {};
}

float* KvMemory::data() {
  return copies_ ? host_copy_.data() : reinterpret_cast<float*>(range_.address());
}

void KvMemory::write_through(std::size_t position, std::size_t count) {
  if (!copies_) return;
  for (const std::size_t at : layout_.rows(position)) {
    const auto row = std::span(host_copy_).subspan(at, count * layout_.head_dim());
    cuda::copy_to_device(*driver_, range_.address() + at * sizeof(float), std::as_bytes(row));
  }
}

}  // namespace fo::refengine
