// The CUDA driver as an object: it is loaded and initialised at run time, its functions are
// resolved, and its errors become exceptions. Only this library calls dlopen.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cuda/abi.h"

namespace fo::cuda {

/// A driver call that failed. The status is kUnavailable without a usable driver or device,
/// kTryAgain for OutOfMemory and MPS errors (805 to 810), else kSoftware.
class CudaError : public base::Error {
 public:
  using Error::Error;
};

/// CUDA_ERROR_OUT_OF_MEMORY: the one failure after which the GPU can still be trusted.
class OutOfMemory : public CudaError {
 public:
  using CudaError::CudaError;
};

class Driver {
 public:
  /// Loads a driver and initialises it (cuInit). `choice` is "auto" or "cuda" for the libcuda.so.1
  /// that the dynamic linker finds, unless that is the simulated one; "sim" for the simulated one
  /// ($GMS_SIM_LIBRARY, else relative to the running program); or a path with a '/'. Throws
  /// kUnavailable without a usable driver or device (the message says how to select the simulated
  /// one), kTryAgain if MPS refuses this process, kConfig for any other `choice`. It may start
  /// threads, so block signals first.
  static std::shared_ptr<const Driver> open(std::string_view choice);

  /// The file that open(choice) loads: a path, or a name for the dynamic linker. Throws as open()
  /// for an invalid choice, and kUnavailable if there is no simulated driver.
  static std::string file_of(std::string_view choice);

  /// Whether open(choice) loads a real driver or fails.
  static bool is_real(std::string_view choice) { return choice == "auto" || choice == "cuda"; }

  /// $GMS_DRIVER, or "auto" when it is unset or empty.
  static std::string choice_from_env();

  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  /// The library stays loaded, because a CUDA driver cannot be unloaded.
  ~Driver() = default;

  /// For calls without a wrapper in this library; use check() on the result.
  [[nodiscard]] const abi::Functions& api() const { return api_; }
  /// Whether device memory is host memory (lib/simcuda).
  [[nodiscard]] bool simulated() const { return simulated_memory_info_ != nullptr; }
  /// Null for a real driver.
  [[nodiscard]] abi::SimulatedMemoryInfo simulated_memory_info() const {
    return simulated_memory_info_;
  }

  /// Throws CudaError (OutOfMemory) unless `result` is success: "what: CUDA_ERROR_… (n)".
  void check(abi::Result result, std::string_view what) const {
    if (result != abi::Result::kSuccess) fail(result, what);
  }
  /// The same for a `what` that is expensive to build: a callable that returns a string.
  template <typename MakeWhat>
  requires requires(MakeWhat make) { std::string(make()); }
  void check(abi::Result result, MakeWhat&& make_what) const {
    if (result != abi::Result::kSuccess) fail(result, make_what());
  }
  [[noreturn]] void fail(abi::Result result, std::string_view what) const;

 private:
  Driver() = default;
  [[nodiscard]] std::string describe(abi::Result result, std::string_view what) const;

  abi::Functions api_;
  abi::SimulatedMemoryInfo simulated_memory_info_ = nullptr;
};

}  // namespace fo::cuda
