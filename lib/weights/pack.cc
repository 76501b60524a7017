#include "weights/pack.h"

#include <algorithm>
#include <optional>

namespace fo::weights {

using base::ByteCount;

PackPlan pack(std::span<const ByteCount> sizes, ByteCount slab) {
  PackPlan plan;
  std::optional<std::size_t> open;
  ByteCount limit = 0;  // of the current allocation
  ByteCount next_limit = std::min(slab, kFirstSlab);
  for (const ByteCount size : sizes) {
    // Metadata may not refer to an allocation's end, because the next tensor's bytes would be
    // there.
    const ByteCount taken = std::max<ByteCount>(size, 1);
    if (taken > slab) {
      plan.placements.push_back({plan.allocations.size(), 0});
      plan.allocations.push_back(taken);
      continue;
    }
    ByteCount offset = 0;
    if (open) offset = base::round_up(plan.allocations[*open], kTensorAlignment);
    if (!open || taken > limit || offset > limit - taken) {
      open = plan.allocations.size();
      plan.allocations.push_back(0);
      offset = 0;
      limit = std::max(next_limit, taken);
      next_limit = std::min(slab, 2 * next_limit);
    }
    plan.placements.push_back({*open, offset});
    plan.allocations[*open] = offset + taken;
  }
  return plan;
}

}  // namespace fo::weights
