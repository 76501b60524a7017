// Compares our declarations of the driver's binary interface with the real cuda.h, if installed.
#include "cuda/abi.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "cuda/same_call.h"
#include "support/must_run.h"

// After abi.h: cuda.h turns names of functions into macros.
#ifdef FO_HAVE_CUDA_H
#include <cuda.h>
#endif

namespace fo::cuda::abi {
namespace {

TEST(Abi, LayoutsAreThoseOfTheSpecification) {
  static_assert(sizeof(AllocationProp) == 32 && alignof(AllocationProp) == 8);
  static_assert(offsetof(AllocationProp, requested_handle_types) == 4);
  static_assert(offsetof(AllocationProp, location) == 8);
  static_assert(offsetof(AllocationProp, win32_handle_meta_data) == 16);
  static_assert(offsetof(AllocationProp, alloc_flags) == 24);
  static_assert(sizeof(AccessDesc) == 12 && alignof(AccessDesc) == 4);
  static_assert(offsetof(AccessDesc, flags) == 8);
  static_assert(sizeof(Result) == 4 && sizeof(AllocationHandle) == 8 && sizeof(DevicePtr) == 8);
}

#ifdef FO_HAVE_CUDA_H

TEST(Abi, FunctionsAreThoseOfCudaH) {
#define FO_COMPARE(symbol, parameters) \
  EXPECT_TRUE((SameCall<decltype(Functions::symbol), decltype(&::symbol)>::value)) << #symbol;
  FO_CUDA_FUNCTIONS(FO_COMPARE)
#undef FO_COMPARE
}

TEST(Abi, StructuresAreThoseOfCudaH) {
#define FO_SAME_PLACE(ours, our_member, real, real_member)                  \
  static_assert(offsetof(ours, our_member) == offsetof(real, real_member)); \
  static_assert(sizeof(ours::our_member) == sizeof(real::real_member))

  static_assert(sizeof(Location) == sizeof(CUmemLocation));
  FO_SAME_PLACE(Location, type, CUmemLocation, type);
  FO_SAME_PLACE(Location, id, CUmemLocation, id);

  using Flags = decltype(AllocationProp::alloc_flags);
  using RealFlags = decltype(CUmemAllocationProp::allocFlags);
  static_assert(sizeof(AllocationProp) == sizeof(CUmemAllocationProp));
  static_assert(alignof(AllocationProp) == alignof(CUmemAllocationProp));
  FO_SAME_PLACE(AllocationProp, type, CUmemAllocationProp, type);
  FO_SAME_PLACE(AllocationProp, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
  FO_SAME_PLACE(AllocationProp, location, CUmemAllocationProp, location);
  FO_SAME_PLACE(AllocationProp, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
  FO_SAME_PLACE(AllocationProp, alloc_flags, CUmemAllocationProp, allocFlags);
  FO_SAME_PLACE(Flags, compression_type, RealFlags, compressionType);
  FO_SAME_PLACE(Flags, gpu_direct_rdma_capable, RealFlags, gpuDirectRDMACapable);
  FO_SAME_PLACE(Flags, usage, RealFlags, usage);
  FO_SAME_PLACE(Flags, reserved, RealFlags, reserved);

  static_assert(sizeof(AccessDesc) == sizeof(CUmemAccessDesc));
  static_assert(alignof(AccessDesc) == alignof(CUmemAccessDesc));
  FO_SAME_PLACE(AccessDesc, location, CUmemAccessDesc, location);
  FO_SAME_PLACE(AccessDesc, flags, CUmemAccessDesc, flags);

  static_assert(sizeof(Uuid) == sizeof(CUuuid));
  static_assert(sizeof(AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
  static_assert(sizeof(DevicePtr) == sizeof(CUdeviceptr));
#undef FO_SAME_PLACE
}

TEST(Abi, ValuesAreThoseOfCudaH) {
#define FO_SAME(ours, real) static_assert(static_cast<unsigned>(ours) == unsigned{real})
  FO_SAME(Result::kSuccess, CUDA_SUCCESS);
  FO_SAME(Result::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  FO_SAME(Result::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  FO_SAME(Result::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  FO_SAME(Result::kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
  FO_SAME(Result::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
  FO_SAME(Result::kNoDevice, CUDA_ERROR_NO_DEVICE);
  FO_SAME(Result::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  FO_SAME(Result::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  FO_SAME(Result::kOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM);
  FO_SAME(Result::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  FO_SAME(Result::kNotFound, CUDA_ERROR_NOT_FOUND);
  FO_SAME(Result::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  FO_SAME(Result::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  FO_SAME(Result::kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
  FO_SAME(Result::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  FO_SAME(Result::kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
  FO_SAME(Result::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  FO_SAME(Result::kCompatNotSupportedOnDevice, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
  FO_SAME(Result::kUnknown, CUDA_ERROR_UNKNOWN);
  FO_SAME(DeviceAttribute::kVirtualMemoryManagementSupported,
          CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  FO_SAME(DeviceAttribute::kHandleTypePosixFileDescriptorSupported,
          CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  FO_SAME(AllocationType::kPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  FO_SAME(HandleType::kNone, CU_MEM_HANDLE_TYPE_NONE);
  FO_SAME(HandleType::kPosixFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  FO_SAME(LocationType::kDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  FO_SAME(AccessFlags::kNone, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  FO_SAME(AccessFlags::kRead, CU_MEM_ACCESS_FLAGS_PROT_READ);
  FO_SAME(AccessFlags::kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  FO_SAME(GranularityOption::kMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  FO_SAME(GranularityOption::kRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  FO_SAME(QueryResult::kSuccess, CU_GET_PROC_ADDRESS_SUCCESS);
  FO_SAME(QueryResult::kSymbolNotFound, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  FO_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
#undef FO_SAME
}

#else

TEST(Abi, IsThatOfCudaH) { FO_SKIP("cuda.h", "no cuda.h was found when this was built"); }

#endif

}  // namespace
}  // namespace fo::cuda::abi
