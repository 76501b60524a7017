#include "support/worker/engine_core.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <thread>

#include "base/error.h"
#include "os/log.h"
#include "refengine/model/splitmix.h"
#include "support/worker/gms_memory.h"

namespace fo::stand_in {
namespace {

using gms::LockType;
using nlohmann::json;
using refengine::splitmix;

constexpr std::size_t kMaxMessage = 65536;
constexpr std::uint64_t kVocabulary = 1000;
// One tensor per allocation, of different sizes.
constexpr std::array<base::ByteCount, 3> kWeightFloats{750'000, 400'000, 1'000};
constexpr std::size_t kKvBlocks = 4;

std::uint64_t mix(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = splitmix(hash ^ word);
  }
  return hash;
}

class EngineCore {
 public:
  explicit EngineCore(const Launch& launch)
      : launch_(launch),
        driver_(cuda::Driver::open(cuda::Driver::choice_from_env())),
        device_(cuda::device_info(*driver_, base::DeviceOrdinal(0))),
        // Every engine has a context, which takes device memory.
        context_(cuda::PrimaryContext::retain(driver_, device_.ordinal)),
        weights_(driver_, device_, "weights") {}

  void start() {
    load_weights();
    make_kv_cache();
  }

  json answer(const json& request) {
    const std::string what = request.value("do", "");
    if (what == "sleep") return sleep();
    if (what == "wake") return wake(request.value("tags", std::set<std::string>{}));
    return complete(request.at("tokens"), request.at("prompt"));
  }

 private:
  // GMSWorker's init_device and its loader; SGLang's memory saver. The engine that is granted the
  // writer's lock loads the model and publishes it.
  void load_weights() {
    const gms::Grant grant = weights_.connect(launch_.weights_lock, launch_.reader_timeout);
    if (grant == gms::Grant::kRo) return weights_.import_layout();
    std::vector<base::ByteCount> sizes;
    for (const base::ByteCount floats : kWeightFloats) sizes.push_back(floats * sizeof(float));
    weights_.allocate(sizes);
    for (std::size_t i = 0; i < kWeightFloats.size(); ++i) {
      weights_.put_tensor("layers." + std::to_string(i) + ".weight", i, kWeightFloats[i]);
    }
    fill_weights();
    weights_.publish();
  }

  // Derived from the model's name, so that every engine would publish the same.
  void fill_weights() {
    std::uint64_t seed = 0;
    for (const char letter : launch_.model)
      seed = splitmix(seed ^ static_cast<unsigned char>(letter));
    for (std::size_t i = 0; i < kWeightFloats.size(); ++i) {
      std::vector<std::uint64_t> values(kWeightFloats[i] / 2);
      for (std::uint64_t& value : values) value = seed = splitmix(seed);
      cuda::copy_to_device(*driver_, weights_.address(i), std::as_bytes(std::span(values)));
    }
  }

  [[nodiscard]] std::vector<base::ByteCount> kv_sizes() const {
    const auto part = static_cast<base::ByteCount>(launch_.memory_fraction *
                                                   static_cast<double>(device_.total_memory));
    const base::ByteCount rest = part > weights_.bytes() ? part - weights_.bytes() : 0;
    return std::vector<base::ByteCount>(kKvBlocks, launch_.kv_bytes.value_or(rest) / kKvBlocks);
  }

  void make_kv_cache() {
    kv_.emplace(driver_, device_, "kv_cache");
    if (launch_.scratch_kv) return kv_->map_scratch(kv_sizes());
    if (launch_.kv_in_gms) {
      // The active engine has this lock: without a limit, an engine that starts beside it waits
      // here.
      kv_->connect(LockType::kRw);
      return kv_->allocate(kv_sizes());
    }
    kv_.reset();
    own_kv_ = cuda::PhysicalMemory::create(
        driver_, device_.ordinal, base::round_up(kv_sizes()[0] * kKvBlocks, device_.granularity));
  }

  [[nodiscard]] json state() const { return {{"asleep", !asleep_.empty()}}; }

  // The executor ignores repeated calls. The worker does not read the level.
  json sleep() {
    if (!asleep_.empty()) return state();
    weights_.unmap_and_abort();
    // An assertion in the worker fails only this request, and earlier steps stay done: the weights
    // are unmapped.
    if (!kv_) return {{"error", "GMS kv_cache client is not initialized"}};
    kv_->unmap_and_abort();
    asleep_ = {"weights", "kv_cache"};
    return state();
  }

  // An error here ends the worker: a timeout, another layout, no server.
  json wake(std::set<std::string> tags) {
    if (tags.empty()) tags = asleep_;
    if (tags.contains("weights") && asleep_.erase("weights") != 0) {
      weights_.connect(LockType::kRo, launch_.reader_timeout);
      weights_.remap();
    }
    if (tags.contains("kv_cache") && asleep_.erase("kv_cache") != 0) {
      kv_->connect(LockType::kRw);
      kv_->allocate_again();
    }
    return state();
  }

  // Reads all weights, and writes to the KV cache. If either is not mapped, the driver fails, which
  // corresponds to an illegal memory access.
  json complete(std::size_t count, std::uint64_t prompt) {
    std::uint64_t hash = prompt;
    std::vector<std::byte> host;
    for (const Piece& tensor : weights_.tensors()) {
      host.resize(tensor.size);
      cuda::copy_to_host(*driver_, host, tensor.address);
      hash = mix(hash, host);
    }
    std::vector<std::uint64_t> tokens;
    for (std::size_t i = 0; i < count; ++i) {
      hash = splitmix(hash);
      tokens.push_back(hash % kVocabulary);
    }
    if (kv_ && !tokens.empty()) tokens.back() = pass_through_kv(tokens.back());
    return {{"tokens", tokens}};
  }

  std::uint64_t pass_through_kv(std::uint64_t value) {
    cuda::copy_to_device(*driver_, kv_->address(), std::as_bytes(std::span(&value, 1)));
    std::uint64_t back = 0;
    cuda::copy_to_host(*driver_, std::as_writable_bytes(std::span(&back, 1)), kv_->address());
    return back;
  }

  Launch launch_;
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  cuda::PrimaryContext context_;
  GmsMemory weights_;
  std::optional<GmsMemory> kv_;
  /// A KV cache outside the GMS.
  cuda::PhysicalMemory own_kv_;
  std::set<std::string> asleep_;
};

void say(int socket, const json& message) {
  const std::string text = message.dump();
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) {
    base::throw_errno(errno, "answer the HTTP server");
  }
}

// A worker ends with its parent, even while it waits for a lock.
void end_with_parent(int socket) {
  std::thread([socket] {
    pollfd end{socket, POLLRDHUP, 0};
    while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
    }
    ::_exit(0);
  }).detach();
}

}  // namespace

int run_engine_core(const Launch& launch, int socket) {
  end_with_parent(socket);
  try {
    EngineCore core(launch);
    core.start();
    say(socket, {{"ready", true}});
    std::vector<char> buffer(kMaxMessage);
    for (;;) {
      const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return 0;
      say(socket, core.answer(json::parse(buffer.data(), buffer.data() + got)));
    }
  } catch (const std::exception& error) {
    os::log_line(os::LogLevel::kError, std::string("the engine core died: ") + error.what());
    return 1;
  }
}

}  // namespace fo::stand_in
