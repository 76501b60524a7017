// A gms-serve on a private device, simulated or a GPU, for tests of loading and saving.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver_calls.h"
#include "cuda/sim_folder.h"
#include "cuda/test_device.h"
#include "gms/client/memory_manager.h"
#include "gms/gms_process.h"
#include "support.h"

namespace fo::weights {

class Served : public testing::Test {
 protected:
  Served() {
    gpu_.set("GMS_SIM_VRAM", "64MiB");
    // Tests create one context after the other, whose memory may be freed late (fo_quirks).
    gpu_.set("GMS_SIM_CONTEXT_SIZE", "1MiB");
  }

  void SetUp() override { FO_SKIP_WITHOUT_ITS_DEVICE(); }

  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"--socket-path", socket_, "--driver", test::driver()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<gms::GmsProcess>(arguments);
    ASSERT_TRUE(server_->is_ready());
  }

  // The driver is opened once per test; change settings before.
  const std::shared_ptr<const cuda::Driver>& driver() {
    if (!driver_) driver_ = cuda::Driver::open(test::driver());
    return driver_;
  }
  cuda::DeviceInfo device() { return cuda::device_info(*driver(), base::DeviceOrdinal(0)); }

  // For copies; creating one is slow, and it takes memory while it lives.
  cuda::PrimaryContext context() {
    return cuda::PrimaryContext::retain(driver(), base::DeviceOrdinal(0));
  }
  // The content of memory that is mapped here.
  std::string bytes_at(cuda::abi::DevicePtr address, base::ByteCount size) {
    return cuda::bytes_at(*driver(), address, size);
  }

  gms::GetRuntimeStateResponse state() const {
    return gms::RpcClient::connect(socket_, gms::soon()).runtime_state();
  }
  void expect_nothing_published() const {
    EXPECT_FALSE(state().committed);
    EXPECT_EQ(state().memory_layout_hash, gms::LayoutHash());
  }
  // Whether the condition becomes true in time.
  template <typename Condition>
  static bool until(Condition condition) {
    for (const auto deadline = gms::soon(); !deadline.expired();) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Overwrites the first byte of every published allocation with a value that no part begins with.
  void corrupt() {
    const auto context = this->context();
    gms::MemoryManager reader(driver(), device(), socket_);
    ASSERT_EQ(reader.connect(gms::LockType::kRo, gms::soon()), gms::Grant::kRo);
    reader.import_all(cuda::Access::kReadWrite);
    const std::byte other{'!'};
    for (const auto& one : reader.allocations()) {
      cuda::copy_to_device(*driver(), one.address, {&other, 1});
    }
  }
  // The same for the files of a simulated device, published or not.
  void corrupt_files() {
    for (const auto& entry : std::filesystem::directory_iterator(gpu_.device(0))) {
      if (entry.path().filename() == "book") continue;
      const base::UniqueFd file(::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC));
      EXPECT_EQ(::pwrite(file.get(), "!", 1, 0), 1);
    }
  }

  cuda::SimFolder gpu_;
  TempDir dir_;
  std::string socket_ = gpu_.dir() / "gms.sock";
  std::unique_ptr<gms::GmsProcess> server_;
  std::shared_ptr<const cuda::Driver> driver_;
};

using Ring = std::optional<base::ByteCount>;
/// The device's default (none for a simulated one), and one of few buffers.
inline const std::vector<Ring> kRings{Ring(), Ring(base::kMiB)};

inline std::vector<Part> some_parts() {
  return {make_part("model.embed", "BF16", "[512, 1000]", 1'024'000, 1),
          make_part("model.empty", "F32", "[0, 7]", 0, 2),
          make_part("model.norm", "F32", "[33]", 132, 3),
          make_part("model.scale", "F16", "[]", 2, 4),
          make_part("model.mask", "BOOL", "[3, 5, 7]", 105, 5),
          make_part("lm_head", "F8_E4M3", "[1000, 3001]", 3'001'000, 6)};
}

}  // namespace fo::weights
