// A shard that is being written: its room taken first, so that a full disk shows before anything is
// copied; then its bytes, by many threads, past the page cache where the file system can.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/strong.h"
#include "base/unique_fd.h"

namespace fo::weights {

class ShardFile {
 public:
  /// Creates it with `size` bytes. Throws Error(kCannotCreate …), kIoError for a full disk.
  ShardFile(std::string path, base::ByteCount size);

  /// Thread-safe. Throws Error(kIoError).
  void write(std::span<const std::byte> bytes, base::ByteCount offset) const;
  /// Waits until everything written is on the disk. Throws Error(kIoError).
  void sync() const;

 private:
  std::string path_;
  base::UniqueFd fd_;
  /// Another description of the same file; none where direct writes are not possible.
  base::UniqueFd direct_;
};

}  // namespace fo::weights
