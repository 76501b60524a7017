// For tests and measurements: selects the driver, which is the simulated one, or this machine's own
// if FO_TEST_DRIVER is "cuda", as ctest sets it for tests with the label gpu.
#pragma once

#include <cstdlib>
#include <string>

namespace fo::test {

/// The argument of cuda::Driver::open() and of --driver.
inline std::string driver() {
  const char* choice = std::getenv("FO_TEST_DRIVER");
  return choice == nullptr ? "sim" : choice;
}
inline bool on_gpu() { return driver() != "sim"; }

}  // namespace fo::test
