#include "weights/save.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cuda/memory.h"
#include "gms/client/memory_manager.h"
#include "gms/protocol/layout.h"
#include "gms/protocol/sha256.h"
#include "os/file/file.h"
#include "weights/snapshot/shard_file.h"
#include "weights/snapshot/snapshot_manifest.h"
#include "weights/workers.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using cuda::abi::DevicePtr;
using Clock = std::chrono::steady_clock;

// An allocation's bytes, and their offset in the shard.
struct Extent {
  DevicePtr address = 0;
  ByteCount offset = 0;
  ByteCount size = 0;
};

struct Shard {
  std::string name;
  std::vector<Extent> extents;
  ByteCount size = 0;
  std::string sha256;
};

// One save in progress. The members are declared so that after any failure the threads end before
// the data that they use is destroyed.
class Saving {
 public:
  Saving(const std::shared_ptr<const cuda::Driver>& driver, const cuda::DeviceInfo& device,
         const std::string& socket_path, const SaveOptions& options)
      : options_(options),
        lanes_(lane_config(driver, options.copy_threads, options.ring)),
        manager_(driver, device, socket_path, options.server_uid),
        socket_path_(socket_path) {}

  std::optional<SaveReport> run() {
    check_snapshot_place(options_.folder, options_.replace);
    const auto deadline = base::Deadline::after(options_.timeout);
    const auto grant = manager_.connect(gms::LockType::kRo, deadline,
                                        options_.timeout ? gms::RpcClient::Retry::kUntilTheDeadline
                                                         : gms::RpcClient::Retry::kNever);
    if (!grant) return std::nullopt;
    const auto start = Clock::now();
    context_ = retain_context(manager_.driver(), manager_.device().ordinal);
    manager_.import_all(cuda::Access::kRead);
    metadata_ = manager_.fetch_metadata();
    plan();
    check_hash();
    describe();
    show_progress();
    write();
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return report_;
  }

 private:
  // A loaded snapshot must have the same hash as the saved layout.
  void check_hash() {
    const gms::LayoutHash hash = gms::layout_hash(layout_of(manifest_, metadata_));
    if (hash != manager_.layout_hash()) {
      throw Error(ExitStatus::kProtocol, "GMS at " + base::quoted(socket_path_) + ": layout hash " +
                                             base::quoted(manager_.layout_hash().value()) +
                                             " of a layout that has " + hash.value());
    }
    manifest_.layout_hash = hash;
    report_.memory_layout_hash = hash;
  }

  void plan() {
    for (const gms::MappedAllocation& one : manager_.allocations()) {
      const gms::Allocation& made = one.allocation;
      manifest_.allocations.push_back(
          {made.allocation_id, made.size, made.aligned_size, made.tag, {}, 0});
    }
    place_in_shards(manifest_);
    for (std::size_t i = 0; i < manifest_.allocations.size(); ++i) {
      const SnapshotAllocation& one = manifest_.allocations[i];
      if (shards_.empty() || shards_.back().name != one.tensor_file) {
        shards_.emplace_back().name = one.tensor_file;
      }
      Shard& shard = shards_.back();
      shard.extents.push_back(
          {manager_.allocations()[i].address, one.tensor_offset, one.aligned_size});
      shard.size = one.tensor_offset + one.aligned_size;
      report_.bytes += one.aligned_size;
    }
    report_.tensors = metadata_.size();
    report_.allocations = manifest_.allocations.size();
    report_.shards = shards_.size();
  }

  // Refuses layouts whose snapshot could not be read again.
  void describe() {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    manifest_text_ = format_manifest(manifest_, now, manager_.device().ordinal);
    metadata_text_ = format_snapshot_metadata(metadata_);
    parse_manifest(manifest_text_, kManifestFile);
    parse_snapshot_metadata(metadata_text_, manifest_, kMetadataFile);
    if (manifest_text_.size() > kMaxManifest || metadata_text_.size() > kMaxSnapshotMetadata) {
      throw Error(ExitStatus::kBadData,
                  "save to " + base::quoted(options_.folder) + ": the layout's names are too long");
    }
  }

  void write() {
    SnapshotFolder folder(options_.folder, options_.replace);
    const std::string shards = folder.path() + "/shards";
    if (::mkdir(shards.c_str(), 0777) != 0) {
      base::throw_errno(errno, ExitStatus::kIoError, "create " + base::quoted(shards));
    }
    for (const Shard& shard : shards_)
      files_.emplace_back(folder.path() + "/" + shard.name, shard.size);
    write_shards();
    show_progress();
    std::map<std::string, std::string> sums{{kManifestFile, checksum_of(manifest_text_)},
                                            {kMetadataFile, checksum_of(metadata_text_)}};
    for (const Shard& shard : shards_) sums[shard.name] = shard.sha256;
    sync_folder(shards);
    os::write_file_atomic(folder.path() + "/" + kMetadataFile, metadata_text_);
    os::write_file_atomic(folder.path() + "/" + kChecksumFile, format_checksums(sums));
    os::write_file_atomic(folder.path() + "/" + kManifestFile, manifest_text_);
    folder.publish();
  }

  void write_shards() {
    workers_.emplace(lanes_, context_);
    try {
      // Each shard has two strands: hashing needs the order of the bytes, writing does not.
      for (std::size_t i = 0; i < shards_.size(); ++i) {
        workers_->submit([this, i](Lane& lane) { hash(lane, shards_[i]); }, 2 * i);
        submit_writes(i);
      }
      workers_->wait([this] { show_progress(); });
      // The lock is released before the disk writes are flushed.
      manager_.unmap_all();
      for (ShardFile& file : files_) workers_->submit([&file](Lane&) { file.sync(); });
      workers_->wait([this] { show_progress(); });
    } catch (...) {
      cancelled_ = true;
      workers_.reset();
      throw;
    }
    workers_.reset();
  }

  void hash(Lane& lane, Shard& shard) {
    gms::Sha256 hash;
    for (const Extent& extent : shard.extents) {
      for (ByteCount at = 0; at < extent.size && !cancelled_; at += lanes_.chunk) {
        hash.add(lane.view(extent.address + at, std::min(lanes_.chunk, extent.size - at)));
      }
    }
    shard.sha256 = hash.finish();
  }

  void submit_writes(std::size_t i) {
    for (const Extent& extent : shards_[i].extents) {
      for (ByteCount at = 0; at < extent.size; at += lanes_.chunk) {
        workers_->submit(
            [this, i, &extent, at](Lane& lane) {
              const ByteCount size = std::min(lanes_.chunk, extent.size - at);
              files_[i].write(lane.view(extent.address + at, size), extent.offset + at);
              written_ += size;
            },
            2 * i + 1);
      }
    }
  }

  void show_progress() const {
    if (options_.on_progress) options_.on_progress(written_, report_.bytes);
  }

  const SaveOptions& options_;
  const LaneConfig lanes_;
  gms::Metadata metadata_;
  SnapshotManifest manifest_;
  std::string manifest_text_;
  std::string metadata_text_;
  std::vector<Shard> shards_;
  std::vector<ShardFile> files_;
  std::atomic<ByteCount> written_ = 0;
  std::atomic<bool> cancelled_ = false;
  SaveReport report_;
  cuda::PrimaryContext context_;
  gms::MemoryManager manager_;
  const std::string& socket_path_;
  std::optional<Workers> workers_;
};

}  // namespace

std::optional<SaveReport> save(const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const SaveOptions& options) {
  return Saving(driver, device, socket_path, options).run();
}

std::string format_text(const SaveReport& report) {
  const double rate = report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds : 0;
  return fmt::format("saved {}, {} in {} and {}, in {:.3f} s ({}/s), layout {}",
                     base::counted(report.tensors, "tensor"), base::format_size(report.bytes),
                     base::counted(report.allocations, "allocation"),
                     base::counted(report.shards, "shard"), report.seconds,
                     base::format_size(static_cast<ByteCount>(rate)),
                     report.memory_layout_hash.value());
}

std::string format_json(const SaveReport& report) {
  return fmt::format(R"({{"bytes": {}, "seconds": {:.6f}, "tensors": {}, "allocations": {}, )"
                     R"("shards": {}, "memory_layout_hash": "{}"}})",
                     report.bytes, report.seconds, report.tensors, report.allocations,
                     report.shards, report.memory_layout_hash.value());
}

}  // namespace fo::weights
