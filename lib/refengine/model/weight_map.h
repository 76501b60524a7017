// Maps the metadata of a GMS's tensors to addresses in this process.
#pragma once

#include <functional>
#include <string>

#include "gms/protocol/types.h"
#include "refengine/model/transformer.h"

namespace fo::refengine {

/// An allocation's bytes in host memory.
struct AllocationBytes {
  const std::byte* data = nullptr;
  base::ByteCount size = 0;
};

/// Tensors by name, from metadata in the format of gms-protocol(7); tensors of other dtypes are
/// skipped, because the engine may not use them. `find` returns an allocation by id, without data
/// for an unknown one. Throws Error(kBadData) for a tensor with an invalid value, and for one that
/// is not contiguous, not aligned, or not inside its allocation.
WeightView map_weights(const gms::Metadata& metadata,
                       const std::function<AllocationBytes(const gms::AllocationId& id)>& find);

}  // namespace fo::refengine
