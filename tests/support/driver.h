// For tests and measurements: the driver that they use, which is the simulated one, or this
// machine's own where FO_TEST_DRIVER says "cuda", as ctest does for the tests with the label gpu.
#pragma once

#include <cstdlib>
#include <string>

namespace fo::test {

/// What cuda::Driver::open() is to be told, and the tools' --driver.
inline std::string driver() {
  const char* choice = std::getenv("FO_TEST_DRIVER");
  return choice == nullptr ? "sim" : choice;
}
inline bool on_gpu() { return driver() != "sim"; }

}  // namespace fo::test
