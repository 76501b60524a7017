// The header of a .safetensors file: its tensors and their positions. Pure: bytes in, records out.
// It is as strict as the reference implementation: the tensors must cover the data without gap or
// overlap, up to the file's last byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "weights/file/dtype.h"

namespace fo::weights {

struct Tensor {
  std::string name;
  const DType* dtype = nullptr;
  std::vector<base::ByteCount> shape;
  /// Offset of its bytes in the file.
  base::ByteCount offset = 0;
  base::ByteCount size = 0;
};

/// The bytes before the header: its length, little-endian.
inline constexpr base::ByteCount kPrefixSize = 8;
/// The reference implementation's limit.
inline constexpr base::ByteCount kMaxHeader = 100'000'000;
/// Our own limit, because names become metadata keys.
inline constexpr std::size_t kMaxTensorName = 4096;

/// The length of prefix and header together, from a file's first kPrefixSize bytes (fewer are an
/// error). `file` is a name for messages. Throws Error(kBadData) for a header over the limit or
/// past the file's end.
base::ByteCount header_end(std::string_view prefix, base::ByteCount file_size,
                           const std::string& file);

/// The tensors, ordered by position, from a file's first header_end bytes or more. Throws
/// Error(kBadData): "read 'file': tensor 'name': reason".
std::vector<Tensor> parse_header(std::string_view bytes, base::ByteCount file_size,
                                 const std::string& file);

}  // namespace fo::weights
