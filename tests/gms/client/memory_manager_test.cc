// A writer and readers in this process, the server in its own.
#include "gms/client/memory_manager.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <map>

#include "gms/server_with_device.h"

namespace fo::gms {
namespace {

namespace abi = cuda::abi;
using base::Deadline;

class Manager : public ServerWithDevice {
 protected:
  [[nodiscard]] MemoryManager reader() const {
    MemoryManager reader = manager();
    EXPECT_EQ(reader.connect(LockType::kRo, soon()), Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    return reader;
  }

  // Publishes allocations of these sizes, each filled with its letter.
  void publish(const std::vector<base::ByteCount>& sizes, char letter) const {
    MemoryManager writer = manager();
    ASSERT_EQ(writer.connect(LockType::kRw, soon()), Grant::kRw);
    for (const base::ByteCount size : sizes) {
      const MappedAllocation& made = writer.allocate(size, "t");
      fill(made, letter);
      writer.rpc().put_metadata("tensor " + std::to_string(made.allocation.layout_slot),
                                made.allocation.allocation_id, 0, "{}");
    }
    writer.commit();
    EXPECT_FALSE(writer.connected());
  }

  // A reader that has mapped such a layout and is asleep.
  MemoryManager asleep_reader(const std::vector<base::ByteCount>& sizes) {
    start();
    publish(sizes, 'w');
    MemoryManager reader = this->reader();
    reader.unmap_all();
    return reader;
  }

  [[nodiscard]] bool is_mapped(abi::DevicePtr address) const {
    abi::AllocationHandle handle = 0;
    void* const at = reinterpret_cast<void*>(address);
    const auto result = driver_->api().cuMemRetainAllocationHandle(&handle, at);
    if (result != abi::Result::kSuccess) return false;
    driver_->check(driver_->api().cuMemRelease(handle), "release");
    return true;
  }
  [[nodiscard]] unsigned long long access_to(const MappedAllocation& one) const {
    unsigned long long flags = 0;
    const abi::Location device{abi::LocationType::kDevice, 0};
    driver_->check(driver_->api().cuMemGetAccess(&flags, &device, one.address), "get access");
    return flags;
  }

  [[nodiscard]] base::ByteCount free_memory() const {
    return cuda::memory_info(driver_, base::DeviceOrdinal(0)).free;
  }
};

class SimulatedManager : public Manager {};

TEST_F(Manager, ReaderSeesWhatTheWriterWrote) {
  start();
  publish({kGranule, 1}, 'w');
  MemoryManager reader = this->reader();
  ASSERT_EQ(reader.allocations().size(), 2u);
  EXPECT_EQ(byte_at(reader.allocations()[0], kGranule - 1), 'w');
  EXPECT_EQ(byte_at(reader.allocations()[1]), 'w');
  EXPECT_EQ(reader.bytes(), 2 * kGranule);
  EXPECT_EQ(reader.fetch_metadata().size(), 2u);
}

TEST_F(Manager, ReadersShareOneCopy) {
  start();
  publish({100 * base::kMiB}, 'w');
  const base::ByteCount before = free_memory();
  const MemoryManager one = reader();
  const MemoryManager other = reader();
  EXPECT_TRUE(cuda::about(free_memory(), before));
  EXPECT_NE(one.allocations()[0].address, other.allocations()[0].address);
}

TEST_F(Manager, ReadersMappingsCanNotBeWritten) {
  start();
  publish({1}, 'w');
  const MemoryManager reader = this->reader();
  EXPECT_EQ(access_to(reader.allocations()[0]), 1u);
}

// Checked through the kernel, which returns EFAULT where a program would die.
TEST_F(SimulatedManager, ReadersMappingsAreReadOnlyToTheProcessorTooAndAsleepNotEvenThat) {
  start();
  publish({1}, 'w');
  MemoryManager reader = this->reader();
  char* const address = reinterpret_cast<char*>(reader.allocations()[0].address);
  const os::Pipe pipe;
  EXPECT_EQ(::write(pipe.writer.get(), address, 1), 1);
  EXPECT_EQ(::read(pipe.reader.get(), address, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  reader.unmap_all();
  EXPECT_EQ(::write(pipe.writer.get(), address, 1), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(Manager, WakesAtTheSameAddressesAfterSleep) {
  start();
  publish({kGranule, kGranule}, 'w');
  MemoryManager reader = this->reader();
  const abi::DevicePtr address = reader.allocations()[1].address;
  EXPECT_TRUE(is_mapped(address));
  reader.unmap_all();
  EXPECT_FALSE(reader.connected());
  EXPECT_FALSE(reader.mapped());
  EXPECT_FALSE(is_mapped(address));
  EXPECT_EQ(reader.remap_all(soon()).result, RemapResult::kOk);
  EXPECT_EQ(reader.allocations()[1].address, address);
  EXPECT_EQ(byte_at(reader.allocations()[1]), 'w');
}

TEST_F(Manager, WakesOnARepublishedIdenticalLayoutWithOtherIdsAndSlots) {
  MemoryManager reader = asleep_reader({kGranule, kGranule});
  {
    MemoryManager writer = manager();
    ASSERT_TRUE(writer.connect(LockType::kRw, soon()));
    writer.rpc().free_allocation(writer.rpc().allocate(kGranule, "t").allocation_id);
    for (int i = 0; i < 2; ++i) {
      const MappedAllocation& made = writer.allocate(kGranule, "t");
      fill(made, 'n');
      writer.rpc().put_metadata("tensor " + std::to_string(i), made.allocation.allocation_id, 0,
                                "{}");
    }
    writer.commit();
  }
  EXPECT_EQ(reader.remap_all(soon()).result, RemapResult::kOk);
  EXPECT_EQ(reader.allocations()[0].allocation.layout_slot, 1u);
  EXPECT_EQ(byte_at(reader.allocations()[1]), 'n');
}

TEST_F(Manager, AnotherLayoutIsStale) {
  MemoryManager reader = asleep_reader({kGranule});
  publish({kGranule, kGranule}, 'w');
  const RemapOutcome outcome = reader.remap_all(soon());
  EXPECT_EQ(outcome.result, RemapResult::kStaleLayout);
  EXPECT_THAT(outcome.reason, testing::HasSubstr(socket_));
  EXPECT_FALSE(reader.mapped());
  EXPECT_FALSE(reader.connected());
}

TEST_F(Manager, ServerThatRestartedEmptyIsATimeoutNotStale) {
  MemoryManager reader = asleep_reader({kGranule});
  server_->terminate();
  start();
  EXPECT_EQ(reader.remap_all(Deadline::after(std::chrono::milliseconds(5))).result,
            RemapResult::kTimedOut);
}

TEST_F(Manager, WriterAtWorkIsATimeout) {
  MemoryManager reader = asleep_reader({kGranule});
  MemoryManager writer = manager();
  ASSERT_TRUE(writer.connect(LockType::kRw, soon()));
  EXPECT_EQ(reader.remap_all(Deadline::after(std::chrono::milliseconds(5))).result,
            RemapResult::kTimedOut);
}

TEST_F(Manager, NoServerIsAConnectionFailureAtOnce) {
  MemoryManager reader = asleep_reader({kGranule});
  server_->terminate();
  EXPECT_EQ(reader.remap_all(Deadline::never()).result, RemapResult::kConnectionFailed);
  os::listen_unix(socket_).reset();
  EXPECT_EQ(reader.remap_all(Deadline::never()).result, RemapResult::kConnectionFailed);
}

TEST_F(Manager, MappingsOutliveTheServer) {
  start();
  publish({kGranule}, 'w');
  const MemoryManager reader = this->reader();
  server_->child().signal(SIGKILL);
  EXPECT_EQ(server_->wait(), 137);
  EXPECT_EQ(byte_at(reader.allocations()[0]), 'w');
}

TEST_F(Manager, FirstConnectWaitsForTheServerToAppear) {
  MemoryManager early = manager();
  EXPECT_THROW(early.connect(LockType::kRo, soon()), base::Error);
  const os::Child late = os::fork_child([&] {
    MemoryManager writer = manager();
    return writer.connect(LockType::kRw, soon(), RpcClient::Retry::kUntilTheDeadline) ? 0 : 1;
  });
  start();
  EXPECT_EQ(late.wait(soon()), 0);
}

TEST_F(Manager, SealedLayoutIsFilledThroughAdoptedMappings) {
  start();
  {
    MemoryManager writer = manager();
    ASSERT_TRUE(writer.connect(LockType::kRw, soon()));
    writer.allocate(kGranule);
    EXPECT_EQ(writer.seal().value().size(), 64u);
  }
  MemoryManager adopter = manager();
  ASSERT_EQ(adopter.connect(LockType::kRwDataOrRw, soon()), Grant::kRwData);
  adopter.import_all(cuda::Access::kReadWrite);
  fill(adopter.allocations()[0], 'a');
  EXPECT_EQ(adopter.layout_hash().value().size(), 64u);
}

// Each in its own process: faults are counted per process, and a driver does not survive fork.
class Faulty : public OneServer {
 protected:
  [[nodiscard]] static MemoryManager manager(const std::string& socket) {
    const auto driver = cuda::Driver::open("sim");
    return {driver, cuda::device_info(*driver, base::DeviceOrdinal(0)), socket};
  }
  /// A driver may need one to map.
  [[nodiscard]] static cuda::PrimaryContext context() {
    return cuda::PrimaryContext::retain(cuda::Driver::open("sim"), base::DeviceOrdinal(0));
  }
};

// Whichever driver call fails, nothing stays mapped.
TEST_F(Faulty, FailureOfAnyDriverCallLeavesNothingMapped) {
  start();
  constexpr int kAllocations = 3;
  const os::Child writer = os::fork_child([&] {
    const cuda::PrimaryContext current = context();
    MemoryManager writing = manager(socket_);
    if (!writing.connect(LockType::kRw, soon())) return 1;
    for (int i = 0; i < kAllocations; ++i) writing.allocate(kGranule);
    writing.commit();
    return 0;
  });
  ASSERT_EQ(writer.wait(soon()), 0);
  const std::map<std::string, int> calls_of_an_import{
      {"cuMemImportFromShareableHandle", kAllocations},
      {"cuMemMap", kAllocations},
      {"cuMemSetAccess", 1}};
  for (const auto& [call, count] : calls_of_an_import) {
    // The first half imports, the second remaps.
    for (int k = 1; k <= 2 * count; ++k) {
      const os::Child reader = os::fork_child([&, call = call, count = count] {
        set("GMS_SIM_FAULTS", call + ":" + std::to_string(k) + "=999");
        const cuda::PrimaryContext current = context();
        MemoryManager reading = manager(socket_);
        if (!reading.connect(LockType::kRo, soon())) return 1;
        try {
          reading.import_all(cuda::Access::kRead);
          if (k <= count) return 2;
          reading.unmap_all();
          static_cast<void>(reading.remap_all(soon()));
          return 3;
        } catch (const cuda::CudaError&) {
          if (k <= count) return 0;
          return reading.mapped() || reading.connected() ? 4 : 0;
        }
      });
      EXPECT_EQ(reader.wait(soon()), 0) << call << " call " << k;
    }
  }
}

TEST_F(Faulty, WriterThatCanNotUnmapPublishesNothing) {
  start();
  const os::Child writer = os::fork_child([&] {
    set("GMS_SIM_FAULTS", "cuMemUnmap:1=unknown");
    const cuda::PrimaryContext current = context();
    MemoryManager writing = manager(socket_);
    if (!writing.connect(LockType::kRw, soon())) return 1;
    writing.allocate(kGranule);
    try {
      writing.commit();
      return 2;
    } catch (const cuda::CudaError&) {
      return 0;
    }
  });
  EXPECT_EQ(writer.wait(soon()), 0);
  EXPECT_FALSE(RpcClient::connect(socket_, soon()).runtime_state().committed);
}

}  // namespace
}  // namespace fo::gms
