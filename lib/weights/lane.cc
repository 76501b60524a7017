#include "weights/lane.h"

#include <utility>

#include "cuda/memory.h"

namespace fo::weights {

using base::ByteCount;
using cuda::abi::DevicePtr;

// Pinned memory, and a stream of its own, by which is known when it may be used again.
class Lane::Buffer {
 public:
  Buffer(std::shared_ptr<const cuda::Driver> driver, ByteCount size) : driver_(std::move(driver)) {
    driver_->check(driver_->api().cuStreamCreate(&stream_, cuda::abi::kStreamNonBlocking),
                   "cuStreamCreate");
    const auto result = driver_->api().cuMemHostAlloc(&memory_, size, 0);
    if (result != cuda::abi::Result::kSuccess) {
      driver_->api().cuStreamDestroy_v2(stream_);
      driver_->fail(result, "cuMemHostAlloc of " + std::to_string(size) + " bytes");
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    driver_->api().cuStreamSynchronize(stream_);
    driver_->api().cuMemFreeHost(memory_);
    driver_->api().cuStreamDestroy_v2(stream_);
  }

  void wait() const {
    driver_->check(driver_->api().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }
  void send(DevicePtr to, ByteCount size) const {
    driver_->check(driver_->api().cuMemcpyHtoDAsync_v2(to, memory_, size, stream_),
                   "cuMemcpyHtoDAsync");
  }
  [[nodiscard]] std::span<std::byte> bytes(ByteCount size) const {
    return {static_cast<std::byte*>(memory_), size};
  }

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::abi::Stream stream_ = nullptr;
  void* memory_ = nullptr;
};

namespace {

// Only where device memory is host memory.
std::span<std::byte> host_view(DevicePtr address, ByteCount size) {
  return {reinterpret_cast<std::byte*>(address), size};
}

}  // namespace

Lane::Lane(const LaneConfig& config) : config_(config) {
  for (std::size_t i = 0; i < config_.buffers; ++i) {
    buffers_.push_back(std::make_unique<Buffer>(config_.driver, config_.chunk));
  }
}

Lane::~Lane() = default;

void Lane::load(const ModelFile& file, ByteCount offset, ByteCount size, DevicePtr to) {
  if (buffers_.empty()) {
    file.read(host_view(to, size), offset);
    return;
  }
  const Buffer& buffer = *buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  buffer.wait();
  file.read(buffer.bytes(size), offset);
  buffer.send(to, size);
}

std::span<const std::byte> Lane::view(DevicePtr from, ByteCount size) {
  if (buffers_.empty()) return host_view(from, size);
  const std::span<std::byte> bytes = buffers_.front()->bytes(size);
  buffers_.front()->wait();
  cuda::copy_to_host(*config_.driver, bytes, from);
  return bytes;
}

std::span<std::byte> Lane::scratch() {
  scratch_.resize(config_.chunk);
  return scratch_;
}

void Lane::finish() {
  for (const auto& buffer : buffers_) buffer->wait();
}

}  // namespace fo::weights
