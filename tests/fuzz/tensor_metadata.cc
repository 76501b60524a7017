// The value of a tensor's metadata key, which any writer of a layout can set.
#include "gms/protocol/tensor_metadata.h"

#include "fuzz.h"

namespace fo::gms {
namespace {

void fuzz_one(std::string_view value) {
  using fuzz::require;
  const auto metadata = parse_tensor_metadata(value);
  if (!metadata) return;
  require(metadata->shape.size() <= kMaxTensorRank, "a shape is short");
  require(metadata->stride.size() == metadata->shape.size(), "every extent has a stride");
  // Only plain names are ever written.
  const auto is_plain = [](const std::string& text) {
    return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos;
  };
  if (!is_plain(metadata->dtype) || !is_plain(metadata->digest)) return;
  require(parse_tensor_metadata(format_tensor_metadata(*metadata)) == metadata,
          "the round trip changes nothing");
}

}  // namespace
}  // namespace fo::gms

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::gms::fuzz_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
