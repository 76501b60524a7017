// The header of a .safetensors file: which tensors lie where in it. Pure: bytes in, records out.
// Strict where the reference implementation is: the tensors cover the data without a gap or an
// overlap, to the file's last byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "weights/dtype.h"

namespace fo::weights {

struct Tensor {
  std::string name;
  const DType* dtype = nullptr;
  std::vector<base::ByteCount> shape;
  /// Where its bytes begin in the file.
  base::ByteCount offset = 0;
  base::ByteCount size = 0;
};

/// The bytes before the header: its length, little-endian.
inline constexpr base::ByteCount kPrefixSize = 8;
/// The reference implementation's limit.
inline constexpr base::ByteCount kMaxHeader = 100'000'000;
/// A limit of our own: names become metadata keys.
inline constexpr std::size_t kMaxTensorName = 4096;

/// How long prefix and header are together, from a file's first kPrefixSize bytes (or fewer, which
/// is an error). `file` is a name for messages. Throws Error(kBadData) for a header that is over
/// the limit or goes past the file's end.
base::ByteCount header_end(std::string_view prefix, base::ByteCount file_size,
                           const std::string& file);

/// The tensors, in the order of their bytes, from a file's first header_end bytes or more. Throws
/// Error(kBadData): "read 'file': tensor 'name': reason".
std::vector<Tensor> parse_header(std::string_view bytes, base::ByteCount file_size,
                                 const std::string& file);

}  // namespace fo::weights
