#include "weights/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cuda/memory.h"
#include "gms/client/memory_manager.h"
#include "gms/protocol/layout.h"
#include "gms/protocol/sha256.h"
#include "gms/protocol/tensor_metadata.h"
#include "os/engine_id.h"
#include "os/log.h"
#include "weights/copy_plan.h"
#include "weights/file/model.h"
#include "weights/ordered_hash.h"
#include "weights/pack.h"
#include "weights/workers.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using cuda::abi::DevicePtr;
using Clock = std::chrono::steady_clock;

constexpr const char* kTag = "weights";
constexpr ByteCount kBatch = kFirstSlab;

// The use of the bytes that are read back from the device.
struct ReadBack {
  bool compare = false;
  /// The status of a difference.
  ExitStatus status = ExitStatus::kSoftware;
  bool digest = false;
};

// A unit of the load: a tensor of a model, or an allocation of a snapshot.
struct Part {
  std::string name;  // for messages
  CopyItem item;
};

struct AllocationPlan {
  ByteCount size = 0;
  std::string tag;
};

std::string read_back(Lane& lane, ByteCount chunk, const WeightFile& file, const Part& part,
                      DevicePtr address, const ReadBack& what) {
  std::optional<gms::Sha256> hash;
  if (what.digest) hash.emplace();
  for (ByteCount at = 0; at < part.item.size; at += chunk) {
    const ByteCount size = std::min(chunk, part.item.size - at);
    const std::span<const std::byte> found = lane.view(address + at, size);
    if (hash) hash->add(found);
    if (!what.compare) continue;
    const std::span<std::byte> wanted = lane.scratch().first(size);
    file.read(wanted, part.item.offset + at);
    if (std::memcmp(found.data(), wanted.data(), size) != 0) {
      throw Error(what.status, "verify " + part.name + ": device memory differs from " +
                                   base::quoted(file.path()));
    }
  }
  return hash ? hash->finish() : std::string();
}

// One load in progress. The members are declared so that after any failure the threads end before
// the data that they use is destroyed.
class Loading {
 public:
  Loading(LoadSource source, const std::shared_ptr<const cuda::Driver>& driver,
          const cuda::DeviceInfo& device, const std::string& socket_path,
          const LoadOptions& options)
      : options_(options),
        name_(std::move(source.name)),
        model_(std::move(source.model)),
        snapshot_(std::move(source.snapshot)),
        lanes_(lane_config(driver, options.copy_threads, options.ring)),
        manager_(driver, device, socket_path, options.server_uid),
        socket_path_(socket_path) {}

  std::optional<LoadReport> run() {
    if (options_.role != gms::LockType::kRo || options_.verify) plan();
    if (options_.role != gms::LockType::kRo) check_room();
    if (checks_first()) check_files();
    const auto deadline = base::Deadline::after(options_.timeout);
    const auto grant = manager_.connect(options_.role, deadline, retry());
    if (!grant) return std::nullopt;
    report_.granted_lock_type = *grant;
    const auto start = Clock::now();
    context_ = retain_context(manager_.driver(), manager_.device().ordinal);
    if (*grant == gms::Grant::kRw) {
      publish();
    } else {
      import();
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return report_;
  }

 private:
  [[nodiscard]] gms::RpcClient::Retry retry() const {
    return options_.timeout ? gms::RpcClient::Retry::kUntilTheDeadline
                            : gms::RpcClient::Retry::kNever;
  }

  void plan() {
    if (snapshot_) {
      plan_allocations();
    } else {
      plan_tensors();
    }
    addresses_.resize(parts_.size());
    digests_.resize(parts_.size());
  }

  void plan_tensors() {
    bytes_ = model_.bytes;
    std::vector<ByteCount> sizes;
    for (const ModelTensor& one : model_.tensors) sizes.push_back(one.tensor.size);
    const PackPlan plan = pack(sizes, options_.slab);
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const auto& [tensor, file] = model_.tensors[i];
      parts_.push_back({"tensor " + base::quoted(tensor.name),
                        {file, tensor.offset, tensor.size, plan.placements[i]}});
    }
    for (const ByteCount size : plan.allocations) allocations_.push_back({size, kTag});
    files_ = std::move(model_.files);
  }

  void plan_allocations() {
    for (std::size_t i = 0; i < snapshot_->manifest.allocations.size(); ++i) {
      const SnapshotAllocation& one = snapshot_->manifest.allocations[i];
      check_granularity(one);
      parts_.push_back({"allocation " + std::to_string(i),
                        {snapshot_->file_of[i], one.tensor_offset, one.aligned_size, {i, 0}}});
      allocations_.push_back({one.size, one.tag});
      bytes_ += one.aligned_size;
    }
    files_ = std::move(snapshot_->files);
  }

  // Other sizes would make another layout.
  void check_granularity(const SnapshotAllocation& one) const {
    const ByteCount here = base::round_up(one.size, manager_.device().granularity);
    if (here == one.aligned_size) return;
    throw Error(
        ExitStatus::kBadData,
        fmt::format(
            "load {}: an allocation of {} bytes takes {} on device {}, and {} on the one where "
            "it was saved: the devices' granularities differ",
            base::quoted(name_), one.size, here, manager_.device().ordinal.value(),
            one.aligned_size));
  }

  // A dropped layout cannot be restored, so the files are checked first.
  [[nodiscard]] bool checks_first() const {
    if (options_.role != gms::LockType::kRw || options_.replace_first || !snapshot_ ||
        snapshot_->checksums.empty()) {
      return false;
    }
    const auto deadline = base::Deadline::after(options_.timeout);
    const auto state = gms::RpcClient::connect(socket_path_, deadline, retry(), options_.server_uid)
                           .runtime_state();
    return state.committed || state.layout_committed || state.has_rw_session;
  }

  // Reads through the page cache, from which the files are loaded next.
  void check_files() {
    LaneConfig lanes = lanes_;
    lanes.buffers = 0;  // a context does not exist yet; only host memory is used
    bytes_to_check_ = bytes_;
    Workers workers(lanes, context_);
    for (std::size_t i = 0; i < files_.size(); ++i) {
      workers.submit([this, i, chunk = lanes.chunk](Lane& lane) { check_file(lane, chunk, i); }, i);
    }
    workers.wait([this] { show_progress(); });
  }

  void check_file(Lane& lane, ByteCount chunk, std::size_t i) {
    const WeightFile& file = files_[i];
    gms::Sha256 hash;
    for (ByteCount at = 0; at < file.size(); at += chunk) {
      const auto bytes = lane.scratch().first(std::min(chunk, file.size() - at));
      file.read(bytes, at);
      hash.add(bytes);
      checked_ += bytes.size();
    }
    check_checksum(i, hash.finish());
  }

  void check_checksum(std::size_t file, const std::string& sum) const {
    if (sum == snapshot_->checksums[file]) return;
    throw Error(ExitStatus::kBadData, "read " + base::quoted(files_[file].path()) +
                                          ": its SHA-256 differs from that in " + kChecksumFile);
  }

  void check_room() const {
    if (allocations_.size() > gms::kMaxAllocations) {
      throw Error(ExitStatus::kBadData,
                  fmt::format("load {}: {} allocations, at most {} are allowed",
                              base::quoted(name_), allocations_.size(), gms::kMaxAllocations));
    }
    const cuda::DeviceInfo& device = manager_.device();
    ByteCount left = device.total_memory;
    for (const AllocationPlan& one : allocations_) {
      const ByteCount rounded = base::round_up(one.size, device.granularity);
      if (rounded == 0 || rounded > left) {
        throw Error(ExitStatus::kTryAgain,
                    fmt::format("load {}: {} do not fit device {}, which has a total of {}",
                                base::quoted(name_), base::format_size(bytes_),
                                device.ordinal.value(), base::format_size(device.total_memory)));
      }
      left -= rounded;
    }
  }

  void publish() {
    const bool pin_content = options_.pin_content && !snapshot_;
    workers_.emplace(lanes_, context_);
    submit_parts();
    // Work that needs no content is done while the content is copied.
    if (!pin_content) put_metadata();
    workers_->wait([this] { show_progress(); });
    if (options_.verify || pin_content) {
      read_back_all({options_.verify, ExitStatus::kSoftware, pin_content});
    }
    workers_.reset();
    for (const WeightFile& file : files_) file.check_unchanged();
    if (pin_content) put_metadata();
    report_.bytes = bytes_;
    report_.allocations = allocations_.size();
    manager_.commit();
  }

  // The server creates the next allocation while the workers fill the last one.
  void submit_parts() {
    std::vector<CopyItem> items;
    for (const Part& part : parts_) items.push_back(part.item);
    runs_ = plan_runs(items, lanes_.chunk);
    if (snapshot_ && !snapshot_->checksums.empty()) order_by_file();
    for (const CopyRun& run : runs_) {
      allocate_to(run.to.allocation);
      submit_load(run);
    }
    if (!allocations_.empty()) allocate_to(allocations_.size() - 1);
    for (std::size_t i = 0; i < parts_.size(); ++i) addresses_[i] = address_of(parts_[i].item.to);
  }

  // A checksum needs a shard's bytes in file order, whatever the order of the allocations.
  void order_by_file() {
    hashes_ = std::vector<OrderedHash>(files_.size());
    std::stable_sort(runs_.begin(), runs_.end(), [](const CopyRun& one, const CopyRun& other) {
      return std::pair(one.file, one.offset) < std::pair(other.file, other.offset);
    });
  }

  // Allocates in batches, so that copying can start early.
  void allocate_to(std::size_t last) {
    while (manager_.allocations().size() <= last) {
      const std::size_t first = manager_.allocations().size();
      std::vector<ByteCount> sizes;
      ByteCount sum = 0;
      for (std::size_t i = first; i < allocations_.size(); ++i) {
        const AllocationPlan& next = allocations_[i];
        sum += next.size;
        if (!sizes.empty() && (sum > kBatch || next.tag != allocations_[first].tag)) break;
        sizes.push_back(next.size);
      }
      manager_.allocate_many(sizes, allocations_[first].tag);
      show_progress();
    }
  }

  [[nodiscard]] DevicePtr address_of(const Placement& place) const {
    return manager_.allocations()[place.allocation].address + place.offset;
  }

  void submit_load(const CopyRun& run) {
    const DevicePtr allocation = manager_.allocations()[run.to.allocation].address;
    if (hashes_.empty()) {
      workers_->submit([this, &run, allocation](Lane& lane) {
        lane.load(files_[run.file], run, allocation);
        loaded_ += run.size();
      });
      return;
    }
    workers_->submit(
        [this, &run, allocation](Lane& lane) {
          load_and_check(lane, run, allocation);
          loaded_ += run.size();
        },
        run.file);
  }

  void load_and_check(Lane& lane, const CopyRun& run, DevicePtr allocation) {
    const WeightFile& file = files_[run.file];
    OrderedHash& hash = hashes_[run.file];
    bool hashed = false;
    try {
      lane.load(file, run, allocation,
                [&](std::span<const std::byte> bytes) { hashed = hash.add(run.offset, bytes); });
    } catch (...) {
      hash.cancel();
      throw;
    }
    if (!hashed || run.offset + run.size() < file.size()) return;
    check_checksum(run.file, hash.finish());
  }

  void show_progress() const {
    if (options_.on_progress) options_.on_progress(checked_ + loaded_, bytes_to_check_ + bytes_);
  }

  void read_back_all(const ReadBack& what) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      workers_->submit([this, i, what](Lane& lane) {
        const Part& part = parts_[i];
        digests_[i] =
            read_back(lane, lanes_.chunk, files_[part.item.file], part, addresses_[i], what);
      });
    }
    workers_->wait();
  }

  [[nodiscard]] const gms::AllocationId& id_of(std::size_t allocation) const {
    return manager_.allocations()[allocation].allocation.allocation_id;
  }

  [[nodiscard]] gms::Metadata tensors_metadata() const {
    gms::Metadata metadata;
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Tensor& tensor = model_.tensors[i].tensor;
      const Placement& place = parts_[i].item.to;
      metadata[tensor.name] = {
          id_of(place.allocation), place.offset,
          gms::format_tensor_metadata({std::string(tensor.dtype->torch_name), tensor.shape,
                                       gms::contiguous_stride(tensor.shape), digests_[i]})};
    }
    return metadata;
  }

  // The saved metadata, with the ids of the new allocations.
  [[nodiscard]] gms::Metadata saved_metadata() const {
    std::unordered_map<std::string_view, std::size_t> number_of;
    for (const SnapshotAllocation& one : snapshot_->manifest.allocations) {
      number_of.emplace(one.allocation_id.value(), number_of.size());
    }
    gms::Metadata metadata = snapshot_->metadata;
    for (auto& [key, entry] : metadata) {
      entry.allocation_id = id_of(number_of.at(entry.allocation_id.value()));
    }
    return metadata;
  }

  void put_metadata() {
    const gms::Metadata metadata = snapshot_ ? saved_metadata() : tensors_metadata();
    gms::Layout layout;
    for (const gms::MappedAllocation& one : manager_.allocations()) {
      const gms::Allocation& made = one.allocation;
      layout.add(made.allocation_id, made.size, made.aligned_size, made.tag);
    }
    put_all(layout, metadata);
    report_.tensors = metadata.size();
    report_.memory_layout_hash = gms::layout_hash(layout);
    if (snapshot_ && report_.memory_layout_hash != snapshot_->manifest.layout_hash) {
      throw Error(ExitStatus::kBadData, "load " + base::quoted(name_) + ": the new layout is " +
                                            report_.memory_layout_hash.value() +
                                            ", the saved one was " +
                                            snapshot_->manifest.layout_hash.value());
    }
    manager_.rpc().put_metadata_many(metadata);
  }

  void import() {
    manager_.import_all(cuda::Access::kRead);
    if (!gms::is_layout_hash(manager_.layout_hash().value())) {
      throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(socket_path_) +
                                             ": invalid layout hash " +
                                             base::quoted(manager_.layout_hash().value()));
    }
    const gms::Metadata metadata = manager_.fetch_metadata();
    report_.memory_layout_hash = manager_.layout_hash();
    report_.tensors = metadata.size();
    report_.allocations = manager_.allocations().size();
    for (const auto& [name, entry] : metadata) report_.bytes += bytes_of(name, entry.value);
    if (!name_.empty()) compare_tensors(metadata);
    if (!options_.verify) return;
    if (snapshot_) {
      find_allocations();
    } else {
      find_tensors(metadata);
    }
    workers_.emplace(lanes_, context_);
    read_back_all({true, ExitStatus::kBadData, false});
    workers_.reset();
  }

  static ByteCount bytes_of(const std::string& name, std::string_view value) {
    const auto metadata = gms::parse_tensor_metadata(value);
    const DType* dtype = metadata ? find_torch_dtype(metadata->dtype) : nullptr;
    if (dtype == nullptr) {
      os::log(os::LogLevel::kWarning, "metadata {}: unknown kind, its bytes are not counted",
              base::quoted(name));
      return 0;
    }
    ByteCount bytes = dtype->size;
    for (const ByteCount extent : metadata->shape) bytes *= extent;
    return bytes;
  }

  // Equal layout hashes imply equal allocations.
  void find_allocations() {
    if (manager_.layout_hash() != snapshot_->manifest.layout_hash ||
        manager_.allocations().size() != parts_.size()) {
      throw Error(ExitStatus::kBadData, "verify what " + base::quoted(socket_path_) +
                                            " published: layout " + manager_.layout_hash().value() +
                                            ", " + base::quoted(name_) + " has " +
                                            snapshot_->manifest.layout_hash.value());
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (manager_.allocations()[i].allocation.aligned_size != parts_[i].item.size) {
        throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(socket_path_) + ": " +
                                               parts_[i].name + " does not match its layout hash");
      }
      addresses_[i] = address_of({i, 0});
    }
  }

  using Tensors = std::map<std::string, std::optional<gms::TensorMetadata>>;

  static Tensors tensors_in(const gms::Metadata& metadata) {
    Tensors tensors;
    for (const auto& [name, entry] : metadata) {
      tensors.emplace(name, gms::parse_tensor_metadata(entry.value));
    }
    return tensors;
  }

  [[nodiscard]] Tensors wanted_tensors() const {
    if (snapshot_) return tensors_in(snapshot_->metadata);
    Tensors tensors;
    for (const auto& [tensor, file] : model_.tensors) {
      tensors[tensor.name] = {std::string(tensor.dtype->torch_name),
                              tensor.shape,
                              gms::contiguous_stride(tensor.shape),
                              {}};
    }
    return tensors;
  }

  static std::string kind_of(const std::optional<gms::TensorMetadata>& tensor) {
    if (!tensor) return "of an unknown kind";
    return fmt::format("{} [{}]", tensor->dtype, fmt::join(tensor->shape, ", "));
  }

  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& reason) const {
    throw Error(ExitStatus::kBadData,
                fmt::format("import what {} published: tensor {}: {}", base::quoted(socket_path_),
                            base::quoted(name), reason));
  }

  // Checks that the published tensors are those of the source, except for their bytes.
  void compare_tensors(const gms::Metadata& metadata) const {
    const Tensors published = tensors_in(metadata);
    const Tensors wanted = wanted_tensors();
    for (const auto& [name, tensor] : wanted) {
      const auto found = published.find(name);
      if (found == published.end()) refuse_tensor(name, "missing");
      const std::string kind = kind_of(found->second);
      if (kind != kind_of(tensor)) {
        refuse_tensor(name, kind + ", and " + kind_of(tensor) + " in " + base::quoted(name_));
      }
    }
    for (const auto& [name, tensor] : published) {
      if (!wanted.contains(name)) refuse_tensor(name, "not in " + base::quoted(name_));
    }
  }

  // Finds the published tensors, which compare_tensors() has checked.
  void find_tensors(const gms::Metadata& metadata) {
    std::unordered_map<std::string_view, const gms::MappedAllocation*> by_id;
    for (const auto& one : manager_.allocations()) {
      by_id[one.allocation.allocation_id.value()] = &one;
    }
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Tensor& tensor = model_.tensors[i].tensor;
      const gms::MetadataEntry& entry = metadata.at(tensor.name);
      const auto found = gms::parse_tensor_metadata(entry.value);
      if (!found || found->stride != gms::contiguous_stride(tensor.shape)) {
        refuse_tensor(tensor.name, "not contiguous");
      }
      const auto holder = by_id.find(entry.allocation_id.value());
      const ByteCount offset = entry.offset_bytes;
      if (holder == by_id.end() || offset > holder->second->allocation.aligned_size ||
          tensor.size > holder->second->allocation.aligned_size - offset) {
        refuse_tensor(tensor.name, "not within an allocation");
      }
      addresses_[i] = holder->second->address + offset;
    }
  }

  const LoadOptions& options_;
  const std::string name_;
  // Only one of the two is used; plan() moves its files to files_.
  Model model_;
  std::optional<Snapshot> snapshot_;
  const LaneConfig lanes_;
  std::vector<WeightFile> files_;
  std::vector<Part> parts_;
  std::vector<AllocationPlan> allocations_;
  ByteCount bytes_ = 0;
  std::vector<DevicePtr> addresses_;  // of the parts
  std::vector<std::string> digests_;
  std::vector<CopyRun> runs_;
  // One for each file whose checksum is verified.
  std::vector<OrderedHash> hashes_;
  std::atomic<ByteCount> loaded_ = 0;
  std::atomic<ByteCount> checked_ = 0;
  ByteCount bytes_to_check_ = 0;
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

LoadSource open_source(const LoadOptions& options) {
  LoadSource source;
  if (!options.snapshot.empty()) {
    source.name = options.snapshot;
    source.snapshot = open_snapshot(options.snapshot, options.checksums);
  } else if (!options.model.empty()) {
    source.name = options.model;
    source.model = open_model(options.model);
  }
  return source;
}

std::optional<LoadReport> load(LoadSource source, const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const LoadOptions& options) {
  return Loading(std::move(source), driver, device, socket_path, options).run();
}

std::string format_text(const LoadReport& report) {
  const bool wrote = report.granted_lock_type == gms::Grant::kRw;
  const double rate = report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds : 0;
  return fmt::format(
      "{} {}, {} in {}, in {:.3f} s ({}/s), layout {}", wrote ? "published" : "imported",
      base::counted(report.tensors, "tensor"), base::format_size(report.bytes),
      base::counted(report.allocations, "allocation"), report.seconds,
      base::format_size(static_cast<ByteCount>(rate)), report.memory_layout_hash.value());
}

std::string format_json(const LoadReport& report) {
  return fmt::format(R"({{"bytes": {}, "seconds": {:.6f}, "tensors": {}, "allocations": {}, )"
                     R"("memory_layout_hash": "{}", "granted_lock_type": "{}"}})",
                     report.bytes, report.seconds, report.tensors, report.allocations,
                     report.memory_layout_hash.value(), gms::to_string(report.granted_lock_type));
}

}  // namespace fo::weights
