// An open file of weights, read by many threads: out of the page cache, or past it where the bytes
// are not in there, which is faster and costs no host memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/strong.h"
#include "base/unique_fd.h"

namespace fo::weights {

/// The most pieces that one read may be spread over.
inline constexpr std::size_t kMaxPieces = 1024;

/// What direct reads want: offsets, sizes and addresses at multiples of this.
inline constexpr base::ByteCount kDirectAlignment = 4096;

class WeightFile {
 public:
  /// Errors: kNoInput when it is absent, kBadData when it is no regular file.
  explicit WeightFile(const std::string& path);
  /// One that is open for reading; the path is for messages.
  WeightFile(base::UniqueFd fd, std::string path);

  /// Fills `to` from `offset` on. Errors: kBadData when the file is shorter than that, kIoError.
  void read(std::span<std::byte> to, base::ByteCount offset) const;
  /// The same, into one piece after the other; at most kMaxPieces, which are used up.
  void read(std::span<iovec> to, base::ByteCount offset) const;

  /// Whether a read of these bytes had better be direct: they are many, and not in the page cache
  /// as far as one look at a random place shows.
  [[nodiscard]] bool is_cold(base::ByteCount offset, base::ByteCount size) const;
  /// As read(), but past the page cache; what the file system won't read so is read through it.
  /// All three of address, size and offset are aligned; the file may end within the last
  /// kDirectAlignment bytes, and what is behind its end stays as it was.
  void read_direct(std::span<std::byte> to, base::ByteCount offset) const;

  /// Throws Error(kBadData) when the file was written to since it was opened.
  void check_unchanged() const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  /// Another description of the same file; none where direct reads are not possible.
  base::UniqueFd direct_;
  base::ByteCount size_ = 0;
  timespec modified_{};
};

}  // namespace fo::weights
