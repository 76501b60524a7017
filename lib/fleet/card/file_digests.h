// Computes the SHA-256 of a model's files. A file whose digest is known is not read again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/strong.h"

namespace fo::fleet {

struct FileDigest {
  std::string name;
  base::ByteCount size = 0;
  /// The digest in 64 hex digits.
  std::string sha256;
};

struct DigestOptions {
  /// Read every file, also those with a known digest.
  bool verify = false;
  /// The folder of the DigestCache; "" for none.
  std::string cache_folder = {};
  /// Called about ten times a second with the bytes read and their total, unless nothing is read.
  std::function<void(base::ByteCount done, base::ByteCount total)> on_progress = {};
};

/// The digests of these files in `folder`, in their order. The digest of a link to a file that is
/// named by its SHA-256, in a folder "blobs" as in the cache of Hugging Face, is that name; others
/// are looked up in the cache. The remaining files are read on one thread for each CPU, and
/// .safetensors files are checked as by weights::read_header.
///
/// Throws kNoInput for a missing file and for a link to one; kBadData for a file that is not
/// regular, is truncated, changes while it is read, or with `verify` does not have the SHA-256 in
/// its name; and what WeightFile throws.
std::vector<FileDigest> digest_files(const std::string& folder,
                                     const std::vector<std::string>& names,
                                     const DigestOptions& options);

/// The FieldHash over name, size and SHA-256 of each file.
std::string digest_of(const std::vector<FileDigest>& files);

}  // namespace fo::fleet
