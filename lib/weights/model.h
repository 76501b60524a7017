// A model on disk: one .safetensors file, or a Hugging Face folder of them. Opened and checked as a
// whole before a byte of a tensor is read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/strong.h"
#include "weights/safetensors.h"
#include "weights/weight_file.h"

namespace fo::weights {

struct ModelTensor {
  Tensor tensor;
  /// Which of Model::files.
  std::size_t file = 0;
};

struct Model {
  std::vector<WeightFile> files;
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
