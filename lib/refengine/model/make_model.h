// Generates a model from a seed: a Hugging Face style folder with random weights that are identical
// on every machine. Its output is nonsense that depends on the prompt.
#pragma once

#include <cstdint>
#include <string>

#include "base/strong.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

struct MakeModelOptions {
  std::uint32_t layers = 4;
  std::uint32_t hidden = 256;
  std::uint32_t heads = 8;
  std::uint32_t kv_heads = 4;
  std::uint32_t vocab = 258;
  /// 0: 8/3 of hidden, rounded up to a multiple of 32.
  std::uint32_t intermediate = 0;
  std::uint32_t max_positions = 4096;
  DType dtype = DType::kF32;
  std::uint64_t seed = 0;
  /// Maximum size of a file's tensors, unless it has a single tensor.
  base::ByteCount shard_size = base::kGiB;
};

struct MadeModel {
  base::ByteCount bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t files = 0;
};

/// Writes config.json, and model.safetensors or, for several files, model-00001-of-0000N
/// .safetensors and model.safetensors.index.json. Everything is written to `dir`.partial, which is
/// renamed to `dir` at the end; the .partial of a killed run is reused. Throws kUsage for an
/// invalid shape, kCannotCreate if `dir` exists and is not an empty folder, kTryAgain if another
/// process is writing it, kIoError if the disk is full.
MadeModel make_model(const std::string& dir, const MakeModelOptions& options);

}  // namespace fo::refengine
