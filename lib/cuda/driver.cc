// Finds, loads and initialises a driver. See driver.h.
#include "cuda/driver.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>

namespace fo::cuda {
namespace {

using abi::Result;
using base::ExitStatus;

constexpr const char* kLibrary = "libcuda.so.1";
/// Exported by lib/simcuda and by no real driver.
constexpr const char* kSimulatedMarker = "fo_simcuda_version";
constexpr std::string_view kHint = "; GMS_DRIVER=sim selects the simulated one";

/// The errors of a driver that is too old for this library or this call.
constexpr bool is_old_driver(Result result) {
  const auto code = static_cast<std::uint32_t>(result);
  return code >= 35 && code <= 37;
}

/// The errors of MPS: its server is not running, is full, or has ended this client. The GPU itself
/// is fine.
constexpr bool is_mps(Result result) {
  const auto code = static_cast<std::uint32_t>(result);
  return code >= 805 && code <= 810;
}

ExitStatus status_of(Result result) {
  if (is_old_driver(result)) return ExitStatus::kUnavailable;
  if (is_mps(result)) return ExitStatus::kTryAgain;
  switch (result) {
    case Result::kNotInitialized:
    case Result::kStubLibrary:
    case Result::kDeviceUnavailable:
    case Result::kNoDevice:
    case Result::kInvalidDevice:
    case Result::kSystemNotReady:
    case Result::kSystemDriverMismatch:
    case Result::kCompatNotSupportedOnDevice:
      return ExitStatus::kUnavailable;
    case Result::kOutOfMemory:
      return ExitStatus::kTryAgain;
    default:
      return ExitStatus::kSoftware;
  }
}

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The path of the simulated driver. Builds put it beside bin/ and tests/, installations below the
/// library folder; libexec/fo is one level deeper than bin.
std::string find_simulated() {
  if (std::string named = env("GMS_SIM_LIBRARY"); !named.empty()) return named;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto folder = program.parent_path();
  for (const char* up : {"..", "../.."}) {
    for (const char* below : {"lib/sim", FO_LIBDIR "/fo/sim"}) {
      auto candidate = (folder / up / below / kLibrary).lexically_normal();
      if (std::filesystem::exists(candidate, ignored)) return candidate;
    }
  }
  throw base::Error(ExitStatus::kUnavailable, "no simulated CUDA driver beside " +
                                                  base::quoted(program.native()) +
                                                  "; set GMS_SIM_LIBRARY to its path");
}

}  // namespace

std::string Driver::file_of(std::string_view choice) {
  if (is_real(choice)) return kLibrary;
  if (choice == "sim") return find_simulated();
  if (choice.find('/') != std::string_view::npos) return std::string(choice);
  throw base::Error(ExitStatus::kConfig,
                    "driver " + base::quoted(choice) + ": not auto, cuda, sim or a path");
}

std::string Driver::choice_from_env() {
  std::string choice = env("GMS_DRIVER");
  return choice.empty() ? "auto" : choice;
}

std::shared_ptr<const Driver> Driver::open(std::string_view choice) {
  const std::string_view hint = is_real(choice) ? kHint : "";
  std::shared_ptr<Driver> driver(new Driver);
  const std::string file = file_of(choice);
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    throw base::Error(ExitStatus::kUnavailable, std::string("no CUDA driver: ") +
                                                    (reason ? reason : file) + std::string(hint));
  }
  const bool simulated = ::dlsym(library, kSimulatedMarker) != nullptr;
  if (simulated && is_real(choice)) {
    throw base::Error(
        ExitStatus::kUnavailable,
        "no CUDA driver: the libcuda.so.1 found is the simulated one" + std::string(hint));
  }
  const auto resolve = [&](auto& function, std::string_view symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        ::dlsym(library, symbol.data()));
    if (!function && symbol != abi::kOptionalFunction) {
      throw base::Error(ExitStatus::kUnavailable, "CUDA driver " + base::quoted(file) +
                                                      ": missing function " + std::string(symbol) +
                                                      std::string(hint));
    }
  };
#define FO_CUDA_RESOLVE(symbol, parameters) resolve(driver->api_.symbol, #symbol);
  FO_CUDA_FUNCTIONS(FO_CUDA_RESOLVE)
#undef FO_CUDA_RESOLVE
  if (simulated) resolve(driver->simulated_memory_info_, "fo_simcuda_memory_info");

  // If cuInit fails, there is no usable driver; MPS may offer one later.
  if (const Result result = driver->api_.cuInit(0); result != Result::kSuccess) {
    throw CudaError(
        is_mps(result) ? ExitStatus::kTryAgain : ExitStatus::kUnavailable,
        "no usable CUDA driver: " + driver->describe(result, "cuInit") + std::string(hint));
  }
  return driver;
}

std::string Driver::describe(Result result, std::string_view what) const {
  const char* name = nullptr;
  if (api_.cuGetErrorName(result, &name) != Result::kSuccess || !name) name = "unnamed CUresult";
  return std::string(what) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
}

void Driver::fail(Result result, std::string_view what) const {
  const std::string text = describe(result, what);
  if (result == Result::kOutOfMemory) throw OutOfMemory(status_of(result), text);
  throw CudaError(status_of(result), text);
}

}  // namespace fo::cuda
