// For tests that can do with a GPU in place of a simulated device (support/driver.h): whether it is
// there, and how exactly it can be looked at.
#pragma once

#include <gtest/gtest.h>

#include <exception>

#include "base/units.h"
#include "cuda/child.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "support/driver.h"
#include "support/must_run.h"

namespace fo::cuda {

inline constexpr base::DeviceOrdinal kFirst{0};
inline constexpr base::DeviceOrdinal kSecond{1};

inline constexpr const char* kNoGpu = "no CUDA driver is usable here";

/// How much may be used of the device that no test accounts for: a GPU has other users, and its
/// driver keeps tables. What a test wants to see come and go on one has to be a lot more.
inline base::ByteCount slack() { return test::on_gpu() ? 64 * base::kMiB : 0; }

/// Whether so many bytes are what was wanted, within slack().
inline testing::AssertionResult about(base::ByteCount bytes, base::ByteCount wanted) {
  const base::ByteCount difference = bytes > wanted ? bytes - wanted : wanted - bytes;
  if (difference <= slack()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << bytes << " bytes, not " << wanted;
}

/// Bytes of the device, 0 where there is none. Asked in a child: a driver does not survive a fork,
/// and the test may have some before it.
inline base::ByteCount total_memory() {
  Child child([](const Channel& test) {
    test.send(device_info(*Driver::open(test::driver()), base::DeviceOrdinal(0)).total_memory);
  });
  try {
    return child.channel().receive().value;
  } catch (const std::exception&) {
    return 0;  // the child has printed why
  }
}

}  // namespace fo::cuda

/// For a SetUp, before it opens a driver.
#define FO_SKIP_WITHOUT_ITS_DEVICE()                             \
  if (::fo::test::on_gpu() && ::fo::cuda::total_memory() == 0) { \
    FO_SKIP("gpu", ::fo::cuda::kNoGpu);                          \
  }                                                              \
  static_assert(true)
