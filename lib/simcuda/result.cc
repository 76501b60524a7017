// The names of results, spelled as in cuda.h. See result.h.
#include "simcuda/result.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace fo::simcuda {
namespace {

// More than this library returns by itself, because GMS_SIM_FAULTS can request any of them.
constexpr ResultText kTexts[] = {
    {Result::kSuccess, "CUDA_SUCCESS", "no error"},
    {Result::kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {Result::kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {Result::kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {Result{4}, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {Result{34}, "CUDA_ERROR_STUB_LIBRARY", "libcuda.so.1 is a stub"},
    {Result{36}, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "call needs a newer driver"},
    {Result{46}, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {Result::kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {Result::kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {Result::kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {Result{205}, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {Result{206}, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {Result{214}, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {Result::kOperatingSystem, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
    {Result::kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {Result{401}, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {Result::kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {Result::kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {Result::kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {Result{800}, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {Result::kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {Result{802}, "CUDA_ERROR_SYSTEM_NOT_READY", "system not ready"},
    {Result{803}, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver versions do not match"},
    {Result{804}, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility is not supported on this device"},
    {Result{805}, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server"},
    {Result{806}, "CUDA_ERROR_MPS_RPC_FAILURE", "call to the MPS server failed"},
    {Result{807}, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server not ready"},
    {Result{808}, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "too many MPS clients"},
    {Result{809}, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "too many MPS connections"},
    {Result{810}, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client ended by the server"},
    {Result::kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

}  // namespace

Failure failure_of_errno(int err) {
  switch (err) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Failure{Result::kOutOfMemory};
    default:
      return Failure{Result::kOperatingSystem};
  }
}

const ResultText* find_result_text(Result result) {
  const auto* found = std::find_if(std::begin(kTexts), std::end(kTexts),
                                   [&](const ResultText& text) { return text.result == result; });
  return found == std::end(kTexts) ? nullptr : found;
}

}  // namespace fo::simcuda
