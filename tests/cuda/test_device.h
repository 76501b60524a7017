// For tests that can use a GPU instead of a simulated device (support/driver.h): whether there is
// one, and how exactly its memory can be measured.
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

/// Memory that may be in use without the test: a GPU has other users, and its driver keeps tables.
/// Tests must use far more than this.
inline base::ByteCount slack() { return test::on_gpu() ? 64 * base::kMiB : 0; }

/// Whether `bytes` equals `wanted` within slack().
inline testing::AssertionResult about(base::ByteCount bytes, base::ByteCount wanted) {
  const base::ByteCount difference = bytes > wanted ? bytes - wanted : wanted - bytes;
  if (difference <= slack()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << bytes << " bytes, not " << wanted;
}

/// The device's memory, 0 without a device. Queried in a child, because a driver does not survive a
/// fork, and the test may fork later.
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
