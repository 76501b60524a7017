// Where tensors go: packed one after another into few large allocations. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/strong.h"

namespace fo::weights {

/// Every tensor begins at a multiple of this.
inline constexpr base::ByteCount kTensorAlignment = 256;

struct Placement {
  /// Which of PackPlan::allocations.
  std::size_t allocation = 0;
  base::ByteCount offset = 0;
};

struct PackPlan {
  /// The size of each, at least 1.
  std::vector<base::ByteCount> allocations;
  /// One for each tensor. The offset is within the allocation even for a tensor of no bytes.
  std::vector<Placement> placements;
};

/// The first allocation takes at most this much, each later one twice as much as the one before:
/// there is soon something to fill, and as long as one is filled the next can be made.
inline constexpr base::ByteCount kFirstSlab = 64 * base::kMiB;

/// Fills allocations of at most `slab` bytes in the order of the tensors; a tensor of more bytes
/// gets an allocation of its own. No number may be over 2^63-1.
PackPlan pack(std::span<const base::ByteCount> sizes, base::ByteCount slab);

}  // namespace fo::weights
