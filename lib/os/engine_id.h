// ENGINE_ID: which engine of a failover pair this process belongs to.
#pragma once

#include <cstdint>

namespace fo::os {

/// $ENGINE_ID; 0 if it is unset. Throws Error(kConfig) if it is empty or not a number: an id lost
/// by mistake must not make a second engine 0.
std::uint64_t engine_id_from_environment();

}  // namespace fo::os
