// What this project requires of a CUDA driver, tested with the simulated driver and, unchanged,
// with the real one if there is one. The test process itself never calls CUDA, because a driver
// does not survive fork; everything happens in children.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cuda/child.h"
#include "cuda/device.h"
#include "cuda/driver_calls.h"
#include "cuda/memory.h"
#include "cuda/sim_folder.h"
#include "cuda/test_device.h"

namespace fo::cuda {
namespace {

using abi::Result;
using base::ByteCount;

/// Memory mapped for reading and writing.
struct Mapped {
  Mapped(const std::shared_ptr<const Driver>& driver, const PhysicalMemory& memory)
      : range(AddressRange::reserve(driver, memory.size())),
        mapping(Mapping::map(driver, range.address(), memory.size(), memory)) {
    set_access(*driver, range.address(), memory.size(), kFirst, Access::kReadWrite);
  }
  AddressRange range;
  Mapping mapping;
};

/// A process that holds memory and executes commands. It has a context only while it reads or
/// writes, so that only the memory counts as used.
class Peer {
 public:
  enum Command : std::uint64_t { kCreate, kExport, kImport, kRelease, kMap, kUnmap, kWrite, kRead };

  explicit Peer(ByteCount size) : child_([=](Channel& test) { serve(test, size); }) {
    child_.channel().expect(kReady);
  }

  std::uint64_t tell(Command command) { return ask(command).value; }
  base::UniqueFd export_fd() { return ask(kExport).fd; }
  void import_fd(const base::UniqueFd& fd) { ask(kImport, fd.get()); }
  void kill() { child_.kill(); }

 private:
  static constexpr std::uint64_t kReady = 1000;

  Channel::Message ask(Command command, int fd = -1) {
    child_.channel().send(command, fd);
    return child_.channel().receive();
  }

  static void serve(const Channel& test, ByteCount size) {
    const auto driver = Driver::open(test::driver());
    PhysicalMemory memory;
    std::optional<Mapped> mapped;
    test.send(kReady);
    for (;;) {
      const auto message = test.receive();
      base::UniqueFd fd;
      std::uint64_t value = kReady;
      switch (message.value) {
        case kCreate:
          memory = PhysicalMemory::create(driver, kFirst, size);
          break;
        case kExport:
          fd = memory.export_fd();
          break;
        case kImport:
          memory = PhysicalMemory::import_fd(driver, message.fd.get(), size);
          break;
        case kRelease:
          memory.close();
          break;
        case kMap:
          mapped.emplace(driver, memory);
          break;
        case kUnmap:
          mapped.reset();
          break;
        case kWrite: {
          const auto context = PrimaryContext::retain(driver, kFirst);
          fill(*driver, mapped->range.address(), std::byte{0x5a}, size);
          synchronize(*driver);
          break;
        }
        case kRead: {
          const auto context = PrimaryContext::retain(driver, kFirst);
          std::byte last{};
          copy_to_host(*driver, {&last, 1}, mapped->range.address() + size - 1);
          value = std::to_integer<std::uint64_t>(last);
          break;
        }
      }
      test.send(value, fd.get());
    }
  }

  Child child_;
};

/// Measures how much of the device is in use.
class Observer {
 public:
  Observer()
      : child_([](Channel& test) {
          const auto driver = Driver::open(test::driver());
          const auto context = PrimaryContext::retain(driver, kFirst);
          for (;;) {
            const MemoryInfo info = memory_info(driver, kFirst);
            test.send(info.total - info.free);
            static_cast<void>(test.receive());
          }
        }),
        last_(child_.channel().receive().value) {}

  /// The change of the used memory since the last call.
  std::int64_t change() {
    child_.channel().send(0);
    const std::uint64_t before = last_;
    last_ = child_.channel().receive().value;
    return static_cast<std::int64_t>(last_ - before);
  }

 private:
  Child child_;
  std::uint64_t last_;
};

// The driver's own granularity.
constexpr const char* kDriversOwn = "own";

class Contract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    FO_SKIP_WITHOUT_ITS_DEVICE();
    if (std::string(GetParam()) == kDriversOwn) return;
    sim_.set("GMS_SIM_GRANULARITY", GetParam());
    size_ = 16 * base::kMiB;
  }

  std::shared_ptr<const Driver> open() const { return Driver::open(test::driver()); }

  /// Exact on the simulated device; a real one has other users.
  void expect_change(Observer& observer, std::int64_t bytes) const {
    const std::int64_t change = observer.change();
    EXPECT_LE(change, bytes + static_cast<std::int64_t>(slack()));
    EXPECT_GE(change, bytes - static_cast<std::int64_t>(slack()));
  }

  [[nodiscard]] std::int64_t used() const { return static_cast<std::int64_t>(size_); }

  ByteCount size_ = 512 * base::kMiB;  // as in the seeds' Decision 7
  SimFolder sim_;
};

INSTANTIATE_TEST_SUITE_P(Driver, Contract, ::testing::Values(kDriversOwn, "64KiB", "4MiB"),
                         [](const auto& param) { return std::string(param.param); });

// The table of the seeds' Decision 7, and its end by releasing.
TEST_P(Contract, MemoryIsFreeWhenTheLastProcessReleasesIt) {
  Peer server(size_);
  Peer client(size_);
  Observer observer;
  server.tell(Peer::kCreate);
  client.import_fd(server.export_fd());
  expect_change(observer, used());
  server.tell(Peer::kRelease);
  expect_change(observer, 0);
  client.tell(Peer::kRelease);
  expect_change(observer, -used());
}

// The same, and its end by dying.
TEST_P(Contract, MemoryIsFreeWhenTheLastProcessIsKilled) {
  Peer server(size_);
  Peer client(size_);
  Observer observer;
  server.tell(Peer::kCreate);
  client.import_fd(server.export_fd());
  client.tell(Peer::kMap);
  expect_change(observer, used());
  server.kill();
  expect_change(observer, 0);
  client.kill();
  expect_change(observer, -used());
}

TEST_P(Contract, ExportedFdAloneKeepsMemoryImportableAfterTheExporterDied) {
  Peer server(size_);
  Peer client(size_);
  Observer observer;
  server.tell(Peer::kCreate);
  server.tell(Peer::kMap);
  server.tell(Peer::kWrite);
  base::UniqueFd fd = server.export_fd();
  server.kill();
  expect_change(observer, used());

  client.import_fd(fd);
  fd.reset();
  client.tell(Peer::kMap);
  EXPECT_EQ(client.tell(Peer::kRead), 0x5a);
  expect_change(observer, 0);
  client.kill();
  expect_change(observer, -used());
}

TEST_P(Contract, FdInFlightKeepsMemory) {
  Peer server(size_);
  Observer observer;
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  base::UniqueFd receiver(sockets[0]);
  {
    const Channel sender{base::UniqueFd(sockets[1])};
    server.tell(Peer::kCreate);
    sender.send(0, server.export_fd().get());
  }
  server.kill();
  expect_change(observer, used());
  receiver.reset();
  expect_change(observer, -used());
}

TEST_P(Contract, MappingAloneKeepsMemory) {
  Peer server(size_);
  Peer client(size_);
  Observer observer;
  server.tell(Peer::kCreate);
  client.import_fd(server.export_fd());
  client.tell(Peer::kMap);
  client.tell(Peer::kRelease);
  server.kill();
  expect_change(observer, used());
  client.tell(Peer::kUnmap);
  expect_change(observer, -used());
}

TEST_P(Contract, AnotherProcessSeesWhatWasWritten) {
  Peer server(size_);
  Peer client(size_);
  server.tell(Peer::kCreate);
  client.import_fd(server.export_fd());
  client.tell(Peer::kMap);
  server.tell(Peer::kMap);
  server.tell(Peer::kWrite);
  EXPECT_EQ(client.tell(Peer::kRead), 0x5a);
}

TEST_P(Contract, EachImportIsAReferenceOfItsOwn) {
  Observer observer;
  Child child([&](Channel& test) {
    const auto driver = open();
    auto created = PhysicalMemory::create(driver, kFirst, size_);
    const auto fd = created.export_fd();
    auto first = PhysicalMemory::import_fd(driver, fd.get(), size_);
    auto second = PhysicalMemory::import_fd(driver, fd.get(), size_);
    created.close();
    first.close();
    test.send(0);
    static_cast<void>(test.receive());
    // Still usable by the last one.
    const Mapped mapped(driver, second);
  });
  static_cast<void>(child.channel().receive());
  expect_change(observer, used());
  child.channel().send(0);
  EXPECT_EQ(child.wait(), 0);
  expect_change(observer, -used());
}

TEST_P(Contract, TwoMappingsOfOneMemoryAlias) {
  expect_in_child([&] {
    const auto driver = open();
    const auto context = PrimaryContext::retain(driver, kFirst);
    const auto size = device_info(*driver, kFirst).granularity;
    const auto memory = PhysicalMemory::create(driver, kFirst, size);
    const Mapped one(driver, memory);
    const Mapped two(driver, memory);
    EXPECT_NE(one.range.address(), two.range.address());
    fill(*driver, one.range.address(), std::byte{7}, size);
    synchronize(*driver);
    std::byte seen{};
    copy_to_host(*driver, {&seen, 1}, two.range.address() + 3);
    EXPECT_EQ(seen, std::byte{7});
  });
}

TEST_P(Contract, ReservedMappedAndAccessibleAreThreeStates) {
  expect_in_child([&] {
    const auto driver = open();
    const abi::Functions& api = driver->api();
    const auto size = device_info(*driver, kFirst).granularity;
    const auto memory = PhysicalMemory::create(driver, kFirst, size);
    const auto handle = memory.handle();
    const abi::AccessDesc desc{{abi::LocationType::kDevice, 0}, abi::AccessFlags::kRead};
    abi::DevicePtr at = 0;
    ASSERT_EQ(api.cuMemAddressReserve(&at, 3 * size, 0, 0, 0), Result::kSuccess);

    // Reserved.
    EXPECT_EQ(api.cuMemSetAccess(at, size, &desc, 1), Result::kInvalidValue);
    EXPECT_EQ(api.cuMemUnmap(at, size), Result::kInvalidValue);
    EXPECT_NE(api.cuMemMap(at, size, size, handle, 0), Result::kSuccess);  // an offset
    EXPECT_EQ(api.cuMemMap(at, size / 2, 0, handle, 0), Result::kInvalidValue);

    // Mapped.
    ASSERT_EQ(api.cuMemMap(at, size, 0, handle, 0), Result::kSuccess);
    EXPECT_NE(api.cuMemMap(at, size, 0, handle, 0), Result::kSuccess);
    ASSERT_EQ(api.cuMemMap(at + size, size, 0, handle, 0), Result::kSuccess);
    EXPECT_EQ(api.cuMemSetAccess(at, 3 * size, &desc, 1), Result::kInvalidValue);
    unsigned long long flags = 99;
    ASSERT_EQ(api.cuMemGetAccess(&flags, &desc.location, at), Result::kSuccess);
    EXPECT_EQ(flags, 0u);

    // Accessible, two mappings by one call.
    ASSERT_EQ(api.cuMemSetAccess(at, 2 * size, &desc, 1), Result::kSuccess);
    ASSERT_EQ(api.cuMemGetAccess(&flags, &desc.location, at + size), Result::kSuccess);
    EXPECT_EQ(flags, 1u);

    // And back.
    EXPECT_NE(api.cuMemAddressFree(at, 3 * size), Result::kSuccess);
    EXPECT_NE(api.cuMemUnmap(at, size / 2), Result::kSuccess);
    EXPECT_EQ(api.cuMemUnmap(at, size), Result::kSuccess);
    EXPECT_EQ(api.cuMemUnmap(at + size, size), Result::kSuccess);
    EXPECT_NE(api.cuMemAddressFree(at, 2 * size), Result::kSuccess);
    EXPECT_EQ(api.cuMemAddressFree(at, 3 * size), Result::kSuccess);
  });
}

TEST_P(Contract, MisuseIsAnswered) {
  expect_in_child([&] {
    const auto driver = open();
    const abi::Functions& api = driver->api();
    const auto size = device_info(*driver, kFirst).granularity;
    abi::Device device = 0;
    EXPECT_EQ(api.cuDeviceGet(&device, 1000), Result::kInvalidDevice);
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(api.cuMemGetInfo_v2(&free, &total), Result::kInvalidContext);
    EXPECT_EQ(api.cuCtxSynchronize(), Result::kInvalidContext);
    abi::AllocationProp prop{};
    prop.type = abi::AllocationType::kPinned;
    prop.location = {abi::LocationType::kDevice, 0};
    abi::AllocationHandle handle = 0;
    EXPECT_EQ(api.cuMemCreate(&handle, size / 2, &prop, 0), Result::kInvalidValue);
    EXPECT_EQ(api.cuMemCreate(&handle, size, &prop, 1), Result::kInvalidValue);
    EXPECT_EQ(api.cuMemCreate(&handle, 0, &prop, 0), Result::kInvalidValue);
    EXPECT_EQ(api.cuMemCreate(&handle, ByteCount{1} << 50, &prop, 0), Result::kOutOfMemory);
    EXPECT_EQ(api.cuInit(1), Result::kInvalidValue);
    const char* name = nullptr;
    EXPECT_EQ(api.cuGetErrorName(Result{123456}, &name), Result::kInvalidValue);
  });
}

TEST_P(Contract, ClosedAndForeignFdsAreRefused) {
  expect_in_child([&] {
    const auto driver = open();
    EXPECT_THROW(PhysicalMemory::import_fd(driver, 999, size_), CudaError);
    EXPECT_THROW(PhysicalMemory::import_fd(driver, -1, size_), CudaError);
    const base::UniqueFd foreign(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_THROW(PhysicalMemory::import_fd(driver, foreign.get(), size_), CudaError);
  });
}

TEST_P(Contract, RetainGivesTheHandleThatWasMapped) {
  expect_in_child([&] {
    const auto driver = open();
    const auto size = device_info(*driver, kFirst).granularity;
    const auto memory = PhysicalMemory::create(driver, kFirst, size);
    const Mapped mapped(driver, memory);
    abi::AllocationHandle handle = 0;
    void* inside = reinterpret_cast<void*>(mapped.range.address() + size / 2);
    ASSERT_EQ(driver->api().cuMemRetainAllocationHandle(&handle, inside), Result::kSuccess);
    EXPECT_EQ(handle, memory.handle());
    abi::AllocationProp prop{};
    EXPECT_EQ(driver->api().cuMemGetAllocationPropertiesFromHandle(&prop, handle),
              Result::kSuccess);
    EXPECT_EQ(prop.location.id, 0);
    EXPECT_EQ(prop.requested_handle_types, abi::HandleType::kPosixFileDescriptor);
    EXPECT_EQ(driver->api().cuMemRelease(handle), Result::kSuccess);
  });
}

TEST_P(Contract, AForkedChildHasNoDriver) {
  expect_in_child([&] {
    const auto driver = open();
    expect_in_child([&] {
      int count = 0;
      EXPECT_EQ(driver->api().cuDeviceGetCount(&count), Result::kNotInitialized);
      EXPECT_EQ(driver->api().cuInit(0), Result::kNotInitialized);
    });
    EXPECT_GE(device_count(*driver), 1);
  });
}

}  // namespace
}  // namespace fo::cuda
