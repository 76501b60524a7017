// Integers that cannot be confused with one another.
#pragma once

#include <compare>
#include <cstdint>

namespace fo::base {

template <typename Tag, typename Value>
class Strong {
 public:
  constexpr Strong() = default;
  explicit constexpr Strong(Value value) : value_(value) {}
  [[nodiscard]] constexpr Value value() const { return value_; }
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;

 private:
  Value value_{};
};

/// A CUDA device ordinal of this process (CUDA_VISIBLE_DEVICES applies).
using DeviceOrdinal = Strong<struct DeviceOrdinalTag, int>;

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
