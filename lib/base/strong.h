// Numbers and texts that cannot be confused with one another, and sizes in bytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace fo::base {

template <typename Tag, typename Value>
class Strong {
 public:
  constexpr Strong() = default;
  explicit constexpr Strong(Value value) : value_(std::move(value)) {}
  [[nodiscard]] constexpr const Value& value() const& { return value_; }
  [[nodiscard]] constexpr Value value() && { return std::move(value_); }
  /// Whether the text is empty.
  [[nodiscard]] constexpr bool empty() const { return value_.empty(); }
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;

 private:
  Value value_{};
};

/// A CUDA device ordinal of this process (CUDA_VISIBLE_DEVICES applies).
using DeviceOrdinal = Strong<struct DeviceOrdinalTag, int>;

/// The UUID of a GPU or a MIG slice as NVML spells it: "GPU-" (or "MIG-") and 8-4-4-4-12 lower-case
/// hex digits.
using GpuUuid = Strong<struct GpuUuidTag, std::string>;

/// A number of bytes.
using ByteCount = std::uint64_t;

inline constexpr ByteCount kKiB = 1024;
inline constexpr ByteCount kMiB = 1024 * kKiB;
inline constexpr ByteCount kGiB = 1024 * kMiB;

/// `size` rounded up to a multiple of `unit` (> 0); 0 if the result does not fit in 64 bits.
constexpr ByteCount round_up(ByteCount size, ByteCount unit) {
  const ByteCount rest = size % unit;
  if (rest == 0) return size;
  const ByteCount rounded = size + (unit - rest);
  return rounded < size ? 0 : rounded;
}

}  // namespace fo::base

template <typename Tag, typename Value>
struct std::hash<fo::base::Strong<Tag, Value>> {
  std::size_t operator()(const fo::base::Strong<Tag, Value>& strong) const {
    return std::hash<Value>{}(strong.value());
  }
};
