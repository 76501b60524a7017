// For tests: a private simulated GPU. A SimFolder sets a temporary folder and a fresh copy of the
// simulated driver in the environment, so that a Driver opened after it has its own state, and
// removes everything at its end. GMS_SIM_QUIRKS and GMS_SIM_FREE_DELAY stay, so that the same tests
// can run with different drivers.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cuda/driver.h"
#include "support/driver.h"

namespace fo::cuda {

class SimFolder {
 public:
  SimFolder() {
    // In a folder with enough space: containers have 64 MiB by default.
    std::error_code unknown;
    const auto shm = std::filesystem::space("/dev/shm", unknown);
    const bool enough = !unknown && shm.available >= std::uintmax_t{2} << 30;
    std::string name = std::string(enough ? "/dev/shm" : "/tmp") + "/fo-test-XXXXXX";
    if (!::mkdtemp(name.data())) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + name);
    }
    dir_ = name;
    for (const char* variable : {"GMS_SIM_VRAM", "GMS_SIM_DEVICES", "GMS_SIM_GRANULARITY",
                                 "GMS_SIM_CONTEXT_SIZE", "GMS_SIM_FAULTS", "GMS_SIM_LATENCY"}) {
      ::unsetenv(variable);
      before_.push_back({variable, std::nullopt});
    }
    // With a GPU, the variable selects it.
    if (!test::on_gpu()) ::unsetenv("CUDA_VISIBLE_DEVICES");
    set("GMS_SIM_DIR", gpu().native());
    fresh_library();
  }
  SimFolder(const SimFolder&) = delete;
  SimFolder& operator=(const SimFolder&) = delete;
  ~SimFolder() {
    for (; !before_.empty(); before_.pop_back()) {
      const auto& [variable, value] = before_.back();
      if (value) {
        ::setenv(variable.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(variable.c_str());
      }
    }
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  /// A driver opened from now on shares only the devices with earlier ones: the dynamic linker
  /// treats a copy of the library as another library.
  void fresh_library() {
    const auto copy = dir_ / ("libcuda-" + std::to_string(++copies_) + ".so.1");
    std::filesystem::copy_file(FO_BUILD_DIR "/lib/sim/libcuda.so.1", copy,
                               std::filesystem::copy_options::overwrite_existing);
    set("GMS_SIM_LIBRARY", copy.native());
  }

  /// For drivers opened from now on.
  void set(const std::string& variable, const std::string& value) {
    const char* const before = std::getenv(variable.c_str());
    before_.push_back({variable, before ? std::optional<std::string>(before) : std::nullopt});
    ::setenv(variable.c_str(), value.c_str(), 1);
  }

  [[nodiscard]] const std::filesystem::path& dir() const { return dir_; }
  [[nodiscard]] std::filesystem::path gpu() const { return dir_ / "gpu"; }
  [[nodiscard]] std::filesystem::path device(int ordinal) const {
    return gpu() / ("device-" + std::to_string(ordinal));
  }
  /// The number of allocations with a file, without those that only wait for the free delay.
  [[nodiscard]] int files(int ordinal = 0) const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(device(ordinal))) {
      const std::string name = entry.path().filename();
      if (name != "book" && !name.starts_with("gone-")) ++count;
    }
    return count;
  }

 private:
  std::filesystem::path dir_;
  struct Variable {
    std::string name;
    std::optional<std::string> value;
  };
  std::vector<Variable> before_;
  int copies_ = 0;
};

}  // namespace fo::cuda
