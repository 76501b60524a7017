// Headers of safetensors files. The first byte selects: the remaining bytes are a whole file, or
// the header of a file with a valid prefix and as much data as its next 8 bytes state.
#include "weights/file/safetensors.h"

#include <limits>
#include <string>
#include <unordered_set>

#include "fuzz.h"
#include "gms/protocol/tensor_metadata.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

void check_file(std::string_view bytes, ByteCount file_size) {
  const std::string file = "f";
  const auto data =
      unless_refused({ExitStatus::kBadData}, [&] { return header_end(bytes, file_size, file); });
  const auto tensors =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_header(bytes, file_size, file); });
  if (!tensors) return;
  require(data && *data <= file_size && *data <= bytes.size(), "the header is in the file");
  ByteCount end = *data;
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : *tensors) {
    require(!tensor.name.empty() && tensor.name.size() <= kMaxTensorName, "a name is usable");
    require(names.insert(tensor.name).second, "no name is there twice");
    require(tensor.offset == end, "the data has no gap and no overlap");
    require(tensor.size <= file_size - end, "a tensor is in the file");
    end += tensor.size;
    require(tensor.shape.size() <= gms::kMaxTensorRank, "a shape is short");
    ByteCount size = tensor.dtype->size;
    ByteCount strided = size;  // the range of strides, with extents of 0 counted as 1
    for (const ByteCount extent : tensor.shape) {
      size *= extent;
      require(!__builtin_mul_overflow(strided, std::max<ByteCount>(extent, 1), &strided) &&
                  strided <= ByteCount{std::numeric_limits<std::int64_t>::max()},
              "no stride overflows");
    }
    require(tensor.size == size, "a tensor is as large as its shape");
  }
  require(end == file_size, "the data reaches to the file's end");
}

void fuzz_one(fuzz::Input input) {
  if (input.byte() % 2 == 0) {
    const std::string_view bytes = input.rest();
    check_file(bytes, bytes.size());
    return;
  }
  const ByteCount data = input.number();
  const std::string_view header = input.rest();
  std::string bytes;
  for (unsigned i = 0; i < kPrefixSize; ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  bytes += header;
  ByteCount file_size = 0;
  if (!__builtin_add_overflow(bytes.size(), data, &file_size)) check_file(bytes, file_size);
}

}  // namespace
}  // namespace fo::weights

FO_FUZZER(fo::weights::fuzz_one)
