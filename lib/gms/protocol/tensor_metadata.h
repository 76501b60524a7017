// The metadata of a tensor in a layout: the value of its key, one JSON object.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::gms {

/// Maximum number of dimensions of a tensor.
inline constexpr std::size_t kMaxTensorRank = 64;

struct TensorMetadata {
  /// The type in PyTorch's spelling, e.g. "torch.bfloat16".
  std::string dtype;
  std::vector<base::ByteCount> shape;
  /// In elements, one for each dimension.
  std::vector<base::ByteCount> stride;
  /// Hex SHA-256 of the tensor's bytes; empty unless it is pinned.
  std::string digest;

  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
};

/// The strides of a tensor with elements in row-major order without gaps.
std::vector<base::ByteCount> contiguous_stride(const std::vector<base::ByteCount>& shape);

/// In the exact spelling of gms-protocol(7), because layout hashes cover it.
std::string format_tensor_metadata(const TensorMetadata& metadata);

/// Parses any JSON spelling; a missing stride means contiguous. nullopt if it is not the metadata
/// of a tensor.
std::optional<TensorMetadata> parse_tensor_metadata(std::string_view value);

}  // namespace fo::gms
