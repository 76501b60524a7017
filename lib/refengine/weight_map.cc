#include "refengine/weight_map.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace fo::refengine {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDimensions = 8;

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "map tensor " + base::quoted(name) + ": " + reason);
}

std::vector<std::uint64_t> extents(const json& value, const char* key, const std::string& name) {
  const auto at = value.find(key);
  if (at == value.end() || !at->is_array() || at->size() > kMaxDimensions) {
    refuse(name, std::string(key) + " is not a short list");
  }
  std::vector<std::uint64_t> numbers;
  for (const json& number : *at) {
    if (!number.is_number_unsigned()) refuse(name, std::string(key) + " is not a list of sizes");
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

void check_contiguous(const json& value, const std::vector<std::uint64_t>& shape,
                      const std::string& name) {
  if (!value.contains("stride")) return;
  const std::vector<std::uint64_t> stride = extents(value, "stride", name);
  if (stride.size() != shape.size()) refuse(name, "shape and stride differ in length");
  std::uint64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1 && stride[i] != expected) refuse(name, "not contiguous");
    expected *= shape[i];
  }
}

}  // namespace

WeightView map_weights(const gms::Metadata& metadata,
                       const std::function<AllocationBytes(const std::string& id)>& find) {
  WeightView view;
  for (const auto& [name, entry] : metadata) {
    const json value = json::parse(entry.value, nullptr, false);
    if (!value.is_object()) refuse(name, "its metadata is not a JSON object");
    const auto dtype_name = value.find("dtype");
    if (dtype_name == value.end() || !dtype_name->is_string()) refuse(name, "dtype is missing");
    const auto dtype = parse_torch_dtype(dtype_name->get<std::string>());
    if (!dtype) continue;
    TensorView tensor{*dtype, extents(value, "shape", name), nullptr};
    const AllocationBytes allocation = find(entry.allocation_id);
    if (allocation.data == nullptr || entry.offset_bytes > allocation.size) {
      refuse(name, "outside the layout's allocations");
    }
    if (entry.offset_bytes % dtype_size(*dtype) != 0) refuse(name, "not aligned");
    std::uint64_t room = (allocation.size - entry.offset_bytes) / dtype_size(*dtype);
    for (const std::uint64_t extent : tensor.shape) {
      if (extent == 0) refuse(name, "empty");
      room /= extent;
    }
    if (room == 0) refuse(name, "longer than its allocation");
    check_contiguous(value, tensor.shape, name);
    tensor.data = allocation.data + entry.offset_bytes;
    view.emplace(name, std::move(tensor));
  }
  return view;
}

}  // namespace fo::refengine
