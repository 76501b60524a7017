// The element types of weights, their names, and their conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fo::refengine {

enum class DType { kF32, kF16, kBf16 };

constexpr std::size_t dtype_size(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

/// "float32", "float16", "bfloat16", optionally with the prefix "torch.".
std::optional<DType> parse_torch_dtype(std::string_view name);
std::string_view torch_dtype_name(DType dtype);

/// Returns the name in safetensors: "F32", "F16", "BF16".
std::string_view safetensors_dtype_name(DType dtype);

constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Exact for every f16, including subnormals, infinities and NaN. Without branches, so that loops
/// are vectorised.
constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  // Signed, because SSE2 only compares signed integers.
  const std::uint32_t top = static_cast<std::int32_t>(magnitude) >= 0x0f800000 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | top | sign);
}

/// Rounds to nearest, ties to even. Only for finite input, because weights are generated.
constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Rounds to nearest, ties to even; above the largest f16 to infinity. Finite input only.
constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below the smallest normal f16: adding 0.5 leaves the rounded subnormal in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

}  // namespace fo::refengine
