// Compares the library's declarations with those of lib/cuda, which are compared with the real
// cuda.h.
#include "simcuda/abi.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "cuda/abi.h"
#include "cuda/same_call.h"

namespace fo::simcuda {
namespace {

namespace caller = ::fo::cuda::abi;

TEST(Abi, FunctionsAreWhatTheCallerExpects) {
  using caller::Functions;
#define FO_COMPARE(symbol, parameters)                                                       \
  EXPECT_TRUE((::fo::cuda::SameCall<decltype(Functions::symbol), decltype(&symbol)>::value)) \
      << #symbol;
  FO_CUDA_FUNCTIONS(FO_COMPARE)
#undef FO_COMPARE
  EXPECT_TRUE((
      ::fo::cuda::SameCall<caller::SimulatedMemoryInfo, decltype(&fo_simcuda_memory_info)>::value));
}

TEST(Abi, StructuresAreWhatTheCallerExpects) {
#define FO_SAME_PLACE(type, member) \
  static_assert(offsetof(type, member) == offsetof(caller::type, member))
  FO_SAME_PLACE(Location, id);
  FO_SAME_PLACE(AllocationProp, requested_handle_types);
  FO_SAME_PLACE(AllocationProp, location);
  FO_SAME_PLACE(AllocationProp, win32_handle_meta_data);
  FO_SAME_PLACE(AllocationProp, alloc_flags);
  FO_SAME_PLACE(AccessDesc, location);
  FO_SAME_PLACE(AccessDesc, flags);
#undef FO_SAME_PLACE
  static_assert(sizeof(Location) == sizeof(caller::Location));
  static_assert(sizeof(AllocationProp) == sizeof(caller::AllocationProp));
  static_assert(sizeof(AccessDesc) == sizeof(caller::AccessDesc));
  static_assert(sizeof(Uuid) == sizeof(caller::Uuid));
}

TEST(Abi, ValuesAreWhatTheCallerExpects) {
#define FO_SAME(value) static_assert(static_cast<int>(value) == static_cast<int>(caller::value))
  FO_SAME(Result::kSuccess);
  FO_SAME(Result::kInvalidValue);
  FO_SAME(Result::kOutOfMemory);
  FO_SAME(Result::kNotInitialized);
  FO_SAME(Result::kNoDevice);
  FO_SAME(Result::kInvalidDevice);
  FO_SAME(Result::kInvalidContext);
  FO_SAME(Result::kOperatingSystem);
  FO_SAME(Result::kInvalidHandle);
  FO_SAME(Result::kNotFound);
  FO_SAME(Result::kIllegalAddress);
  FO_SAME(Result::kContextIsDestroyed);
  FO_SAME(Result::kNotSupported);
  FO_SAME(Result::kUnknown);
  FO_SAME(DeviceAttribute::kVirtualMemoryManagementSupported);
  FO_SAME(DeviceAttribute::kHandleTypePosixFileDescriptorSupported);
  FO_SAME(PointerAttribute::kMemoryType);
  FO_SAME(PointerAttribute::kDeviceOrdinal);
  FO_SAME(PointerAttribute::kRangeStartAddress);
  FO_SAME(PointerAttribute::kRangeSize);
  FO_SAME(MemoryType::kHost);
  FO_SAME(MemoryType::kDevice);
  FO_SAME(AllocationType::kPinned);
  FO_SAME(HandleType::kNone);
  FO_SAME(HandleType::kPosixFileDescriptor);
  FO_SAME(LocationType::kDevice);
  FO_SAME(AccessFlags::kNone);
  FO_SAME(AccessFlags::kRead);
  FO_SAME(AccessFlags::kReadWrite);
  FO_SAME(GranularityOption::kMinimum);
  FO_SAME(GranularityOption::kRecommended);
#undef FO_SAME
}

}  // namespace
}  // namespace fo::simcuda
