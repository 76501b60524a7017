// The element types of safetensors files, and their PyTorch names.
#pragma once

#include <string_view>

#include "base/strong.h"

namespace fo::weights {

struct DType {
  /// The name in a safetensors header, e.g. "BF16".
  std::string_view name;
  /// The name in tensor metadata, e.g. "torch.bfloat16".
  std::string_view torch_name;
  /// Size of one element in bytes.
  base::ByteCount size;
};

/// nullptr if unknown. The result has static lifetime.
const DType* find_dtype(std::string_view name);
const DType* find_torch_dtype(std::string_view torch_name);

}  // namespace fo::weights
