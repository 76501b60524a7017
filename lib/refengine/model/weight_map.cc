#include "refengine/model/weight_map.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "gms/protocol/tensor_metadata.h"

namespace fo::refengine {
namespace {

[[noreturn]] void refuse_tensor(const std::string& name, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "map tensor " + base::quoted(name) + ": " + reason);
}

// The stride of a dimension of size one does not matter.
bool is_contiguous(const gms::TensorMetadata& tensor) {
  const std::vector<base::ByteCount> dense = gms::contiguous_stride(tensor.shape);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    if (tensor.shape[i] > 1 && tensor.stride[i] != dense[i]) return false;
  }
  return true;
}

}  // namespace

WeightView map_weights(const gms::Metadata& metadata,
                       const std::function<AllocationBytes(const gms::AllocationId& id)>& find) {
  WeightView view;
  for (const auto& [name, entry] : metadata) {
    std::optional<gms::TensorMetadata> about = gms::parse_tensor_metadata(entry.value);
    if (!about) refuse_tensor(name, "its metadata does not describe a tensor");
    const auto dtype = parse_torch_dtype(about->dtype);
    if (!dtype) continue;
    if (!is_contiguous(*about)) refuse_tensor(name, "not contiguous");
    TensorView tensor{*dtype, std::move(about->shape), nullptr};
    const AllocationBytes allocation = find(entry.allocation_id);
    if (allocation.data == nullptr || entry.offset_bytes > allocation.size) {
      refuse_tensor(name, "outside the layout's allocations");
    }
    if (entry.offset_bytes % dtype_size(*dtype) != 0) refuse_tensor(name, "not aligned");
    std::uint64_t room = (allocation.size - entry.offset_bytes) / dtype_size(*dtype);
    for (const std::uint64_t extent : tensor.shape) {
      if (extent == 0) refuse_tensor(name, "empty");
      room /= extent;
    }
    if (room == 0) refuse_tensor(name, "longer than its allocation");
    tensor.data = allocation.data + entry.offset_bytes;
    view.emplace(name, std::move(tensor));
  }
  return view;
}

}  // namespace fo::refengine
