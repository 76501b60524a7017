// Free memory without a context: on a full device, beside dying processes, and with a wait.
#include "cuda/device_memory.h"

#include <gtest/gtest.h>

#include <memory>

#include "cuda/child.h"
#include "cuda/device.h"
#include "cuda/driver_calls.h"
#include "cuda/sim_folder.h"
#include "cuda/test_device.h"
#include "support/failure.h"

namespace fo::cuda {
namespace {

using base::Deadline;
using base::kMiB;

constexpr base::ByteCount kUnit = 2 * kMiB;
constexpr base::ByteCount kTotal = 64 * kMiB;

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest() { sim_.set("GMS_SIM_VRAM", "64MiB"); }

  /// A process that holds this much memory until it is killed.
  static std::unique_ptr<Child> holder(base::DeviceOrdinal device, base::ByteCount size) {
    auto child = std::make_unique<Child>([=](Channel& test) {
      const auto driver = Driver::open("sim");
      const auto memory = PhysicalMemory::create(driver, device, size);
      test.send(1);
      static_cast<void>(test.receive());
    });
    child->channel().expect(1);
    return child;
  }

  SimFolder sim_;
};

TEST_F(DeviceMemoryTest, FullDeviceIsToldWithoutAContext) {
  const auto driver = Driver::open("sim");
  const DeviceMemory memory = device_memory(driver, kFirst);
  EXPECT_EQ(memory.uuid, device_info(*driver, kFirst).uuid);
  EXPECT_EQ(memory.ask().free, kTotal);
  EXPECT_EQ(memory.ask().total, kTotal);
  EXPECT_EQ(sim_.files(), 0);
  const auto all = PhysicalMemory::create(driver, kFirst, kTotal);
  EXPECT_EQ(memory.ask().free, 0u);
  EXPECT_EQ(sim_.files(), 1);
  EXPECT_THROW(memory_info(driver, kFirst), OutOfMemory) << "which is why";
}

TEST_F(DeviceMemoryTest, DevicesAreToldApart) {
  const auto driver = Driver::open("sim");
  const DeviceMemory first = device_memory(driver, kFirst);
  const DeviceMemory second = device_memory(driver, kSecond);
  const auto some = PhysicalMemory::create(driver, kSecond, 3 * kUnit);
  EXPECT_EQ(first.ask().free, kTotal);
  EXPECT_EQ(second.ask().free, kTotal - 3 * kUnit);
  EXPECT_NE(first.uuid, second.uuid);
}

TEST_F(DeviceMemoryTest, AnswersAreExactWhileOthersAllocateAndDie) {
  constexpr int kProcesses = 3;
  const auto rest = holder(kFirst, kTotal - kProcesses * kUnit);
  std::vector<std::unique_ptr<Child>> busy;
  for (int i = 0; i < kProcesses; ++i) {
    busy.push_back(std::make_unique<Child>([](Channel& test) {
      for (int round = 0; round < 30; ++round) {
        Child child([](Channel& parent) {
          const auto driver = Driver::open("sim");
          const auto memory = PhysicalMemory::create(driver, kFirst, kUnit);
          parent.send(1);
          static_cast<void>(parent.receive());
        });
        child.channel().expect(1);
        child.kill();
      }
      test.send(1);
    }));
  }
  Child observer([](Channel& test) {
    const DeviceMemory memory = device_memory(Driver::open("sim"), kFirst);
    for (int asked = 0; asked < 300; ++asked) {
      const MemoryInfo info = memory.ask();
      EXPECT_LE(info.free, kProcesses * kUnit);
      EXPECT_EQ(info.free % kUnit, 0u);
    }
    test.send(1);
  });
  for (const auto& child : busy) {
    child->channel().expect(1);
    EXPECT_EQ(child->wait(), 0);
  }
  observer.channel().expect(1);
  EXPECT_EQ(observer.wait(), 0);
  EXPECT_EQ(device_memory(Driver::open("sim"), kFirst).ask().free, kProcesses * kUnit);
}

TEST_F(DeviceMemoryTest, MemoryOfADyingProcessIsWaitedFor) {
  const auto child = holder(kFirst, kTotal);
  Child waiter([](Channel& test) {
    const DeviceMemory memory = device_memory(Driver::open("sim"), kFirst);
    int asked = 0;
    const DeviceMemory counted{memory.uuid, [&] {
                                 if (++asked == 2) test.send(1);
                                 return memory.ask();
                               }};
    test.send(wait_until_free(counted, kTotal, Deadline::never()).free);
  });
  waiter.channel().expect(1);
  child->kill();
  waiter.channel().expect(kTotal);
  EXPECT_EQ(waiter.wait(), 0);
}

TEST_F(DeviceMemoryTest, FailingDriverIsAnError) {
  sim_.set("GMS_SIM_FAULTS", "fo_simcuda_memory_info:2=999");
  const DeviceMemory memory = device_memory(Driver::open("sim"), kSecond);
  EXPECT_EQ(memory.ask().free, kTotal);
  try {
    memory.ask();
    ADD_FAILURE() << "it answered";
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(), "free memory of device 1: CUDA_ERROR_UNKNOWN (999)");
  }
}

// --- Waiting.

/// Has 100 bytes; ten more are free with every query.
struct Slow {
  int asked = 0;
  DeviceMemory memory{base::GpuUuid("GPU-slow"), [this] {
                        const int freed = 10 * asked++;
                        return MemoryInfo{static_cast<base::ByteCount>(freed), 100};
                      }};
};

TEST(WaitUntilFree, EnoughIsAskedOnce) {
  Slow device;
  EXPECT_EQ(wait_until_free(device.memory, 0, Deadline::never()).free, 0u);
  EXPECT_EQ(device.asked, 1);
}

TEST(WaitUntilFree, AsksUntilThereIsEnough) {
  Slow device;
  EXPECT_EQ(wait_until_free(device.memory, 25, Deadline::never()).free, 30u);
  EXPECT_EQ(device.asked, 4);
}

TEST(WaitUntilFree, PassedDeadlineAsksOnce) {
  Slow device;
  EXPECT_EQ(wait_until_free(device.memory, 10, Deadline::after(base::Duration(0))).free, 0u);
  EXPECT_EQ(device.asked, 1);
}

TEST(WaitUntilFree, AsksOnceMoreWhenTheDeadlinePasses) {
  const DeviceMemory never{base::GpuUuid("GPU-full"), [] { return MemoryInfo{7, 100}; }};
  EXPECT_EQ(wait_until_free(never, 8, Deadline::after(std::chrono::milliseconds(1))).free, 7u);
}

TEST(WaitUntilFree, MoreThanThereIsIsAUsageError) {
  Slow device;
  EXPECT_EQ(wait_until_free(device.memory, 100, Deadline::after(base::Duration(0))).free, 0u);
  const auto failure =
      test::failure_of([&] { wait_until_free(device.memory, 101, Deadline::never()); });
  EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
  EXPECT_EQ(failure.message,
            "wait for free memory of device 'GPU-slow': it has 100 bytes, 101 needed");
}

TEST(WaitUntilFree, FailureEndsTheWait) {
  int asked = 0;
  const DeviceMemory failing{base::GpuUuid("GPU-lost"), [&] {
                               if (++asked == 3) throw std::runtime_error("lost");
                               return MemoryInfo{0, 100};
                             }};
  EXPECT_THROW(wait_until_free(failing, 1, Deadline::never()), std::runtime_error);
}

}  // namespace
}  // namespace fo::cuda
