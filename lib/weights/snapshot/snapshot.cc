#include "weights/snapshot/snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "gms/protocol/layout.h"
#include "os/file/file.h"
#include "os/log.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;

// The current path of the descriptor.
std::string path_of_fd(int fd) {
  std::error_code error;
  std::string path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error).string();
  if (error) base::throw_errno(error.value(), "stat an open file");
  return path;
}

// Returns -1 and errno as openat2(2) does: EXDEV for a file outside the folder.
int open_beneath(int folder, const std::string& name) {
  open_how how{};
  // O_NONBLOCK: the open does not block on a FIFO.
  how.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  constexpr int kMaxAttempts = 128;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const long fd = ::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    // EAGAIN: a rename or mount somewhere in the system raced with the resolution of "..".
    if (errno != EAGAIN) break;
  }
  // ENOSYS in older kernels; EPERM from a seccomp filter that does not know the call.
  if (errno != ENOSYS && errno != EPERM && errno != EAGAIN) return -1;
  base::UniqueFd found(::openat(folder, name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (found && !path_of_fd(found.get()).starts_with(path_of_fd(folder) + "/")) {
    errno = EXDEV;
    return -1;
  }
  return found.release();
}

class Opening {
 public:
  Opening(const std::string& folder, Checksums checksums)
      : folder_(folder), folder_fd_(os::open_file(folder, O_RDONLY | O_DIRECTORY)) {
    const std::string manifest = read_manifest();
    const std::string metadata = read(open(kMetadataFile), kMaxSnapshotMetadata);
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

  // Opens through one descriptor, so that all files belong to one snapshot even if the folder is
  // replaced meanwhile; nullopt if it is missing. Follows no link that leaves the folder.
  [[nodiscard]] std::optional<WeightFile> find(const std::string& name) const {
    base::UniqueFd fd(open_beneath(folder_fd_.get(), name));
    if (fd) return WeightFile(std::move(fd), path_of(name));
    if (errno == ENOENT) return std::nullopt;
    if (errno == EXDEV) refuse(name, "a link that leaves the snapshot");
    base::throw_errno(errno, "open " + base::quoted(path_of(name)));
  }

  [[nodiscard]] WeightFile open(const std::string& name) const {
    auto file = find(name);
    if (!file) base::throw_errno(ENOENT, "open " + base::quoted(path_of(name)));
    return std::move(*file);
  }

  [[nodiscard]] static std::string read(const WeightFile& file, ByteCount limit) {
    if (file.size() > limit) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(file.path()) + ": longer than " +
                                            base::format_size(limit));
    }
    std::string text(file.size(), '\0');
    file.read(std::as_writable_bytes(std::span(text)), 0);
    return text;
  }

  [[nodiscard]] std::string read_manifest() const {
    const auto manifest = find(kManifestFile);
    if (!manifest) {
      throw Error(ExitStatus::kNoInput, "open snapshot " + base::quoted(folder_) + ": no " +
                                            kManifestFile + ", so it is not complete");
    }
    return read(*manifest, kMaxManifest);
  }

  void read_checksums(const std::string& manifest, const std::string& metadata) {
    const auto file = find(kChecksumFile);
    if (!file) {
      os::log(os::LogLevel::kWarning, "snapshot {}: no {}, its bytes are not verified",
              base::quoted(folder_), kChecksumFile);
      return;
    }
    sums_ = parse_checksums(read(*file, kMaxChecksums), path_of(kChecksumFile));
    for (const auto& [name, text] :
         {std::pair(kManifestFile, &manifest), {kMetadataFile, &metadata}}) {
      if (sum_of(name) != checksum_of(*text)) {
        refuse(name, std::string("its SHA-256 differs from that in ") + kChecksumFile);
      }
    }
  }

  [[nodiscard]] const std::string& sum_of(const std::string& name) const {
    const auto found = sums_.find(name);
    if (found == sums_.end()) refuse(kChecksumFile, "no entry for " + base::quoted(name));
    return found->second;
  }

  void check_hash() const {
    const gms::Layout layout = layout_of(snapshot_.manifest, snapshot_.metadata);
    if (layout.records() > gms::kMaxLayoutRecords) {
      refuse(kMetadataFile, "larger than the " + base::format_size(gms::kMaxLayoutRecords) +
                                " that a layout's records can have");
    }
    const gms::LayoutHash hash = gms::layout_hash(layout);
    if (hash != snapshot_.manifest.layout_hash) {
      refuse(kManifestFile,
             "its layout_hash differs from that of its allocations and metadata, " + hash.value());
    }
  }

  void open_files() {
    std::unordered_map<std::string_view, std::size_t> numbers;
    for (const SnapshotAllocation& one : snapshot_.manifest.allocations) {
      const auto [found, is_new] = numbers.emplace(one.tensor_file, snapshot_.files.size());
      if (is_new) {
        if (!sums_.empty()) snapshot_.checksums.push_back(sum_of(one.tensor_file));
        snapshot_.files.push_back(open(one.tensor_file));
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
        throw Error(
            ExitStatus::kBadData,
            fmt::format("read {}: {}, expected the {} of its allocations, "
                        "packed front to back",
                        base::quoted(file.path()), base::counted(file.size(), "byte"), end));
      }
    }
  }

  const std::string& folder_;
  const base::UniqueFd folder_fd_;
  std::map<std::string, std::string> sums_;
  Snapshot snapshot_;
};

}  // namespace

Snapshot open_snapshot(const std::string& folder, Checksums checksums) {
  return Opening(folder, checksums).take();
}

}  // namespace fo::weights
