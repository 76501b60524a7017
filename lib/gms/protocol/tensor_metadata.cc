#include "gms/protocol/tensor_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::gms {
namespace {

using base::ByteCount;
using nlohmann::json;

// Larger than any tensor's metadata; it bounds the parser's memory.
constexpr ByteCount kMaxValue = 64 * base::kKiB;

std::string format_list(const std::vector<ByteCount>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::optional<std::vector<ByteCount>> read_list(const json& value, const char* key) {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_array() || found->size() > kMaxTensorRank)
    return std::nullopt;
  std::vector<ByteCount> numbers;
  for (const json& number : *found) {
    if (!number.is_number_unsigned()) return std::nullopt;
    numbers.push_back(number.get<ByteCount>());
  }
  return numbers;
}

std::optional<std::string> read_text(const json& value, const char* key) {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace

std::vector<ByteCount> contiguous_stride(const std::vector<ByteCount>& shape) {
  std::vector<ByteCount> stride(shape.size());
  ByteCount step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step *= std::max<ByteCount>(shape[i], 1);
  }
  return stride;
}

std::string format_tensor_metadata(const TensorMetadata& metadata) {
  std::string text = "{";
  if (!metadata.digest.empty()) text += "\"digest\": \"" + metadata.digest + "\", ";
  text += "\"dtype\": \"" + metadata.dtype + "\", \"shape\": " + format_list(metadata.shape);
  text += ", \"stride\": " + format_list(metadata.stride) + ", \"tensor_type\": \"parameter\"}";
  return text;
}

std::optional<TensorMetadata> parse_tensor_metadata(std::string_view value) {
  const std::optional<json> parsed = fo::json::find_object(value, kMaxValue);
  if (!parsed) return std::nullopt;
  const auto dtype = read_text(*parsed, "dtype");
  const auto shape = read_list(*parsed, "shape");
  if (!dtype || !shape) return std::nullopt;
  TensorMetadata metadata{*dtype, *shape, contiguous_stride(*shape), {}};
  if (fo::json::find(*parsed, "stride") != nullptr) {
    const auto numbers = read_list(*parsed, "stride");
    if (!numbers || numbers->size() != shape->size()) return std::nullopt;
    metadata.stride = *numbers;
  }
  metadata.digest = read_text(*parsed, "digest").value_or("");
  return metadata;
}

}  // namespace fo::gms
