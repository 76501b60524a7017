// Integers that can't be taken for one another.
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

/// `size` rounded up to a multiple of `unit` (> 0); 0 when that does not fit 64 bits and size > 0.
constexpr ByteCount round_up(ByteCount size, ByteCount unit) {
  const ByteCount rest = size % unit;
  if (rest == 0) return size;
  const ByteCount rounded = size + (unit - rest);
  return rounded < size ? 0 : rounded;
}

}  // namespace fo::base
