// Places tensors one after another into a few large allocations. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/strong.h"

namespace fo::weights {

/// Every tensor begins at a multiple of this.
inline constexpr base::ByteCount kTensorAlignment = 256;

struct Placement {
  /// Index into PackPlan::allocations.
  std::size_t allocation = 0;
  base::ByteCount offset = 0;
};

struct PackPlan {
  /// The size of each allocation, at least 1.
  std::vector<base::ByteCount> allocations;
  /// One for each tensor. The offset lies within the allocation even for an empty tensor.
  std::vector<Placement> placements;
};

/// Maximum size of the first allocation; it doubles for each later one. So copying starts early,
/// and the next allocation can be created while one is filled.
inline constexpr base::ByteCount kFirstSlab = 64 * base::kMiB;

/// Fills allocations of at most `slab` bytes in the order of the tensors; a larger tensor gets its
/// own allocation. No number may be over 2^63-1.
PackPlan pack(std::span<const base::ByteCount> sizes, base::ByteCount slab);

}  // namespace fo::weights
