// The CUDA driver as an object: found and loaded at run time, initialised, its functions resolved,
// its error codes turned into exceptions. The only place of this project that calls dlopen.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cuda/abi.h"

namespace fo::cuda {

/// A driver call that failed. Status: 69 where no usable driver or device is there, 75 for
/// OutOfMemory and for MPS (805 to 810), 70 for everything else.
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
  /// Loads a driver and initialises it (cuInit). `choice`: "auto" or "cuda", the libcuda.so.1 that
  /// the dynamic linker finds, refused where that is the simulated one; "sim", the simulated one
  /// ($GMS_SIM_LIBRARY, else as found from the running program); or a path, with a '/', to any.
  /// Errors: 69 with one line that says how to ask for the simulated driver when there is no usable
  /// driver or device, 75 with the same when MPS does not let this process in, 78 for any other
  /// `choice`. May start threads: block signals first.
  static std::shared_ptr<const Driver> open(std::string_view choice);

  /// Whether open(choice) gives a real driver or none.
  static bool is_real(std::string_view choice) { return choice == "auto" || choice == "cuda"; }

  /// $GMS_DRIVER, or "auto" when it is unset or empty.
  static std::string choice_from_env();

  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  /// Leaves the library loaded: a CUDA driver can't be unloaded.
  ~Driver() = default;

  /// For calls that have no wrapper in this room; pair them with check().
  [[nodiscard]] const abi::Functions& api() const { return api_; }
  /// Whether device memory is host memory (lib/simcuda).
  [[nodiscard]] bool simulated() const { return simulated_memory_info_ != nullptr; }
  /// Null in a real driver.
  [[nodiscard]] abi::SimulatedMemoryInfo simulated_memory_info() const {
    return simulated_memory_info_;
  }

  /// Throws CudaError (OutOfMemory) unless `result` is success: "what: CUDA_ERROR_… (n)".
  void check(abi::Result result, std::string_view what) const {
    if (result != abi::Result::kSuccess) fail(result, what);
  }
  /// The same for a `what` that costs something to make: a callable that returns a string.
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
