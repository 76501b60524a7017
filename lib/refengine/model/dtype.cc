#include "refengine/model/dtype.h"

#include <array>

namespace fo::refengine {
namespace {

struct Names {
  std::string_view torch;
  std::string_view safetensors;
};
constexpr std::array<Names, 3> kNames{Names{"float32", "F32"}, Names{"float16", "F16"},
                                      Names{"bfloat16", "BF16"}};

}  // namespace

std::optional<DType> parse_torch_dtype(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].torch == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view torch_dtype_name(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)].torch;
}

std::string_view safetensors_dtype_name(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)].safetensors;
}

}  // namespace fo::refengine
