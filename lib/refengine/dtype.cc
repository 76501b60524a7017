#include "refengine/dtype.h"

#include <array>

namespace fo::refengine {
namespace {

struct Names {
  std::string_view torch;
  std::string_view safetensors;
};
constexpr std::array<Names, 3> kNames{Names{"float32", "F32"}, Names{"float16", "F16"},
                                      Names{"bfloat16", "BF16"}};

std::optional<DType> find(std::string_view name, std::string_view Names::*spelling) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].*spelling == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> parse_torch_dtype(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return find(name, &Names::torch);
}

std::string_view torch_dtype_name(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)].torch;
}

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  return find(name, &Names::safetensors);
}

std::string_view safetensors_dtype_name(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)].safetensors;
}

}  // namespace fo::refengine
