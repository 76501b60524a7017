// A model on disk: one .safetensors file, or a Hugging Face folder of them. It is opened and
// checked completely before a byte of a tensor is read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/strong.h"
#include "weights/file/safetensors.h"
#include "weights/file/weight_file.h"

namespace fo::weights {

struct ModelTensor {
  Tensor tensor;
  /// Index into Model::files.
  std::size_t file = 0;
};

struct Model {
  std::vector<WeightFile> files;
  /// File by file, in the order of their bytes: always the same order for the same model.
  std::vector<ModelTensor> tensors;
  /// Total size of the tensors.
  base::ByteCount bytes = 0;
};

/// The tensors of a .safetensors file, ordered by position. Throws Error(kBadData) for a header
/// that parse_header refuses, also that of a truncated file; kIoError if a read fails.
std::vector<Tensor> read_header(const WeightFile& file);

/// `path` is a .safetensors file; a folder with model.safetensors.index.json, which maps tensors to
/// files in that folder; or a folder with model.safetensors. Throws kNoInput for a missing file,
/// and kBadData, with file and tensor, for a header that parse_header refuses, an invalid index, a
/// tensor that is in two files or not in the file that the index names, and a model without
/// tensors.
Model open_model(const std::string& path);

}  // namespace fo::weights
