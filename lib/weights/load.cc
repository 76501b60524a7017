#include "weights/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/memory.h"
#include "gms/layout.h"
#include "gms/memory_manager.h"
#include "gms/remap_check.h"
#include "gms/sha256.h"
#include "gms/tensor_metadata.h"
#include "os/engine_id.h"
#include "os/log.h"
#include "weights/model.h"
#include "weights/pack.h"
#include "weights/workers.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using base::quoted;
using cuda::abi::DevicePtr;
using Clock = std::chrono::steady_clock;

constexpr const char* kTag = "weights";
constexpr ByteCount kChunk = 8 * base::kMiB;
constexpr ByteCount kLeastChunk = 64 * base::kKiB;
constexpr ByteCount kDefaultRing = 64 * base::kMiB;
constexpr std::size_t kBuffersPerThread = 2;  // one is filled while the other is sent

std::size_t thread_count(const LoadOptions& options) {
  if (options.copy_threads > 0) return options.copy_threads;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
}

LaneConfig lane_config(const std::shared_ptr<const cuda::Driver>& driver,
                       const LoadOptions& options) {
  const ByteCount ring = options.ring.value_or(driver->simulated() ? 0 : kDefaultRing);
  if (ring == 0) {
    if (!driver->simulated()) {
      throw Error(ExitStatus::kUsage, "a ring of 0 bytes: only for the simulated driver");
    }
    return {driver, kChunk, 0};
  }
  const ByteCount share = ring / (kBuffersPerThread * thread_count(options));
  return {driver, std::clamp(share, kLeastChunk, kChunk), kBuffersPerThread};
}

// What the device is asked to give back, and what is done with it.
struct ReadBack {
  bool compare = false;
  /// Of a difference.
  ExitStatus status = ExitStatus::kSoftware;
  bool digest = false;
};

std::string read_back(Lane& lane, ByteCount chunk, const ModelFile& file, const Tensor& tensor,
                      DevicePtr address, const ReadBack& what) {
  std::optional<gms::Sha256> hash;
  if (what.digest) hash.emplace();
  for (ByteCount at = 0; at < tensor.size; at += chunk) {
    const ByteCount size = std::min(chunk, tensor.size - at);
    const std::span<const std::byte> found = lane.view(address + at, size);
    if (hash) hash->add(found);
    if (!what.compare) continue;
    const std::span<std::byte> wanted = lane.scratch().first(size);
    file.read(wanted, tensor.offset + at);
    if (std::memcmp(found.data(), wanted.data(), size) != 0) {
      throw Error(what.status, "verify tensor " + quoted(tensor.name) +
                                   ": device memory differs from " + quoted(file.path()));
    }
  }
  return hash ? hash->finish() : std::string();
}

// One load as it goes. The members are declared so that, when anything fails, the threads end
// before what they work on goes.
class Loading {
 public:
  Loading(const std::shared_ptr<const cuda::Driver>& driver, const cuda::DeviceInfo& device,
          const std::string& socket_path, const LoadOptions& options)
      : options_(options),
        lanes_(lane_config(driver, options)),
        manager_(driver, device, socket_path),
        socket_path_(socket_path) {}

  std::optional<LoadReport> run() {
    if (options_.role != gms::LockType::kRo || options_.verify) open();
    if (options_.role != gms::LockType::kRo) plan();
    const auto deadline = base::Deadline::after(options_.timeout);
    const auto grant = manager_.connect(options_.role, deadline,
                                        options_.timeout ? gms::RpcClient::Retry::kUntilTheDeadline
                                                         : gms::RpcClient::Retry::kNever);
    if (!grant) return std::nullopt;
    report_.granted_lock_type = *grant;
    const auto start = Clock::now();
    if (*grant == gms::Grant::kRw) {
      publish();
    } else {
      import();
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return report_;
  }

 private:
  void open() {
    model_ = open_model(options_.model);
    addresses_.resize(model_.tensors.size());
    digests_.resize(model_.tensors.size());
  }

  void plan() {
    std::vector<ByteCount> sizes;
    for (const ModelTensor& one : model_.tensors) sizes.push_back(one.tensor.size);
    plan_ = pack(sizes, options_.slab);
    const cuda::DeviceInfo& device = manager_.device();
    ByteCount left = device.total_memory;
    for (const ByteCount size : plan_.allocations) {
      const ByteCount rounded = base::round_up(size, device.granularity);
      if (rounded == 0 || rounded > left) {
        throw Error(ExitStatus::kTryAgain,
                    fmt::format("load {}: {} do not fit device {}, which has {} in all",
                                quoted(options_.model), base::format_size(model_.bytes),
                                device.ordinal.value(), base::format_size(device.total_memory)));
      }
      left -= rounded;
    }
  }

  void start_workers() {
    if (lanes_.buffers > 0) {
      context_ = cuda::PrimaryContext::retain(manager_.driver(), manager_.device().ordinal);
    }
    workers_.emplace(lanes_, context_, thread_count(options_));
  }

  void publish() {
    start_workers();
    load_tensors();
    if (options_.verify || options_.pin_content) {
      read_back_all({options_.verify, ExitStatus::kSoftware, options_.pin_content});
    }
    workers_.reset();
    for (const ModelFile& file : model_.files) file.check_unchanged();
    report_.memory_layout_hash = put_metadata();
    report_.bytes = model_.bytes;
    report_.tensors = model_.tensors.size();
    report_.allocations = plan_.allocations.size();
    manager_.commit();
  }

  // The server makes the next allocation while the workers fill the last one.
  void load_tensors() {
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Placement& place = plan_.placements[i];
      while (manager_.allocations().size() <= place.allocation) {
        manager_.allocate(plan_.allocations[manager_.allocations().size()], kTag);
        show_progress();
      }
      addresses_[i] = manager_.allocations()[place.allocation].address + place.offset;
      submit_load(i);
    }
    workers_->wait([this] { show_progress(); });
  }

  void submit_load(std::size_t i) {
    const Tensor& tensor = model_.tensors[i].tensor;
    const ModelFile& file = model_.files[model_.tensors[i].file];
    for (ByteCount at = 0; at < tensor.size; at += lanes_.chunk) {
      const ByteCount size = std::min(lanes_.chunk, tensor.size - at);
      workers_->submit(
          [this, &file, at, size, from = tensor.offset, to = addresses_[i]](Lane& lane) {
            lane.load(file, from + at, size, to + at);
            loaded_ += size;
          });
    }
  }

  void show_progress() const {
    if (options_.on_progress) options_.on_progress(loaded_, model_.bytes);
  }

  void read_back_all(const ReadBack& what) {
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      workers_->submit([this, i, what](Lane& lane) {
        const ModelTensor& one = model_.tensors[i];
        digests_[i] =
            read_back(lane, lanes_.chunk, model_.files[one.file], one.tensor, addresses_[i], what);
      });
    }
    workers_->wait();
  }

  // Returns the hash that the layout will have.
  std::string put_metadata() {
    gms::Layout layout;
    for (const gms::MappedAllocation& one : manager_.allocations()) {
      const gms::Allocation& made = one.allocation;
      layout.add(made.allocation_id, made.size, made.aligned_size, made.tag);
    }
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Tensor& tensor = model_.tensors[i].tensor;
      const Placement& place = plan_.placements[i];
      const std::string& id = manager_.allocations()[place.allocation].allocation.allocation_id;
      const std::string value =
          gms::format_tensor_metadata({std::string(tensor.dtype->torch_name), tensor.shape,
                                       gms::contiguous_stride(tensor.shape), digests_[i]});
      manager_.rpc().put_metadata(tensor.name, id, place.offset, value);
      layout.put(tensor.name, id, static_cast<std::int64_t>(place.offset), value);
    }
    return gms::layout_hash(layout);
  }

  void import() {
    manager_.import_all(cuda::Access::kRead);
    if (!gms::is_layout_hash(manager_.layout_hash())) {
      throw Error(ExitStatus::kProtocol, "GMS at " + quoted(socket_path_) + ": a layout hash " +
                                             quoted(manager_.layout_hash()));
    }
    const gms::Metadata metadata = manager_.fetch_metadata();
    report_.memory_layout_hash = manager_.layout_hash();
    report_.tensors = metadata.size();
    report_.allocations = manager_.allocations().size();
    for (const auto& [name, entry] : metadata) report_.bytes += bytes_of(name, entry.value);
    if (!options_.verify) return;
    find_tensors(metadata);
    start_workers();
    read_back_all({true, ExitStatus::kBadData, false});
    workers_.reset();
  }

  static ByteCount bytes_of(const std::string& name, std::string_view value) {
    const auto metadata = gms::parse_tensor_metadata(value);
    const DType* dtype = metadata ? find_torch_dtype(metadata->dtype) : nullptr;
    if (dtype == nullptr) {
      os::log(os::LogLevel::kWarning, "metadata {}: of no known kind, its bytes are not counted",
              quoted(name));
      return 0;
    }
    ByteCount bytes = dtype->size;
    for (const ByteCount extent : metadata->shape) bytes *= extent;
    return bytes;
  }

  // Where the published tensors are that the model has.
  void find_tensors(const gms::Metadata& metadata) {
    const auto refuse = [this](const std::string& tensor, const std::string& reason) {
      throw Error(ExitStatus::kBadData, "verify what " + quoted(socket_path_) + " published: " +
                                            "tensor " + quoted(tensor) + ": " + reason);
    };
    std::unordered_map<std::string_view, const gms::MappedAllocation*> by_id;
    for (const auto& one : manager_.allocations()) by_id[one.allocation.allocation_id] = &one;
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Tensor& tensor = model_.tensors[i].tensor;
      const auto entry = metadata.find(tensor.name);
      if (entry == metadata.end()) refuse(tensor.name, "not there");
      auto found = gms::parse_tensor_metadata(entry->second.value);
      if (found) found->digest.clear();
      const gms::TensorMetadata wanted{std::string(tensor.dtype->torch_name),
                                       tensor.shape,
                                       gms::contiguous_stride(tensor.shape),
                                       {}};
      if (found != wanted) refuse(tensor.name, "of another dtype, shape or stride");
      const auto holder = by_id.find(entry->second.allocation_id);
      const ByteCount offset = entry->second.offset_bytes;
      if (holder == by_id.end() || offset > holder->second->allocation.aligned_size ||
          tensor.size > holder->second->allocation.aligned_size - offset) {
        refuse(tensor.name, "not within an allocation");
      }
      addresses_[i] = holder->second->address + offset;
    }
    if (metadata.size() != model_.tensors.size()) {
      throw Error(
          ExitStatus::kBadData,
          fmt::format("verify what {} published: {} tensors, {} has {}", quoted(socket_path_),
                      metadata.size(), quoted(options_.model), model_.tensors.size()));
    }
  }

  const LoadOptions& options_;
  const LaneConfig lanes_;
  Model model_;
  PackPlan plan_;
  std::vector<DevicePtr> addresses_;
  std::vector<std::string> digests_;
  std::atomic<ByteCount> loaded_ = 0;
  LoadReport report_;
  cuda::PrimaryContext context_;
  gms::MemoryManager manager_;
  const std::string& socket_path_;
  std::optional<Workers> workers_;
};

}  // namespace

gms::LockType role_from_env() {
  return os::engine_id_from_environment() == 0 ? gms::LockType::kRwOrRo : gms::LockType::kRo;
}

std::optional<LoadReport> load(const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const LoadOptions& options) {
  return Loading(driver, device, socket_path, options).run();
}

std::string format_text(const LoadReport& report) {
  const bool wrote = report.granted_lock_type == gms::Grant::kRw;
  const double rate = report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds : 0;
  return fmt::format("{} {} tensors, {} in {} allocations, in {:.3f} s ({}/s), layout {}",
                     wrote ? "published" : "imported", report.tensors,
                     base::format_size(report.bytes), report.allocations, report.seconds,
                     base::format_size(static_cast<ByteCount>(rate)), report.memory_layout_hash);
}

std::string format_json(const LoadReport& report) {
  return fmt::format(R"({{"bytes": {}, "seconds": {:.6f}, "tensors": {}, "allocations": {}, )"
                     R"("memory_layout_hash": "{}", "granted_lock_type": "{}"}})",
                     report.bytes, report.seconds, report.tensors, report.allocations,
                     report.memory_layout_hash, gms::to_string(report.granted_lock_type));
}

}  // namespace fo::weights
