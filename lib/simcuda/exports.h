// The functions that this library exports: those of cuda/abi.h, and the few that lib/cuda does not
// call by that header.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simcuda/result.h"

/// Every exported function: X(symbol, parameters). The last one does not exist in a real driver: it
/// reports free memory without a context.
// clang-format off
#define FO_SIMCUDA_FUNCTIONS(X)                                                                  \
  FO_CUDA_FUNCTIONS(X)                                                                           \
  X(cuGetProcAddress,                                                                            \
    (const char* symbol, void** function, int version, std::uint64_t flags))                     \
  X(cuGetProcAddress_v2, (const char* symbol, void** function, int version, std::uint64_t flags, \
                          QueryResult* status))                                                  \
  X(fo_simcuda_memory_info, (Device device, std::size_t* free, std::size_t* total))
// clang-format on

namespace fo::simcuda {

#define FO_SIMCUDA_DECLARE(symbol, parameters) \
  extern "C" __attribute__((visibility("default"))) Result symbol parameters;
FO_SIMCUDA_FUNCTIONS(FO_SIMCUDA_DECLARE)
#undef FO_SIMCUDA_DECLARE

static_assert(std::is_same_v<SimulatedMemoryInfo, decltype(&fo_simcuda_memory_info)>);

}  // namespace fo::simcuda
