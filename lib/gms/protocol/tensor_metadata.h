// What a layout says about a tensor: the value of its metadata key, one JSON object.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::gms {

/// No tensor has more dimensions than this.
inline constexpr std::size_t kMaxTensorRank = 64;

struct TensorMetadata {
  /// As PyTorch spells it, e.g. "torch.bfloat16".
  std::string dtype;
  std::vector<base::ByteCount> shape;
  /// In elements, one for each extent.
  std::vector<base::ByteCount> stride;
  /// Hex SHA-256 of the tensor's bytes; empty when it is not pinned.
  std::string digest;

  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
};

/// The strides of a tensor whose elements lie in row-major order without gaps.
std::vector<base::ByteCount> contiguous_stride(const std::vector<base::ByteCount>& shape);

/// In the one spelling that gms-protocol(7) gives, for layout hashes cover it.
std::string format_tensor_metadata(const TensorMetadata& metadata);

/// From any JSON spelling; a missing stride is contiguous. nullopt: not the metadata of a tensor.
std::optional<TensorMetadata> parse_tensor_metadata(std::string_view value);

}  // namespace fo::gms
