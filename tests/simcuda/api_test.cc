// The library as programs use it: its devices, results before and after cuInit, fault injection,
// threads, and thousands of allocations.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cuda/child.h"
#include "cuda/device.h"
#include "cuda/driver_calls.h"
#include "cuda/memory.h"
#include "cuda/sim_folder.h"
#include "support/await.h"
#include "support/must_run.h"

namespace fo::cuda {
namespace {

using abi::Result;

constexpr base::DeviceOrdinal kDevice{0};
constexpr base::ByteCount kUnit = 2 * base::kMiB;

class Library {
 public:
  Library() : handle_(::dlopen(std::getenv("GMS_SIM_LIBRARY"), RTLD_NOW | RTLD_LOCAL)) {}
  template <typename Function>
  Function find(const char* symbol) const {
    return reinterpret_cast<Function>(::dlsym(handle_, symbol));
  }

 private:
  void* handle_;
};

class SimApi : public ::testing::Test {
 protected:
  SimFolder sim_;
};

TEST_F(SimApi, BeforeInitOnlyQuestionsAreAnswered) {
  const Library library;
  int value = 0;
  EXPECT_EQ(library.find<Result (*)(int*)>("cuDeviceGetCount")(&value), Result::kNotInitialized);
  EXPECT_EQ(library.find<Result (*)(int*)>("cuDriverGetVersion")(&value), Result::kSuccess);
  EXPECT_EQ(value, 13000);
  const char* text = nullptr;
  EXPECT_EQ(library.find<Result (*)(Result, const char**)>("cuGetErrorString")(Result::kOutOfMemory,
                                                                               &text),
            Result::kSuccess);
  EXPECT_STREQ(text, "out of memory");
  const auto init = library.find<Result (*)(unsigned)>("cuInit");
  EXPECT_EQ(init(1), Result::kInvalidValue);
  EXPECT_EQ(init(0), Result::kSuccess);
  EXPECT_EQ(init(0), Result::kSuccess);
  EXPECT_EQ(library.find<Result (*)(int*)>("cuDeviceGetCount")(&value), Result::kSuccess);
}

TEST_F(SimApi, ProcAddressesAreFoundByUnversionedName) {
  const Library library;
  using GetProcAddress = Result (*)(const char*, void**, int, std::uint64_t, int*);
  const auto get = library.find<GetProcAddress>("cuGetProcAddress_v2");
  void* function = nullptr;
  int status = -1;
  EXPECT_EQ(get("cuMemGetInfo", &function, 13000, 0, &status), Result::kSuccess);
  EXPECT_EQ(function, library.find<void*>("cuMemGetInfo_v2"));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get("cuMemMap", &function, 13000, 0, nullptr), Result::kSuccess);
  EXPECT_EQ(function, library.find<void*>("cuMemMap"));
  EXPECT_EQ(get("cuGetProcAddress", &function, 11030, 0, &status), Result::kSuccess);
  EXPECT_EQ(function, library.find<void*>("cuGetProcAddress"));
  EXPECT_EQ(get("cuGetProcAddress", &function, 12000, 0, &status), Result::kSuccess);
  EXPECT_EQ(function, library.find<void*>("cuGetProcAddress_v2"));
  EXPECT_EQ(get("cuLaunchKernel", &function, 13000, 0, &status), Result::kNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(get(nullptr, &function, 13000, 0, &status), Result::kInvalidValue);
}

TEST_F(SimApi, HasTheMarkerThatRealDriversLack) {
  EXPECT_NE(Library().find<const char*>("fo_simcuda_version"), nullptr);
}

TEST_F(SimApi, FreeMemoryIsToldAfterInitAndWithoutAContext) {
  const Library library;
  const auto ask = library.find<abi::SimulatedMemoryInfo>("fo_simcuda_memory_info");
  ASSERT_NE(ask, nullptr);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(ask(0, &free, &total), Result::kNotInitialized);
  ASSERT_EQ(library.find<Result (*)(unsigned)>("cuInit")(0), Result::kSuccess);
  EXPECT_EQ(ask(1, &free, &total), Result::kSuccess);
  EXPECT_EQ(free, 8 * base::kGiB);
  EXPECT_EQ(total, 8 * base::kGiB);
  EXPECT_EQ(ask(2, &free, &total), Result::kInvalidDevice);
  EXPECT_EQ(ask(-1, &free, &total), Result::kInvalidDevice);
  EXPECT_EQ(ask(0, nullptr, &total), Result::kInvalidValue);
  EXPECT_EQ(ask(0, &free, nullptr), Result::kInvalidValue);
  using GetInfo = Result (*)(std::size_t*, std::size_t*);
  EXPECT_EQ(library.find<GetInfo>("cuMemGetInfo_v2")(&free, &total), Result::kInvalidContext);
  EXPECT_EQ(sim_.files(0) + sim_.files(1), 0);
}

TEST_F(SimApi, NullPointersAreInvalid) {
  const auto driver = Driver::open("sim");
  const abi::Functions& api = driver->api();
  const abi::AllocationProp prop{};
  abi::AllocationHandle handle = 0;
  EXPECT_EQ(api.cuDeviceGet(nullptr, 0), Result::kInvalidValue);
  EXPECT_EQ(api.cuMemCreate(nullptr, kUnit, &prop, 0), Result::kInvalidValue);
  EXPECT_EQ(api.cuMemCreate(&handle, kUnit, nullptr, 0), Result::kInvalidValue);
  EXPECT_EQ(api.cuMemSetAccess(0, kUnit, nullptr, 1), Result::kInvalidValue);
  EXPECT_EQ(api.cuMemAddressReserve(nullptr, kUnit, 0, 0, 0), Result::kInvalidValue);
  EXPECT_EQ(api.cuDevicePrimaryCtxRetain(nullptr, 0), Result::kInvalidValue);
  EXPECT_EQ(sim_.files(), 0) << "nothing was made that nobody can name";
}

TEST_F(SimApi, ContextStackIsEachThreads) {
  const auto driver = Driver::open("sim");
  const abi::Functions& api = driver->api();
  abi::Context first = nullptr;
  abi::Context second = nullptr;
  abi::Context current = nullptr;
  ASSERT_EQ(api.cuDevicePrimaryCtxRetain(&first, 0), Result::kSuccess);
  ASSERT_EQ(api.cuDevicePrimaryCtxRetain(&second, 1), Result::kSuccess);
  EXPECT_EQ(api.cuCtxPopCurrent_v2(&current), Result::kInvalidContext);
  EXPECT_EQ(api.cuCtxSetCurrent(first), Result::kSuccess);
  EXPECT_EQ(api.cuCtxPushCurrent_v2(second), Result::kSuccess);
  std::thread([&] {
    EXPECT_EQ(api.cuCtxGetCurrent(&current), Result::kSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
  EXPECT_EQ(api.cuCtxPopCurrent_v2(&current), Result::kSuccess);
  EXPECT_EQ(current, second);
  EXPECT_EQ(api.cuCtxGetCurrent(&current), Result::kSuccess);
  EXPECT_EQ(current, first);
  EXPECT_EQ(api.cuCtxSetCurrent(nullptr), Result::kSuccess);
  EXPECT_EQ(api.cuCtxSynchronize(), Result::kInvalidContext);
  EXPECT_EQ(api.cuCtxPushCurrent_v2(reinterpret_cast<abi::Context>(&current)),
            Result::kInvalidContext);
  api.cuDevicePrimaryCtxRelease_v2(0);
  api.cuDevicePrimaryCtxRelease_v2(1);
}

TEST_F(SimApi, FaultsHitTheirCall) {
  sim_.set("GMS_SIM_FAULTS", "cuMemCreate:2=oom,cuMemGetInfo:*=999,cuInit:1=100");
  EXPECT_THROW(Driver::open("sim"), CudaError);
  const auto driver = Driver::open("sim");
  const auto first = PhysicalMemory::create(driver, kDevice, kUnit);
  EXPECT_THROW(PhysicalMemory::create(driver, kDevice, kUnit), OutOfMemory);
  EXPECT_NO_THROW(PhysicalMemory::create(driver, kDevice, kUnit));
  EXPECT_THROW(memory_info(driver, kDevice), CudaError);
}

TEST_F(SimApi, AnyErrorNumberCanBeInjected) {
  for (const std::uint32_t number :
       {1u, 34u, 35u, 36u, 37u, 802u, 803u, 804u, 805u, 806u, 807u, 808u, 809u, 810u, 9999u}) {
    SimFolder sim;
    sim.set("GMS_SIM_FAULTS",
            "cuInit:1=" + std::to_string(number) + ",cuDeviceGetCount:2=" + std::to_string(number));
    const Library library;
    const auto init = library.find<Result (*)(unsigned)>("cuInit");
    const auto count = library.find<Result (*)(int*)>("cuDeviceGetCount");
    int devices = 0;
    EXPECT_EQ(init(0), Result{number});
    EXPECT_EQ(init(0), Result::kSuccess);
    EXPECT_EQ(count(&devices), Result::kSuccess);
    EXPECT_EQ(count(&devices), Result{number});
  }
}

/// A context, a stream, and memory.
struct ForCopies {
  explicit ForCopies(const std::shared_ptr<const Driver>& driver)
      : api(driver->api()),
        context(PrimaryContext::retain(driver, kDevice)),
        range(AddressRange::reserve(driver, kUnit)),
        memory(PhysicalMemory::create(driver, kDevice, kUnit)),
        mapping(Mapping::map(driver, range.address(), kUnit, memory)) {
    set_access(*driver, at(), kUnit, kDevice, Access::kReadWrite);
    EXPECT_EQ(api.cuStreamCreate(&stream, abi::kStreamNonBlocking), Result::kSuccess);
  }
  [[nodiscard]] abi::DevicePtr at() const { return range.address(); }
  Result copy_async() const { return api.cuMemcpyHtoDAsync_v2(at(), "abc", 3, stream); }
  /// Device addresses are host addresses.
  [[nodiscard]] char first_byte() const {
    return *reinterpret_cast<const volatile char*>(static_cast<std::uintptr_t>(at()));
  }

  const abi::Functions& api;
  PrimaryContext context;
  AddressRange range;
  PhysicalMemory memory;
  Mapping mapping;
  abi::Stream stream = nullptr;
};

TEST_F(SimApi, StreamsAndPinnedMemoryCopy) {
  const auto driver = Driver::open("sim");
  const abi::Functions& api = driver->api();
  const ForCopies device(driver);
  void* host = nullptr;
  ASSERT_EQ(api.cuMemHostAlloc(&host, 4096, 0), Result::kSuccess);
  std::memset(host, 7, 4096);
  EXPECT_EQ(api.cuMemcpyHtoDAsync_v2(device.at(), host, 4096, device.stream), Result::kSuccess);
  EXPECT_EQ(api.cuStreamSynchronize(device.stream), Result::kSuccess);
  char last = 0;
  EXPECT_EQ(api.cuMemcpyDtoH_v2(&last, device.at() + 4095, 1), Result::kSuccess);
  EXPECT_EQ(last, 7);
  EXPECT_EQ(api.cuMemcpyHtoD_v2(device.at(), nullptr, 1), Result::kInvalidValue);
  EXPECT_EQ(api.cuStreamDestroy_v2(device.stream), Result::kSuccess);
  EXPECT_EQ(device.copy_async(), Result::kInvalidHandle);
  EXPECT_EQ(api.cuMemFreeHost(host), Result::kSuccess);
}

TEST_F(SimApi, FaultOfACopyIsReturnedByTheCopyItself) {
  sim_.set("GMS_SIM_QUIRKS", "");
  sim_.set("GMS_SIM_FAULTS", "cuMemcpyHtoDAsync:1=716");
  const auto driver = Driver::open("sim");
  const ForCopies device(driver);
  EXPECT_EQ(device.copy_async(), Result{716});
  EXPECT_EQ(device.api.cuStreamSynchronize(device.stream), Result::kSuccess);
  EXPECT_EQ(device.copy_async(), Result::kSuccess);
  EXPECT_EQ(device.first_byte(), 'a');
}

using LateFault = Result (*)(const ForCopies&);

TEST_F(SimApi, LateFaultOfACopyIsReturnedByTheNextSynchronisation) {
  const std::pair<const char*, LateFault> copies[] = {
      {"cuMemcpyHtoDAsync", [](const ForCopies& device) { return device.copy_async(); }},
      {"cuMemcpyHtoD",
       [](const ForCopies& device) { return device.api.cuMemcpyHtoD_v2(device.at(), "abc", 3); }},
      {"cuMemsetD8",
       [](const ForCopies& device) { return device.api.cuMemsetD8_v2(device.at(), 'a', 3); }}};
  const LateFault synchronisations[] = {
      [](const ForCopies& device) { return device.api.cuCtxSynchronize(); },
      [](const ForCopies& device) { return device.api.cuStreamSynchronize(device.stream); },
      [](const ForCopies& device) { return device.api.cuStreamSynchronize(nullptr); },
      [](const ForCopies& device) {
        char byte = 0;
        return device.api.cuMemcpyDtoH_v2(&byte, device.at(), 1);
      }};
  for (const auto& [function, copy] : copies) {
    for (const LateFault synchronise : synchronisations) {
      SimFolder sim;
      sim.set("GMS_SIM_QUIRKS", "late-copy-errors");
      sim.set("GMS_SIM_FAULTS", std::string(function) + ":2=716");
      const auto driver = Driver::open("sim");
      const ForCopies device(driver);
      EXPECT_EQ(copy(device), Result::kSuccess) << function;
      EXPECT_EQ(synchronise(device), Result::kSuccess) << function << ": the first went well";
      EXPECT_EQ(copy(device), Result::kSuccess) << function;
      EXPECT_EQ(synchronise(device), Result{716}) << function;
      EXPECT_EQ(synchronise(device), Result{716}) << function;
    }
  }
}

TEST_F(SimApi, NothingIsWrittenByACopyWithALateFaultNorAfterIt) {
  sim_.set("GMS_SIM_QUIRKS", "late-copy-errors");
  sim_.set("GMS_SIM_FAULTS", "cuMemcpyHtoDAsync:1=716");
  const auto driver = Driver::open("sim");
  const ForCopies device(driver);
  EXPECT_EQ(device.copy_async(), Result::kSuccess);
  EXPECT_EQ(device.copy_async(), Result::kSuccess);
  EXPECT_EQ(device.api.cuMemsetD8_v2(device.at(), 'x', 3), Result::kSuccess);
  EXPECT_EQ(device.first_byte(), '\0');
}

TEST_F(SimApi, LateFaultBreaksTheContextForAllCallsInIt) {
  sim_.set("GMS_SIM_QUIRKS", "late-copy-errors");
  sim_.set("GMS_SIM_FAULTS", "cuMemcpyHtoD:1=716");
  const auto driver = Driver::open("sim");
  const abi::Functions& api = driver->api();
  abi::AllocationHandle handle = 0;
  abi::AllocationProp prop{};
  prop.type = abi::AllocationType::kPinned;
  prop.location = {abi::LocationType::kDevice, 0};
  std::size_t size = 0;
  int count = 0;
  abi::Context context = nullptr;
  {
    const ForCopies device(driver);
    ASSERT_EQ(api.cuMemcpyHtoD_v2(device.at(), "abc", 3), Result::kSuccess);
    EXPECT_EQ(api.cuMemCreate(&handle, kUnit, &prop, 0), Result::kSuccess) << "not yet";
    EXPECT_EQ(api.cuMemRelease(handle), Result::kSuccess);
    ASSERT_EQ(api.cuCtxSynchronize(), Result{716});

    EXPECT_EQ(api.cuMemcpyHtoD_v2(device.at(), "abc", 3), Result{716});
    EXPECT_EQ(device.copy_async(), Result{716});
    EXPECT_EQ(api.cuMemCreate(&handle, kUnit, &prop, 0), Result{716});
    EXPECT_EQ(api.cuMemUnmap(device.at(), kUnit), Result{716});
    EXPECT_EQ(api.cuMemGetInfo_v2(&size, &size), Result{716});
    EXPECT_EQ(api.cuStreamDestroy_v2(device.stream), Result{716});
    std::thread([&] {
      EXPECT_EQ(api.cuMemCreate(&handle, kUnit, &prop, 0), Result::kSuccess) << "not in it";
      EXPECT_EQ(api.cuMemRelease(handle), Result::kSuccess);
      device.context.make_current();
      EXPECT_EQ(api.cuMemCreate(&handle, kUnit, &prop, 0), Result{716});
    }).join();

    EXPECT_EQ(api.cuDeviceGetCount(&count), Result::kSuccess);
    EXPECT_EQ(api.cuCtxGetCurrent(&context), Result::kSuccess);
    EXPECT_EQ(api.cuCtxPopCurrent_v2(&context), Result::kSuccess);
  }
  const auto again = PrimaryContext::retain(driver, kDevice);
  EXPECT_EQ(api.cuCtxSynchronize(), Result::kSuccess) << "another context";
}

TEST_F(SimApi, CopyFromTheDeviceFailsAtOnceAlsoUnderLateCopyErrors) {
  sim_.set("GMS_SIM_QUIRKS", "late-copy-errors");
  sim_.set("GMS_SIM_FAULTS", "cuMemcpyDtoH:1=716");
  const auto driver = Driver::open("sim");
  const ForCopies device(driver);
  char byte = 0;
  EXPECT_EQ(device.api.cuMemcpyDtoH_v2(&byte, device.at(), 1), Result{716});
  EXPECT_EQ(device.api.cuCtxSynchronize(), Result::kSuccess);
}

TEST_F(SimApi, ContextIsEachThreadsUnderNeedContext) {
  sim_.set("GMS_SIM_QUIRKS", "need-context");
  const auto driver = Driver::open("sim");
  const abi::Functions& api = driver->api();
  const auto memory = PhysicalMemory::create(driver, kDevice, kUnit);
  const auto fd = memory.export_fd();
  const auto range = AddressRange::reserve(driver, kUnit);
  EXPECT_EQ(api.cuMemMap(range.address(), kUnit, 0, memory.handle(), 0), Result::kInvalidContext);
  EXPECT_THROW(PhysicalMemory::import_fd(driver, fd.get(), kUnit), CudaError);
  const auto context = PrimaryContext::retain(driver, kDevice);
  EXPECT_NO_THROW(PhysicalMemory::import_fd(driver, fd.get(), kUnit));
  EXPECT_EQ(api.cuMemMap(range.address(), kUnit, 0, memory.handle(), 0), Result::kSuccess);
  std::thread([&] {
    EXPECT_EQ(api.cuMemUnmap(range.address(), kUnit), Result::kInvalidContext);
    context.make_current();
    EXPECT_EQ(api.cuMemUnmap(range.address(), kUnit), Result::kSuccess);
  }).join();
}

TEST_F(SimApi, NoReexportIsOfTheImportingProcess) {
  sim_.set("GMS_SIM_QUIRKS", "no-reexport");
  Child child([](Channel& test) {
    const auto driver = Driver::open("sim");
    const auto created = PhysicalMemory::create(driver, kDevice, kUnit);
    test.send(0, created.export_fd().get());
    static_cast<void>(test.receive());
  });
  const auto message = child.channel().receive();
  const auto driver = Driver::open("sim");
  const auto imported = PhysicalMemory::import_fd(driver, message.fd.get(), kUnit);
  int fd = -1;
  EXPECT_EQ(driver->api().cuMemExportToShareableHandle(&fd, imported.handle(),
                                                       abi::HandleType::kPosixFileDescriptor, 0),
            Result::kNotSupported);
  EXPECT_EQ(fd, -1);
  EXPECT_NO_THROW(PhysicalMemory::create(driver, kDevice, kUnit).export_fd());
}

TEST_F(SimApi, MigSlicesHaveOneGpu) {
  sim_.set("GMS_SIM_QUIRKS", "mig");
  const auto driver = Driver::open("sim");
  const auto first = device_info(*driver, base::DeviceOrdinal(0));
  const auto second = device_info(*driver, base::DeviceOrdinal(1));
  EXPECT_TRUE(first.uuid.value().starts_with("MIG-"));
  EXPECT_NE(first.uuid, second.uuid);
  EXPECT_TRUE(first.gpu_uuid.value().starts_with("GPU-"));
  EXPECT_EQ(first.gpu_uuid, second.gpu_uuid);
}

TEST_F(SimApi, FreedMemoryIsUsedForTheFreeDelay) {
  sim_.set("GMS_SIM_VRAM", "4MiB");
  sim_.set("GMS_SIM_FREE_DELAY", "86400s");
  Child child([](Channel& test) {
    const auto driver = Driver::open("sim");
    const auto memory = PhysicalMemory::create(driver, kDevice, kUnit);
    test.send(1);
    static_cast<void>(test.receive());
  });
  child.channel().expect(1);
  const auto driver = Driver::open("sim");
  const auto free_memory = [&](const Driver& of) {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(of.simulated_memory_info()(0, &free, &total), Result::kSuccess);
    return free;
  };
  EXPECT_EQ(free_memory(*driver), kUnit);
  child.kill();
  EXPECT_EQ(free_memory(*driver), kUnit) << "a killed process's memory";
  PhysicalMemory::create(driver, kDevice, kUnit);
  EXPECT_EQ(free_memory(*driver), 0u) << "one's own";
  EXPECT_THROW(PhysicalMemory::create(driver, kDevice, kUnit), OutOfMemory);

  // And when the delay is over.
  sim_.set("GMS_SIM_FREE_DELAY", "1us");
  sim_.fresh_library();
  const auto later = Driver::open("sim");
  test::await([&] { return free_memory(*later) == 2 * kUnit; });
  EXPECT_NO_THROW(PhysicalMemory::create(driver, kDevice, 2 * kUnit));
}

TEST_F(SimApi, WithoutAFreeDelayMemoryIsFreeAtOnce) {
  sim_.unset("GMS_SIM_FREE_DELAY");
  sim_.set("GMS_SIM_VRAM", "4MiB");
  const auto driver = Driver::open("sim");
  for (int i = 0; i < 3; ++i) {
    EXPECT_NO_THROW(PhysicalMemory::create(driver, kDevice, 2 * kUnit));
  }
}

TEST_F(SimApi, SettingsThatCantBeUnderstoodFailInit) {
  const auto refusal = [&](const char* variable, const char* value) {
    SimFolder sim;
    sim.set(variable, value);
    testing::internal::CaptureStderr();
    EXPECT_THROW(Driver::open("sim"), CudaError) << value;
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(refusal("GMS_SIM_FAULTS", "cuMemCreate"),
            "libcuda (simulated): error: GMS_SIM_FAULTS='cuMemCreate': "
            "not a list of function:k=what\n");
  EXPECT_EQ(
      refusal("GMS_SIM_FAULTS", "cuNoSuchFunction:1=oom"),
      "libcuda (simulated): error: unknown function 'cuNoSuchFunction' to delay or to fail\n");
  EXPECT_EQ(
      refusal("GMS_SIM_QUIRKS", "need-context,no-contxt"),
      "libcuda (simulated): error: GMS_SIM_QUIRKS='no-contxt': not need-context, "
      "map-needs-context, import-needs-context, no-reexport, late-copy-errors, no-uuid or mig\n");
  EXPECT_EQ(refusal("GMS_SIM_FREE_DELAY", "200"),
            "libcuda (simulated): error: GMS_SIM_FREE_DELAY='200': not a duration\n");
  EXPECT_EQ(refusal("GMS_SIM_DIR", "/nonexistent/gpu"),
            "libcuda (simulated): error: GMS_SIM_DIR='/nonexistent/gpu': "
            "No such file or directory\n");
}

TEST_F(SimApi, LatencyDelaysEachCall) {
  sim_.set("GMS_SIM_LATENCY", "cuMemCreate=2ms");
  const auto driver = Driver::open("sim");
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) PhysicalMemory::create(driver, kDevice, kUnit);
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(6));
}

TEST_F(SimApi, HangingCallBlocksNobodyElse) {
  sim_.set("GMS_SIM_FAULTS", "cuDeviceGetCount:1=hang");
  Child child([](Channel& test) {
    const auto driver = Driver::open("sim");
    std::atomic<pid_t> hanging = 0;
    std::thread([driver, &hanging] {
      hanging = ::gettid();
      device_count(*driver);
      ADD_FAILURE() << "it returned";
    }).detach();
    while (hanging == 0) ::sched_yield();
    wait_until_asleep(hanging);
    PhysicalMemory::create(driver, kDevice, kUnit);
    test.send(1);
  });
  child.channel().expect(1);
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(SimApi, ChildrenThatExecInheritNoFd) {
  const auto driver = Driver::open("sim");
  const auto context = PrimaryContext::retain(driver, kDevice);
  const auto memory = PhysicalMemory::create(driver, kDevice, kUnit);
  const auto fd = memory.export_fd();
  expect_in_child([&] {
    ::execl("/bin/sh", "sh", "-c",
            ("! ls -l /proc/self/fd | grep -q '" + sim_.gpu().native() + "'").c_str(), nullptr);
  });
}

TEST_F(SimApi, ThreadsShareTheDevice) {
  const auto driver = Driver::open("sim");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto context = PrimaryContext::retain(driver, kDevice);
      for (int round = 0; round < 20; ++round) {
        const auto range = AddressRange::reserve(driver, kUnit);
        const auto memory = PhysicalMemory::create(driver, kDevice, kUnit);
        const auto mapping = Mapping::map(driver, range.address(), kUnit, memory);
        set_access(*driver, range.address(), kUnit, kDevice, Access::kReadWrite);
        fill(*driver, range.address(), std::byte{1}, kUnit);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sim_.files(), 0);
}

TEST_F(SimApi, ThousandsOfAllocationsByTwoProcesses) {
  constexpr int kAllocations = 2000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 3 * kAllocations) FO_SKIP("fds", "too few fds: each handle takes one");
  sim_.set("GMS_SIM_GRANULARITY", "4KiB");
  Child child([&](Channel& test) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto driver = Driver::open("sim");
    std::vector<PhysicalMemory> all;
    for (int i = 0; i < kAllocations; ++i) {
      all.push_back(PhysicalMemory::create(driver, kDevice, 4096));
    }
    test.send(1);
    static_cast<void>(test.receive());
  });
  child.channel().expect(1);
  const auto driver = Driver::open("sim");
  EXPECT_EQ(sim_.files(), kAllocations);
  child.kill();
  EXPECT_EQ(sim_.files(), kAllocations) << "the dead are found when they are looked for";
  const MemoryInfo info = memory_info(driver, kDevice);
  EXPECT_EQ(info.total - info.free, 16 * base::kMiB) << "the context that asks";
  EXPECT_EQ(sim_.files(), 0);
}

}  // namespace
}  // namespace fo::cuda
