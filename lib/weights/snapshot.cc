#include "weights/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "gms/layout.h"
#include "gms/sha256.h"
#include "os/file.h"
#include "os/log.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;

std::string sha256_of(std::string_view text) {
  gms::Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

bool exists(const std::string& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error) base::throw_errno(error.value(), "look at " + base::quoted(path));
  return found;
}

std::string resolved(const std::string& path) {
  std::error_code error;
  std::string found = std::filesystem::canonical(path, error).string();
  if (error) base::throw_errno(error.value(), "open " + base::quoted(path));
  return found;
}

// Follows no link that leaves the folder.
WeightFile open_below(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  if (!resolved(path).starts_with(resolved(folder) + "/")) {
    throw Error(ExitStatus::kBadData,
                "read " + base::quoted(path) + ": a link out of the snapshot");
  }
  return WeightFile(path);
}

class Opening {
 public:
  Opening(const std::string& folder, Checksums checksums) : folder_(folder) {
    const std::string manifest = read_manifest();
    const std::string metadata = read(kMetadataFile, kMaxSnapshotMetadata);
    if (checksums == Checksums::kCheck) read_checksums(manifest, metadata);
    snapshot_.manifest = parse_manifest(manifest, path_of(kManifestFile));
    snapshot_.metadata =
        parse_snapshot_metadata(metadata, snapshot_.manifest, path_of(kMetadataFile));
    check_hash();
    open_files();
    check_coverage();
  }

  Snapshot take() { return std::move(snapshot_); }

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path_of(name)) + ": " + reason);
  }

  [[nodiscard]] std::string read(const std::string& name, ByteCount limit) const {
    return os::read_file(path_of(name), limit);
  }

  [[nodiscard]] std::string read_manifest() const {
    if (exists(folder_) && !exists(path_of(kManifestFile))) {
      throw Error(ExitStatus::kNoInput, "open snapshot " + base::quoted(folder_) + ": no " +
                                            kManifestFile + " in it: it is not complete");
    }
    return read(kManifestFile, kMaxManifest);
  }

  void read_checksums(const std::string& manifest, const std::string& metadata) {
    if (!exists(path_of(kChecksumFile))) {
      os::log(os::LogLevel::kWarning, "snapshot {}: no {}, its bytes are not verified",
              base::quoted(folder_), kChecksumFile);
      return;
    }
    sums_ = parse_checksums(read(kChecksumFile, kMaxChecksums), path_of(kChecksumFile));
    for (const auto& [name, text] :
         {std::pair(kManifestFile, &manifest), {kMetadataFile, &metadata}}) {
      if (checksum_of(name) != sha256_of(*text)) {
        refuse(name, std::string("its SHA-256 is not that in ") + kChecksumFile);
      }
    }
  }

  [[nodiscard]] const std::string& checksum_of(const std::string& name) const {
    const auto found = sums_.find(name);
    if (found == sums_.end()) refuse(kChecksumFile, "nothing for " + base::quoted(name));
    return found->second;
  }

  void check_hash() const {
    gms::Layout layout;
    for (const SnapshotAllocation& one : snapshot_.manifest.allocations) {
      layout.add(one.allocation_id, one.size, one.aligned_size, one.tag);
    }
    for (const auto& [key, entry] : snapshot_.metadata) {
      layout.put(key, entry.allocation_id, static_cast<std::int64_t>(entry.offset_bytes),
                 entry.value);
    }
    const std::string hash = gms::layout_hash(layout);
    if (hash != snapshot_.manifest.layout_hash) {
      refuse(kManifestFile, "its layout_hash is not that of its allocations and metadata, " + hash);
    }
  }

  void open_files() {
    std::unordered_map<std::string_view, std::size_t> numbers;
    for (const SnapshotAllocation& one : snapshot_.manifest.allocations) {
      const auto [found, is_new] = numbers.emplace(one.tensor_file, snapshot_.files.size());
      if (is_new) {
        if (!sums_.empty()) snapshot_.checksums.push_back(checksum_of(one.tensor_file));
        snapshot_.files.push_back(open_below(folder_, one.tensor_file));
      }
      snapshot_.file_of.push_back(found->second);
    }
  }

  void check_coverage() const {
    using Range = std::pair<ByteCount, ByteCount>;  // begin, size
    std::vector<std::vector<Range>> ranges(snapshot_.files.size());
    for (std::size_t i = 0; i < snapshot_.file_of.size(); ++i) {
      const SnapshotAllocation& one = snapshot_.manifest.allocations[i];
      ranges[snapshot_.file_of[i]].emplace_back(one.tensor_offset, one.aligned_size);
    }
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      std::sort(ranges[i].begin(), ranges[i].end());
      ByteCount end = 0;
      bool is_packed = true;
      for (const auto& [begin, size] : ranges[i]) {
        is_packed = is_packed && begin == end;
        end = begin + size;
      }
      const WeightFile& file = snapshot_.files[i];
      if (!is_packed || end != file.size()) {
        throw Error(ExitStatus::kBadData,
                    fmt::format("read {}: {} bytes, which are not the {} of its allocations, "
                                "packed front to back",
                                base::quoted(file.path()), file.size(), end));
      }
    }
  }

  const std::string& folder_;
  std::map<std::string, std::string> sums_;
  Snapshot snapshot_;
};

}  // namespace

Snapshot open_snapshot(const std::string& folder, Checksums checksums) {
  return Opening(folder, checksums).take();
}

}  // namespace fo::weights
