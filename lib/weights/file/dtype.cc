#include "weights/file/dtype.h"

#include <algorithm>
#include <array>

namespace fo::weights {
namespace {

constexpr std::array<DType, 15> kDTypes{{
    {"BOOL", "torch.bool", 1},
    {"U8", "torch.uint8", 1},
    {"I8", "torch.int8", 1},
    {"F8_E5M2", "torch.float8_e5m2", 1},
    {"F8_E4M3", "torch.float8_e4m3fn", 1},
    {"I16", "torch.int16", 2},
    {"U16", "torch.uint16", 2},
    {"F16", "torch.float16", 2},
    {"BF16", "torch.bfloat16", 2},
    {"I32", "torch.int32", 4},
    {"U32", "torch.uint32", 4},
    {"F32", "torch.float32", 4},
    {"F64", "torch.float64", 8},
    {"I64", "torch.int64", 8},
    {"U64", "torch.uint64", 8},
}};

const DType* find(std::string_view DType::*spelling, std::string_view wanted) {
  const auto found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                  [&](const DType& dtype) { return dtype.*spelling == wanted; });
  return found == kDTypes.end() ? nullptr : &*found;
}

}  // namespace

const DType* find_dtype(std::string_view name) { return find(&DType::name, name); }

const DType* find_torch_dtype(std::string_view torch_name) {
  return find(&DType::torch_name, torch_name);
}

}  // namespace fo::weights
