// For tests: a private simulated GPU. A SimFolder sets a temporary folder and a fresh copy of the
// simulated driver in the environment, so that a Driver opened after it has its own state, and
// removes everything at its end. GMS_SIM_QUIRKS and GMS_SIM_FREE_DELAY stay, so that the same tests
// can run with different drivers.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "cuda/driver.h"
#include "support/driver.h"
#include "support/environment.h"

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
      unset(variable);
    }
    // With a GPU, the variable selects it.
    if (!test::on_gpu()) unset("CUDA_VISIBLE_DEVICES");
    set("GMS_SIM_DIR", gpu().native());
    fresh_library();
  }
  SimFolder(const SimFolder&) = delete;
  SimFolder& operator=(const SimFolder&) = delete;
  ~SimFolder() {
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
    environment_.set(variable, value);
  }
  void unset(const std::string& variable) { environment_.unset(variable); }

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
  test::Environment environment_;
  int copies_ = 0;
};

}  // namespace fo::cuda
