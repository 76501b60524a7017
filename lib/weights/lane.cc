#include "weights/lane.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "cuda/memory.h"
#include "os/pause.h"

namespace fo::weights {

using base::ByteCount;
using cuda::abi::DevicePtr;

namespace {

// Larger than a disk's maximum request, several concurrent requests slow each other down.
constexpr ByteCount kChunk = 4 * base::kMiB;
constexpr ByteCount kMinChunk = 64 * base::kKiB;
constexpr ByteCount kDefaultRing = 64 * base::kMiB;
constexpr std::size_t kBuffersPerThread = 2;  // one is filled while the other is copied
// A direct read may begin up to one unit before the wanted bytes and end up to one after them.
constexpr ByteCount kDirectSlack = 2 * kDirectAlignment;

// Valid only if device memory is host memory.
std::byte* host_address(DevicePtr address) { return reinterpret_cast<std::byte*>(address); }

// Maps the pages in one call, which costs a fraction of single faults. Kernels before 5.14 do not
// support it.
void fault_in(std::byte* memory, ByteCount size) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + size - first, MADV_POPULATE_WRITE);
}

// The bytes of a file at some offset within `memory`, which needs kDirectSlack extra bytes.
std::span<const std::byte> read_around(const WeightFile& file, ByteCount offset, ByteCount size,
                                       std::span<std::byte> memory) {
  const ByteCount skipped = offset % kDirectAlignment;
  const ByteCount taken = base::round_up(skipped + size, kDirectAlignment);
  file.read_direct(memory.first(taken), offset - skipped);
  return memory.subspan(skipped, size);
}

// A direct read for the aligned part, with reads through the page cache at both ends.
void read_within(const WeightFile& file, ByteCount offset, std::span<std::byte> to) {
  const ByteCount head =
      std::min<ByteCount>(base::round_up(offset, kDirectAlignment) - offset, to.size());
  const ByteCount middle = (to.size() - head) / kDirectAlignment * kDirectAlignment;
  if (head > 0) file.read(to.first(head), offset);
  if (middle > 0) file.read_direct(to.subspan(head, middle), offset + head);
  if (head + middle < to.size()) file.read(to.subspan(head + middle), offset + head + middle);
}

void read_pieces(const WeightFile& file, const CopyRun& run, std::byte* to) {
  std::array<iovec, kMaxPieces> pieces;
  for (std::size_t i = 0; i < run.pieces.size(); ++i) {
    pieces[i] = {to + run.pieces[i].at, run.pieces[i].size};
  }
  file.read(std::span(pieces).first(run.pieces.size()), run.offset);
}

void copy_pieces(const CopyRun& run, std::span<const std::byte> from, std::byte* to) {
  for (const CopyRun::Piece& piece : run.pieces) {
    std::memcpy(to + piece.at, from.data(), piece.size);
    from = from.subspan(piece.size);
  }
}

// Clears the gaps between the pieces, where the buffer's old content would be copied otherwise.
void clear_gaps(const CopyRun& run, std::byte* to) {
  ByteCount end = 0;
  for (const CopyRun::Piece& piece : run.pieces) {
    std::memset(to + end, 0, piece.at - end);
    end = piece.at + piece.size;
  }
}

void show(const CopyRun& run, const std::byte* bytes, const Lane::Sink& sink) {
  if (!sink) return;
  for (const CopyRun::Piece& piece : run.pieces) sink({bytes + piece.at, piece.size});
}

}  // namespace

LaneConfig lane_config(const std::shared_ptr<const cuda::Driver>& driver, std::size_t threads,
                       std::optional<ByteCount> ring) {
  if (threads == 0) threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
  const ByteCount bytes = ring.value_or(driver->simulated() ? 0 : kDefaultRing);
  if (bytes == 0) {
    if (!driver->simulated()) {
      throw base::Error(base::ExitStatus::kUsage,
                        "a ring of 0 bytes: only for the simulated driver");
    }
    return {driver, kChunk, 0, threads};
  }
  const ByteCount share = bytes / kBuffersPerThread;
  threads = std::clamp<std::size_t>(share / kMinChunk, 1, threads);
  const ByteCount chunk = std::clamp(share / threads, kMinChunk, kChunk);
  return {driver, chunk / kDirectAlignment * kDirectAlignment, kBuffersPerThread, threads};
}

// Pinned memory with its own stream, which shows when the buffer is free again.
class Lane::Buffer {
 public:
  Buffer(std::shared_ptr<const cuda::Driver> driver, ByteCount size)
      : driver_(std::move(driver)), size_(size) {
    driver_->check(driver_->api().cuStreamCreate(&stream_, cuda::abi::kStreamNonBlocking),
                   "cuStreamCreate");
    const ByteCount all = size + kDirectAlignment;
    const auto result = driver_->api().cuMemHostAlloc(&memory_, all, 0);
    if (result != cuda::abi::Result::kSuccess) {
      driver_->api().cuStreamDestroy_v2(stream_);
      driver_->fail(result, "cuMemHostAlloc of " + std::to_string(all) + " bytes");
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
  void send(DevicePtr to, std::span<const std::byte> bytes) const {
    driver_->check(driver_->api().cuMemcpyHtoDAsync_v2(to, bytes.data(), bytes.size(), stream_),
                   "cuMemcpyHtoDAsync");
  }
  // The whole buffer, aligned for direct reads.
  [[nodiscard]] std::span<std::byte> bytes() const {
    const auto address =
        base::round_up(reinterpret_cast<std::uintptr_t>(memory_), kDirectAlignment);
    return {reinterpret_cast<std::byte*>(address), size_};
  }

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  ByteCount size_;
  cuda::abi::Stream stream_ = nullptr;
  void* memory_ = nullptr;
};

cuda::PrimaryContext retain_context(const std::shared_ptr<const cuda::Driver>& driver,
                                    base::DeviceOrdinal device) {
  constexpr base::Duration kFreedLate = std::chrono::seconds(2);
  constexpr base::Duration kPause = std::chrono::milliseconds(20);
  const base::Deadline deadline = base::Deadline::after(kFreedLate);
  for (;;) {
    try {
      return cuda::PrimaryContext::retain(driver, device);
    } catch (const cuda::OutOfMemory&) {
      if (deadline.expired()) throw;
    }
    os::pause_for(kPause, deadline);
  }
}

Lane::Lane(LaneConfig config) : config_(std::move(config)) {
  for (std::size_t i = 0; i < config_.buffers; ++i) {
    buffers_.push_back(std::make_unique<Buffer>(config_.driver, config_.chunk + kDirectSlack));
  }
}

Lane::~Lane() = default;

void Lane::Free::operator()(std::byte* memory) const { std::free(memory); }

void Lane::load(const WeightFile& file, const CopyRun& run, DevicePtr allocation,
                const Sink& sink) {
  if (buffers_.empty()) {
    load_straight(file, run, host_address(allocation + run.to.offset), sink);
  } else {
    load_staged(file, run, allocation + run.to.offset, sink);
  }
}

void Lane::load_straight(const WeightFile& file, const CopyRun& run, std::byte* to,
                         const Sink& sink) {
  fault_in(to, run.span());
  if (!file.is_cold(run.offset, run.size())) {
    read_pieces(file, run, to);
  } else if (run.pieces.size() == 1 &&
             (reinterpret_cast<std::uintptr_t>(to) - run.offset) % kDirectAlignment == 0) {
    read_within(file, run.offset, {to, run.size()});
  } else {
    copy_pieces(run, read_around(file, run.offset, run.size(), scratch()), to);
  }
  show(run, to, sink);
}

Lane::Buffer& Lane::next_buffer() {
  Buffer& buffer = *buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  buffer.wait();
  return buffer;
}

void Lane::load_staged(const WeightFile& file, const CopyRun& run, DevicePtr to, const Sink& sink) {
  Buffer& buffer = next_buffer();
  const bool cold = file.is_cold(run.offset, run.size());
  if (cold && run.pieces.size() == 1) {
    const auto bytes = read_around(file, run.offset, run.size(), buffer.bytes());
    buffer.send(to, bytes);
    if (sink) sink(bytes);
    return;
  }
  std::byte* const staged = buffer.bytes().data();
  clear_gaps(run, staged);
  if (cold) {
    copy_pieces(run, read_around(file, run.offset, run.size(), next_buffer().bytes()), staged);
  } else {
    read_pieces(file, run, staged);
  }
  buffer.send(to, {staged, run.span()});
  show(run, staged, sink);
}

std::span<const std::byte> Lane::view(DevicePtr from, ByteCount size) {
  if (buffers_.empty()) return {host_address(from), size};
  const std::span<std::byte> bytes = next_buffer().bytes().first(size);
  cuda::copy_to_host(*config_.driver, bytes, from);
  return bytes;
}

std::span<std::byte> Lane::scratch() {
  const ByteCount size = config_.chunk + kDirectSlack;
  if (!scratch_) {
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size)));
    if (!scratch_) throw std::bad_alloc();
  }
  return {scratch_.get(), size};
}

void Lane::finish() {
  for (const auto& buffer : buffers_) buffer->wait();
}

}  // namespace fo::weights
