// The subset of the CUDA driver's binary interface (x86-64) that this project calls and its
// simulated driver exports, declared here so that the build needs no cuda.h. Values and layouts are
// those of cuda.h 13.0; a test compares them with the real header where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fo::cuda::abi {

/// CUresult. A driver may return values that have no name here.
enum class Result : std::uint32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kContextIsDestroyed = 709,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupportedOnDevice = 804,
  kUnknown = 999,
};

using Device = int;
using DevicePtr = std::uint64_t;
using AllocationHandle = std::uint64_t;
using Context = struct ContextOpaque*;
using Stream = struct StreamOpaque*;

struct Uuid {
  char bytes[16];
};

enum class DeviceAttribute : std::uint32_t {
  kVirtualMemoryManagementSupported = 102,
  kHandleTypePosixFileDescriptorSupported = 103,
};

enum class AllocationType : std::uint32_t { kPinned = 1 };
enum class HandleType : std::uint32_t { kNone = 0, kPosixFileDescriptor = 1 };
enum class LocationType : std::uint32_t { kDevice = 1 };
enum class AccessFlags : std::uint32_t { kNone = 0, kRead = 1, kReadWrite = 3 };
enum class GranularityOption : std::uint32_t { kMinimum = 0, kRecommended = 1 };
/// CUdriverProcAddressQueryResult.
enum class QueryResult : std::uint32_t { kSuccess = 0, kSymbolNotFound = 1 };

struct Location {
  LocationType type;
  int id;
};

struct AllocationProp {
  AllocationType type;
  HandleType requested_handle_types;
  Location location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } alloc_flags;
};

struct AccessDesc {
  Location location;
  AccessFlags flags;
};

inline constexpr unsigned int kStreamNonBlocking = 1;

}  // namespace fo::cuda::abi

// Every driver function that is resolved, as X(symbol, parameters). The symbols are the versioned
// ones that libcuda.so.1 exports, not the macro names of cuda.h.
// clang-format off
#define FO_CUDA_FUNCTIONS(X)                                                                     \
  X(cuInit, (unsigned int flags))                                                                \
  X(cuDriverGetVersion, (int* version))                                                          \
  X(cuGetErrorName, (Result error, const char** name))                                           \
  X(cuGetErrorString, (Result error, const char** text))                                         \
  X(cuDeviceGet, (Device* device, int ordinal))                                                  \
  X(cuDeviceGetCount, (int* count))                                                              \
  X(cuDeviceGetUuid, (Uuid* uuid, Device device))                                                \
  X(cuDeviceGetUuid_v2, (Uuid* uuid, Device device))                                             \
  X(cuDeviceGetAttribute, (int* value, DeviceAttribute attribute, Device device))                \
  X(cuDeviceTotalMem_v2, (std::size_t* bytes, Device device))                                    \
  X(cuDevicePrimaryCtxRetain, (Context* context, Device device))                                 \
  X(cuDevicePrimaryCtxRelease_v2, (Device device))                                               \
  X(cuCtxSetCurrent, (Context context))                                                          \
  X(cuCtxGetCurrent, (Context* context))                                                         \
  X(cuCtxPushCurrent_v2, (Context context))                                                      \
  X(cuCtxPopCurrent_v2, (Context* context))                                                      \
  X(cuCtxSynchronize, ())                                                                        \
  X(cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                                    \
  X(cuMemcpyHtoD_v2, (DevicePtr to, const void* from, std::size_t size))                         \
  X(cuMemcpyDtoH_v2, (void* to, DevicePtr from, std::size_t size))                               \
  X(cuMemcpyHtoDAsync_v2, (DevicePtr to, const void* from, std::size_t size, Stream stream))     \
  X(cuMemsetD8_v2, (DevicePtr to, unsigned char value, std::size_t size))                        \
  X(cuMemHostAlloc, (void** address, std::size_t size, unsigned int flags))                      \
  X(cuMemFreeHost, (void* address))                                                              \
  X(cuStreamCreate, (Stream* stream, unsigned int flags))                                        \
  X(cuStreamDestroy_v2, (Stream stream))                                                         \
  X(cuStreamSynchronize, (Stream stream))                                                        \
  X(cuMemGetAllocationGranularity,                                                               \
    (std::size_t* granularity, const AllocationProp* prop, GranularityOption option))            \
  X(cuMemCreate, (AllocationHandle* handle, std::size_t size, const AllocationProp* prop,        \
                  unsigned long long flags))                                                     \
  X(cuMemRelease, (AllocationHandle handle))                                                     \
  X(cuMemExportToShareableHandle,                                                                \
    (void* shareable, AllocationHandle handle, HandleType type, unsigned long long flags))       \
  X(cuMemImportFromShareableHandle, (AllocationHandle* handle, void* shareable, HandleType type)) \
  X(cuMemAddressReserve, (DevicePtr* address, std::size_t size, std::size_t alignment,           \
                          DevicePtr hint, unsigned long long flags))                             \
  X(cuMemAddressFree, (DevicePtr address, std::size_t size))                                     \
  X(cuMemMap, (DevicePtr address, std::size_t size, std::size_t offset, AllocationHandle handle, \
               unsigned long long flags))                                                        \
  X(cuMemUnmap, (DevicePtr address, std::size_t size))                                           \
  X(cuMemSetAccess,                                                                              \
    (DevicePtr address, std::size_t size, const AccessDesc* desc, std::size_t count))            \
  X(cuMemGetAccess, (unsigned long long* flags, const Location* location, DevicePtr address))    \
  X(cuMemRetainAllocationHandle, (AllocationHandle* handle, void* address))                      \
  X(cuMemGetAllocationPropertiesFromHandle, (AllocationProp* prop, AllocationHandle handle))
// clang-format on

namespace fo::cuda::abi {

/// The only optional function: newer drivers have only cuDeviceGetUuid_v2.
inline constexpr std::string_view kOptionalFunction = "cuDeviceGetUuid";

/// The resolved functions, each under the name of its symbol. Only kOptionalFunction may be null.
struct Functions {
#define FO_CUDA_MEMBER(symbol, parameters) Result(*symbol) parameters = nullptr;
  FO_CUDA_FUNCTIONS(FO_CUDA_MEMBER)
#undef FO_CUDA_MEMBER
};

/// Exported by the simulated driver only: reports free memory without a context.
using SimulatedMemoryInfo = Result (*)(Device device, std::size_t* free, std::size_t* total);

}  // namespace fo::cuda::abi
