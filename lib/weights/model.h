// A model on disk: one .safetensors file, or a Hugging Face folder of them. Opened and checked as a
// whole before a byte of a tensor is read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "weights/safetensors.h"

namespace fo::weights {

/// An open file of a model. Reading is thread-safe.
class ModelFile {
 public:
  /// Errors: kNoInput when it is absent, kBadData when it is no regular file.
  explicit ModelFile(std::string path);

  /// Fills `to` from `offset` on. Errors: kBadData when the file is shorter than that, kIoError.
  void read(std::span<std::byte> to, base::ByteCount offset) const;
  /// Throws Error(kBadData) when the file was written to since it was opened.
  void check_unchanged() const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] base::ByteCount size() const { return size_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  base::ByteCount size_ = 0;
  timespec modified_{};
};

struct ModelTensor {
  Tensor tensor;
  /// Which of Model::files.
  std::size_t file = 0;
};

struct Model {
  std::vector<ModelFile> files;
  /// File by file, in the order of their bytes: the same for the same model, always.
  std::vector<ModelTensor> tensors;
  /// Of all tensors.
  base::ByteCount bytes = 0;
};

/// `path`: a .safetensors file; or a folder with model.safetensors.index.json, which names files
/// beside it and which tensor is in which, or else with model.safetensors.
/// Errors: kNoInput for a file that is absent; kBadData, naming file and tensor, for what
/// parse_header refuses, a bad index, a tensor that is in two files or not in the file that the
/// index names, and a model without tensors.
Model open_model(const std::string& path);

}  // namespace fo::weights
