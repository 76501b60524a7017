// A shard that is being written. Its space is allocated first, if the file system supports that, so
// that a full disk is detected before anything is copied; then many threads write its bytes, past
// the page cache if the file system supports that.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/strong.h"
#include "base/unique_fd.h"

namespace fo::weights {

class ShardFile {
 public:
  /// Creates the file with `size` bytes. Throws Error(kCannotCreate …), kIoError for a full disk.
  ShardFile(std::string path, base::ByteCount size);

  /// Thread-safe. Throws Error(kIoError).
  void write(std::span<const std::byte> bytes, base::ByteCount offset) const;
  /// Waits until all writes are on the disk. Throws Error(kIoError).
  void sync() const;

 private:
  std::string path_;
  base::UniqueFd fd_;
  /// Another description of the same file; empty if direct writes are not possible.
  base::UniqueFd direct_;
};

}  // namespace fo::weights
