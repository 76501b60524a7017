// NVML (libnvidia-ml.so.1), loaded when it is needed.
#pragma once

#include <string>

namespace fo::cuda {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

/// The results of NVML's functions that are distinguished here.
enum NvmlResult : int {
  kNvmlSuccess = 0,
  kNvmlNotSupported = 3,
  kNvmlInsufficientSize = 7,
};
using NvmlDevice = void*;

/// The library stays loaded and the session open, because the driver's libraries do not unload
/// safely.
class NvmlSession {
 public:
  /// `what` is the action for messages, such as "query NVML". Throws Error(kUnavailable) if NVML or
  /// the driver is missing.
  NvmlSession(const std::string& library, std::string what);

  /// Throws Error(kUnavailable) if the library does not have the function.
  template <typename Function>
  [[nodiscard]] Function find(const char* name) const {
    return reinterpret_cast<Function>(needed_symbol(name));
  }
  /// nullptr if the library does not have the function.
  template <typename Function>
  [[nodiscard]] Function find_optional(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }

  /// Throws Error(kUnavailable) for any other result than success.
  void check(int result) const;
  [[nodiscard]] std::string text_of(int result) const;

 private:
  [[nodiscard]] void* symbol(const char* name) const;
  [[nodiscard]] void* needed_symbol(const char* name) const;
  [[noreturn]] void fail(const std::string& reason) const;

  std::string what_;
  std::string library_;
  void* handle_ = nullptr;
  const char* (*error_string_)(int result) = nullptr;
};

}  // namespace fo::cuda
