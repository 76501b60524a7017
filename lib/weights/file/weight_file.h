// An open file of weights, read by many threads: from the page cache, or past it for bytes that are
// not cached, which is faster and uses no host memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/strong.h"
#include "base/unique_fd.h"

namespace fo::weights {

/// Maximum number of pieces of one read.
inline constexpr std::size_t kMaxPieces = 1024;

/// Direct reads need offsets, sizes and addresses that are multiples of this.
inline constexpr base::ByteCount kDirectAlignment = 4096;

class WeightFile {
 public:
  /// Throws kNoInput if the file is missing, kBadData if it is not a regular file.
  explicit WeightFile(const std::string& path);
  /// Takes a descriptor that is open for reading; the path is for messages.
  WeightFile(base::UniqueFd fd, std::string path);

  /// Fills `to` from `offset` on. Throws kBadData if the file is too short, and kIoError.
  void read(std::span<std::byte> to, base::ByteCount offset) const;
  /// The same for several pieces, at most kMaxPieces; the array is modified.
  void read(std::span<iovec> to, base::ByteCount offset) const;

  /// Whether these bytes should be read directly: they are many, and a probe of a random page shows
  /// that it is not in the page cache.
  [[nodiscard]] bool is_cold(base::ByteCount offset, base::ByteCount size) const;
  /// Like read(), but past the page cache; ranges that the file system cannot read in this way are
  /// read through it. Address, size and offset must be aligned. The file may end within the last
  /// kDirectAlignment bytes; bytes of `to` after its end are unchanged.
  void read_direct(std::span<std::byte> to, base::ByteCount offset) const;

  /// Throws Error(kBadData) if the file was modified since it was opened.
  void check_unchanged() const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  /// Another description of the same file; empty if direct reads are not possible.
  base::UniqueFd direct_;
  base::ByteCount size_ = 0;
  timespec modified_{};
};

}  // namespace fo::weights
