// The owners: what they hold, when they release it, and that a failure leaves nothing behind.
#include "cuda/memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "cuda/device.h"
#include "cuda/driver_calls.h"
#include "cuda/sim_folder.h"
#include "cuda/test_device.h"
#include "support/fds.h"

namespace fo::cuda {
namespace {

using base::kMiB;
using test::open_fds;

constexpr base::ByteCount kSize = 128 * kMiB;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FO_SKIP_WITHOUT_ITS_DEVICE();
    driver_ = Driver::open(test::driver());
    context_ = PrimaryContext::retain(driver_, kFirst);
    idle_ = used();
  }

  base::ByteCount used() const {
    const MemoryInfo info = memory_info(driver_, kFirst);
    return info.total - info.free;
  }

  SimFolder sim_;
  std::shared_ptr<const Driver> driver_;
  PrimaryContext context_;
  base::ByteCount idle_ = 0;
};

class SimulatedMemoryTest : public MemoryTest {};

TEST_F(MemoryTest, OwnersLetGoWhenTheyEnd) {
  const std::ptrdiff_t fds = open_fds();
  {
    const auto range = AddressRange::reserve(driver_, kSize);
    const auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
    const auto mapping = Mapping::map(driver_, range.address(), kSize, memory);
    EXPECT_TRUE(about(used(), idle_ + kSize));
  }
  EXPECT_TRUE(about(used(), idle_));
  EXPECT_EQ(open_fds(), fds);
}

TEST_F(MemoryTest, MovedFromOwnersOwnNothing) {
  auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  PhysicalMemory other = std::move(memory);
  EXPECT_FALSE(memory);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(other);
  EXPECT_EQ(other.size(), kSize);
  memory.close();
  EXPECT_TRUE(about(used(), idle_ + kSize));

  other = PhysicalMemory::create(driver_, kFirst, 2 * kSize);
  EXPECT_TRUE(about(used(), idle_ + 2 * kSize));
  other = PhysicalMemory();
  EXPECT_TRUE(about(used(), idle_));
}

TEST_F(MemoryTest, AssignedOwnersOfRangesAndMappingsLetGo) {
  const auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  auto range = AddressRange::reserve(driver_, kSize);
  auto mapping = Mapping::map(driver_, range.address(), kSize, memory);
  mapping = Mapping();
  mapping = Mapping::map(driver_, range.address(), kSize, memory);
  mapping.close();
  range = AddressRange::reserve(driver_, 2 * kSize);
  EXPECT_EQ(range.size(), 2 * kSize);
}

TEST_F(MemoryTest, CloseTellsWhatTheDestructorWouldNot) {
  const auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  auto range = AddressRange::reserve(driver_, kSize);
  auto mapping = Mapping::map(driver_, range.address(), kSize, memory);
  ASSERT_EQ(driver_->api().cuMemUnmap(range.address(), kSize), abi::Result::kSuccess);
  EXPECT_THROW(mapping.close(), CudaError);
  EXPECT_FALSE(mapping);
}

TEST_F(MemoryTest, ExportedFdIsCloseOnExecAndAReference) {
  auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  base::UniqueFd fd = memory.export_fd();
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  memory.close();
  EXPECT_TRUE(about(used(), idle_ + kSize));

  memory = PhysicalMemory::import_fd(driver_, fd.get(), kSize);
  EXPECT_NE(::fcntl(fd.get(), F_GETFD), -1) << "import took the fd";
  fd.reset();
  EXPECT_TRUE(about(used(), idle_ + kSize));
  memory.close();
  EXPECT_TRUE(about(used(), idle_));
}

TEST_F(MemoryTest, CopiesGoInAndOut) {
  const auto range = AddressRange::reserve(driver_, 2 * kSize);
  const auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  const auto first = Mapping::map(driver_, range.address(), kSize, memory);
  const auto second = Mapping::map(driver_, range.address() + kSize, kSize, memory);
  set_access(*driver_, range.address(), 2 * kSize, kFirst, Access::kReadWrite);

  fill(*driver_, range.address(), std::byte{9}, kSize);
  const std::array in{std::byte{1}, std::byte{2}, std::byte{3}};
  copy_to_device(*driver_, range.address() + 10, in);
  synchronize(*driver_);
  std::array<std::byte, 4> out{};
  copy_to_host(*driver_, out, range.address() + kSize + 10);
  EXPECT_THAT(out, ::testing::ElementsAre(std::byte{1}, std::byte{2}, std::byte{3}, std::byte{9}));
}

TEST_F(MemoryTest, ReadOnlyAccessRefusesCopiesIn) {
  const auto range = AddressRange::reserve(driver_, kSize);
  const auto memory = PhysicalMemory::create(driver_, kFirst, kSize);
  const auto mapping = Mapping::map(driver_, range.address(), kSize, memory);
  set_access(*driver_, range.address(), kSize, kFirst, Access::kRead);
  std::array<std::byte, 4> bytes{};
  copy_to_host(*driver_, bytes, range.address());
  // Some drivers detect it only during the copy.
  const auto copy_in = [&] {
    copy_to_device(*driver_, range.address(), bytes);
    synchronize(*driver_);
  };
  EXPECT_THROW(copy_in(), CudaError);
}

TEST_F(MemoryTest, AlignmentIsKept) {
  const auto range = AddressRange::reserve(driver_, kSize, 64 * kMiB);
  EXPECT_EQ(range.address() % (64 * kMiB), 0u);
}

TEST_F(MemoryTest, OutOfMemorySaysWhatWasAsked) {
  try {
    PhysicalMemory::create(driver_, kFirst, 512 * base::kGiB);
    ADD_FAILURE() << "512 GiB were found";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kTryAgain);
    EXPECT_STREQ(error.what(), "cuMemCreate 512 GiB on device 0: CUDA_ERROR_OUT_OF_MEMORY (2)");
  }
}

TEST_F(SimulatedMemoryTest, ContextsNestAndCostMemory) {
  const base::DeviceOrdinal other{1};
  abi::Context before = nullptr;
  driver_->api().cuCtxGetCurrent(&before);
  {
    const auto nested = PrimaryContext::retain(driver_, other);
    const MemoryInfo info = memory_info(driver_, other);
    EXPECT_EQ(info.total - info.free, 16 * kMiB);
    abi::Context current = nullptr;
    driver_->api().cuCtxGetCurrent(&current);
    EXPECT_NE(current, before);
  }
  abi::Context after = nullptr;
  driver_->api().cuCtxGetCurrent(&after);
  EXPECT_EQ(after, before);
  EXPECT_EQ(sim_.files(1), 0);
}

TEST_F(MemoryTest, ContextIsMadeCurrentOnOtherThreads) {
  std::thread([&] {
    EXPECT_THROW(synchronize(*driver_), CudaError);
    context_.make_current();
    EXPECT_NO_THROW(synchronize(*driver_));
  }).join();
}

// Every driver call of a complete run fails once; nothing must be left behind.
TEST(MemoryFault, NothingIsLeftBehindByAFailureAnywhere) {
  for (const char* function :
       {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
        "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent", "cuMemcpyHtoD", "cuMemGetInfo"}) {
    SimFolder sim;
    sim.set("GMS_SIM_FAULTS", std::string(function) + ":1=unknown");
    const auto driver = Driver::open("sim");
    const std::ptrdiff_t fds = open_fds();
    const auto live = [&] {
      const auto context = PrimaryContext::retain(driver, kFirst);
      const auto range = AddressRange::reserve(driver, kSize);
      const auto memory = PhysicalMemory::create(driver, kFirst, kSize);
      const auto imported =
          PhysicalMemory::import_fd(driver, memory.export_fd().get(), memory.size());
      const auto mapping = Mapping::map(driver, range.address(), kSize, imported);
      set_access(*driver, range.address(), kSize, kFirst, Access::kReadWrite);
      const std::array byte{std::byte{1}};
      copy_to_device(*driver, range.address(), byte);
      memory_info(driver, kFirst);
    };
    EXPECT_THROW(live(), CudaError) << function;
    EXPECT_EQ(open_fds(), fds) << function;
    EXPECT_EQ(sim.files(), 0) << function;
    EXPECT_NO_THROW(live()) << function;
    EXPECT_EQ(sim.files(), 0) << function;
  }
}

}  // namespace
}  // namespace fo::cuda
