// From what a GMS says about its tensors to where they are in this process.
#pragma once

#include <functional>
#include <string>

#include "gms/protocol/types.h"
#include "refengine/transformer.h"

namespace fo::refengine {

/// An allocation's bytes as the host reads them.
struct AllocationBytes {
  const std::byte* data = nullptr;
  base::ByteCount size = 0;
};

/// Tensors by name from metadata as gms-protocol(7) writes it, of the types that this engine reads
/// (others are passed over: they may be nobody's). `find` gives an allocation by its id, without
/// data for an unknown one. Throws Error(kBadData) naming a tensor whose value is not such JSON,
/// that is not contiguous, not aligned, or not inside its allocation.
WeightView map_weights(const gms::Metadata& metadata,
                       const std::function<AllocationBytes(const std::string& id)>& find);

}  // namespace fo::refengine
