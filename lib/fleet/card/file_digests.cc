#include "fleet/card/file_digests.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "fleet/card/digest.h"
#include "fleet/card/digest_cache.h"
#include "gms/protocol/sha256.h"
#include "os/process/thread.h"
#include "weights/file/model.h"
#include "weights/file/weight_file.h"

namespace fo::fleet {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;

constexpr std::size_t kChunk = std::size_t{1} << 20;

struct File {
  std::string path;
  FileIdentity identity;
  /// The name of the blob that the file links to; "" if the file is not a link to a blob.
  std::string blob;
  std::string sha256 = {};
  /// True if the digest may be stored in the cache.
  bool is_settled = false;
};

FileIdentity identity_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(path, ignored);
    if (error == ENOENT && !target.empty()) {
      throw Error(ExitStatus::kNoInput, "open " + base::quoted(path) + ": it links to " +
                                            base::quoted(target.string()) +
                                            ", which does not exist");
    }
    base::throw_errno(error, "open " + base::quoted(path));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path) + ": not a regular file");
  }
  return identity_of(status);
}

std::string blob_of(const std::string& path) {
  std::error_code ignored;
  const auto target = std::filesystem::read_symlink(path, ignored);
  const std::string name = target.filename().string();
  const bool is_blob = target.parent_path().filename() == "blobs";
  return is_blob && name.size() == 64 && base::is_hex(name) ? name : "";
}

// Whether any later change of the file gets a later time than its last one. The clock of the file
// system may advance by 10 ms at a time, so it must have advanced since the last change.
bool is_settled(const FileIdentity& identity) {
  constexpr std::chrono::nanoseconds kResolution = std::chrono::milliseconds(20);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(identity.changed) > kResolution;
}

// Reads files on several threads.
class ParallelHash {
 public:
  explicit ParallelHash(std::vector<File*> files) : files_(std::move(files)) {
    // The largest first, so that no thread is left with a large one at the end.
    std::stable_sort(files_.begin(), files_.end(), [](const File* one, const File* other) {
      return one->identity.size > other->identity.size;
    });
    for (const File* file : files_) total_ += file->identity.size;
  }

  /// Throws an error of `on_progress`, or of the first thread with one.
  void run(const std::function<void(ByteCount, ByteCount)>& on_progress) {
    constexpr auto kTick = std::chrono::milliseconds(100);
    const std::size_t cpus = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    std::vector<std::future<void>> ends;
    std::exception_ptr failure;
    try {
      while (threads.size() < std::min(cpus, files_.size())) {
        const auto task = std::make_shared<std::packaged_task<void()>>([this] { work(); });
        ends.push_back(task->get_future());
        threads.push_back(os::start_signal_masked_thread([task] { (*task)(); }));
      }
      for (const std::future<void>& end : ends) {
        while (end.wait_for(kTick) != std::future_status::ready) {
          if (on_progress) on_progress(done_, total_);
        }
      }
    } catch (...) {
      stopping_ = true;
      failure = std::current_exception();
    }
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    for (std::future<void>& end : ends) end.get();
  }

 private:
  void work() {
    try {
      std::vector<std::byte> buffer(kChunk);
      for (;;) {
        const std::size_t index = next_++;
        if (index >= files_.size() || stopping_) break;
        hash(*files_[index], buffer);
      }
    } catch (...) {
      stopping_ = true;
      throw;
    }
  }

  void hash(File& file, std::span<std::byte> buffer) {
    file.is_settled = is_settled(file.identity);
    const weights::WeightFile source(file.path);
    if (file.path.ends_with(".safetensors")) weights::read_header(source);
    gms::Sha256 hash;
    for (ByteCount at = 0; at < source.size() && !stopping_;) {
      const auto part = buffer.first(std::min<ByteCount>(buffer.size(), source.size() - at));
      source.read(part, at);
      hash.add(part);
      at += part.size();
      done_ += part.size();
    }
    source.check_unchanged();
    if (identity_at(file.path) != file.identity) {
      throw Error(ExitStatus::kBadData,
                  "read " + base::quoted(file.path) + ": it was modified meanwhile");
    }
    file.sha256 = hash.finish();
  }

  std::vector<File*> files_;
  ByteCount total_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<ByteCount> done_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace

std::vector<FileDigest> digest_files(const std::string& folder,
                                     const std::vector<std::string>& names,
                                     const DigestOptions& options) {
  DigestCache cache(options.cache_folder);
  std::vector<File> files;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    files.push_back({path, identity_at(path), blob_of(path)});
  }
  std::vector<File*> unread;
  for (File& file : files) {
    if (!options.verify) {
      file.sha256 = file.blob.empty() ? cache.find(file.identity).value_or("") : file.blob;
    }
    if (file.sha256.empty()) unread.push_back(&file);
  }
  if (!unread.empty()) {
    ParallelHash(unread).run(options.on_progress);
    bool is_changed = false;
    for (const File* file : unread) {
      if (!file->blob.empty() && file->blob != file->sha256) {
        throw Error(ExitStatus::kBadData, "read " + base::quoted(file->path) + ": its SHA-256 is " +
                                              file->sha256 + ", but it is named " + file->blob);
      }
      if (!file->is_settled || !file->blob.empty()) continue;
      cache.put(file->identity, file->sha256);
      is_changed = true;
    }
    if (is_changed) cache.save();
  }
  std::vector<FileDigest> digests;
  for (std::size_t i = 0; i < files.size(); ++i) {
    digests.push_back({names[i], files[i].identity.size, files[i].sha256});
  }
  return digests;
}

std::string digest_of(const std::vector<FileDigest>& files) {
  FieldHash hash;
  for (const FileDigest& file : files) {
    hash.add(file.name);
    hash.add(std::to_string(file.size));
    hash.add(file.sha256);
  }
  return hash.finish();
}

}  // namespace fo::fleet
