// Devices, handles, contexts, host memory and streams of one process.
#include "simcuda/driver.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/sim_folder.h"
#include "simcuda/support.h"

namespace fo::simcuda {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kDriverUnit = 2 * kMiB;

AllocationProp prop_of(Device device) {
  AllocationProp prop{};
  prop.type = AllocationType::kPinned;
  prop.requested_handle_types = HandleType::kPosixFileDescriptor;
  prop.location = {LocationType::kDevice, device};
  return prop;
}

class SimDriver : public ::testing::Test {
 protected:
  SimDriver() { thread_contexts().clear(); }
  ~SimDriver() override { thread_contexts().clear(); }
  Driver open() {
    settings_.dir = sim_.gpu();
    return Driver(settings_);
  }
  /// A current context.
  static void make_current(Driver& driver, Device device) {
    thread_contexts().push_back(driver.retain_primary_context(device));
  }

  static Result try_write(Driver& driver, DevicePtr address, std::uint64_t size) {
    return result_of([&] { EXPECT_TRUE(driver.check_writable(address, size)); });
  }

  cuda::SimFolder sim_;
  Settings settings_;
};

TEST_F(SimDriver, UuidsAreStableAndAllDifferent) {
  std::set<std::string> uuids;
  const auto collect = [&](const Driver& driver) {
    for (Device device = 0; device < driver.device_count(); ++device) {
      const Uuid uuid = driver.uuid(device);
      uuids.emplace(std::begin(uuid.bytes), std::end(uuid.bytes));
    }
  };
  collect(open());
  EXPECT_EQ(uuids.size(), 2u);
  collect(open());
  EXPECT_EQ(uuids.size(), 2u);
  const cuda::SimFolder other;
  settings_.dir = other.gpu();
  collect(Driver(settings_));
  EXPECT_EQ(uuids.size(), 4u);
}

TEST_F(SimDriver, VisibleDevicesKeepTheirMemoryAndUuid) {
  Driver all = open();
  const AllocationHandle handle = all.create(kDriverUnit, prop_of(1));
  settings_.visible_devices = "1";
  Driver one = open();
  EXPECT_EQ(one.device_count(), 1);
  EXPECT_EQ(std::memcmp(one.uuid(0).bytes, all.uuid(1).bytes, 16), 0);
  EXPECT_EQ(one.memory_info(0).total - one.memory_info(0).free, kDriverUnit);
  all.release(handle);
}

TEST_F(SimDriver, DefaultFolderMustBeOnesOwn) {
  settings_.dir_is_default = true;
  std::filesystem::create_directory(sim_.dir() / "elsewhere");
  std::filesystem::create_directory_symlink(sim_.dir() / "elsewhere", sim_.gpu());
  EXPECT_THROW(open(), SettingsError);
  settings_.dir_is_default = false;
  EXPECT_NO_THROW(open());
}

TEST_F(SimDriver, DevicesHaveMemoryOfTheirOwn) {
  settings_.vram = 4 * kDriverUnit;
  settings_.context_size = 0;
  Driver driver = open();
  driver.create(4 * kDriverUnit, prop_of(0));
  EXPECT_EQ(result_of([&] { driver.create(kDriverUnit, prop_of(0)); }), Result::kOutOfMemory);
  EXPECT_EQ(result_of([&] { driver.create(4 * kDriverUnit, prop_of(1)); }), Result::kSuccess);
}

TEST_F(SimDriver, CreateChecksItsProperties) {
  Driver driver = open();
  const auto with = [&](auto change) {
    AllocationProp prop = prop_of(0);
    change(prop);
    return result_of([&] { driver.create(kDriverUnit, prop); });
  };
  EXPECT_EQ(with([](auto& prop) { prop.type = AllocationType{2}; }), Result::kInvalidValue);
  EXPECT_EQ(with([](auto& prop) { prop.location.type = LocationType{2}; }), Result::kNotSupported);
  EXPECT_EQ(with([](auto& prop) { prop.location.id = 2; }), Result::kInvalidDevice);
  EXPECT_EQ(with([](auto& prop) { prop.location.id = -1; }), Result::kInvalidDevice);
  EXPECT_EQ(with([](auto& prop) { prop.requested_handle_types = HandleType{8}; }),
            Result::kNotSupported);
  EXPECT_EQ(result_of([&] { driver.create(0, prop_of(0)); }), Result::kInvalidValue);
  EXPECT_EQ(result_of([&] { driver.create(kDriverUnit / 2, prop_of(0)); }), Result::kInvalidValue);
}

TEST_F(SimDriver, SizesFollowTheGranularity) {
  for (const std::uint64_t granularity : {64 * kMiB / 1024, 4 * kMiB}) {
    settings_.granularity = granularity;
    Driver driver = open();
    EXPECT_EQ(driver.granularity(), granularity);
    EXPECT_EQ(result_of([&] { driver.release(driver.create(granularity, prop_of(0))); }),
              Result::kSuccess);
    EXPECT_EQ(result_of([&] { driver.create(granularity * 3 / 2, prop_of(0)); }),
              Result::kInvalidValue);
    EXPECT_EQ(result_of([&] { driver.reserve(granularity / 2, 0, 0); }), Result::kInvalidValue);
  }
}

TEST_F(SimDriver, EachReferenceOfAHandleIsReleasedOnce) {
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  driver.map(at, kDriverUnit, 0, handle);
  EXPECT_EQ(driver.retain(at + 1), handle);
  driver.release(handle);
  driver.release(handle);
  EXPECT_EQ(result_of([&] { driver.release(handle); }), Result::kInvalidHandle);
  EXPECT_EQ(result_of([&] { driver.map(at, kDriverUnit, 0, handle); }), Result::kInvalidHandle);
  EXPECT_EQ(result_of([&] { driver.export_fd(handle, HandleType::kPosixFileDescriptor); }),
            Result::kInvalidHandle);
  EXPECT_EQ(sim_.files(), 1) << "mapped";

  EXPECT_EQ(driver.retain(at), handle) << "the same value, back from the mapping";
  const Fd fd(driver.export_fd(handle, HandleType::kPosixFileDescriptor));
  driver.release(handle);
  driver.unmap(at, kDriverUnit);
  EXPECT_EQ(sim_.files(), 1) << "exported";
  EXPECT_EQ(result_of([&] { driver.retain(at); }), Result::kInvalidValue);
}

TEST_F(SimDriver, LastUnmapFreesReleasedMemoryAtOnce) {
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  driver.map(at, kDriverUnit, 0, handle);
  driver.release(handle);
  EXPECT_EQ(sim_.files(), 1);
  driver.unmap(at, kDriverUnit);
  EXPECT_EQ(sim_.files(), 0);
}

TEST_F(SimDriver, MappingsStayWithinTheirMemoryAndStartAtItsBeginning) {
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(4 * kDriverUnit, 0, 0);
  EXPECT_EQ(result_of([&] { driver.map(at, 2 * kDriverUnit, 0, handle); }), Result::kInvalidValue);
  EXPECT_EQ(result_of([&] { driver.map(at, kDriverUnit, kDriverUnit, handle); }),
            Result::kNotSupported);
}

TEST_F(SimDriver, OnlyExportableMemoryIsExported) {
  Driver driver = open();
  AllocationProp prop = prop_of(0);
  prop.requested_handle_types = HandleType::kNone;
  const AllocationHandle handle = driver.create(kDriverUnit, prop);
  EXPECT_EQ(result_of([&] { driver.export_fd(handle, HandleType::kPosixFileDescriptor); }),
            Result::kInvalidValue);
  EXPECT_EQ(driver.properties(handle).requested_handle_types, HandleType::kNone);
  const AllocationHandle other = driver.create(kDriverUnit, prop_of(0));
  EXPECT_EQ(result_of([&] { driver.export_fd(other, HandleType{8}); }), Result::kNotSupported);
  // Nor when its value becomes valid again.
  const DevicePtr address = driver.reserve(kDriverUnit, 0, 0);
  driver.map(address, kDriverUnit, 0, handle);
  driver.release(handle);
  EXPECT_EQ(driver.retain(address), handle);
  EXPECT_EQ(driver.properties(handle).requested_handle_types, HandleType::kNone);
}

TEST_F(SimDriver, ImportKnowsTheDevice) {
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(1));
  const Fd fd(driver.export_fd(handle, HandleType::kPosixFileDescriptor));
  const AllocationHandle imported = driver.import_fd(fd.get());
  EXPECT_NE(imported, handle);
  EXPECT_EQ(driver.properties(imported).location.id, 1);
}

/// The results of mapping and importing, and their opposites, without a context and with one.
struct ContextNeeds {
  Result import;
  Result map;
  Result set_access;
  Result unmap;
  bool operator==(const ContextNeeds&) const = default;
};
constexpr ContextNeeds kAllSucceed{Result::kSuccess, Result::kSuccess, Result::kSuccess,
                                   Result::kSuccess};

class ContextQuirk : public SimDriver {
 protected:
  /// Everything else must work without a context.
  ContextNeeds needs(bool with_context) {
    Driver driver = open();
    EXPECT_TRUE(thread_contexts().empty());
    if (with_context) make_current(driver, 0);
    const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
    const Fd fd(driver.export_fd(handle, HandleType::kPosixFileDescriptor));
    const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
    const AccessDesc desc{{LocationType::kDevice, 0}, AccessFlags::kRead};
    ContextNeeds found{};
    AllocationHandle imported = 0;
    found.import = result_of([&] { imported = driver.import_fd(fd.get()); });
    found.map = result_of([&] { driver.map(at, kDriverUnit, 0, handle); });
    found.set_access = result_of([&] { driver.set_access(at, kDriverUnit, &desc, 1); });
    if (found.map == Result::kInvalidContext) {
      make_current(driver, 1);
      driver.map(at, kDriverUnit, 0, handle);
      thread_contexts().clear();
    }
    found.unmap = result_of([&] { driver.unmap(at, kDriverUnit); });
    if (found.unmap == Result::kInvalidContext) {
      make_current(driver, 1);
      driver.unmap(at, kDriverUnit);
      thread_contexts().clear();
    }
    driver.free_range(at, kDriverUnit);
    if (imported != 0) driver.release(imported);
    driver.release(handle);
    thread_contexts().clear();
    return found;
  }
};

TEST_F(ContextQuirk, CallsNeedTheContextsOfTheirQuirks) {
  constexpr Result kOk = Result::kSuccess;
  constexpr Result kNo = Result::kInvalidContext;
  const std::vector<std::pair<std::string, ContextNeeds>> quirks{
      {"", kAllSucceed},
      {"map-needs-context", {kOk, kNo, kNo, kNo}},
      {"import-needs-context", {kNo, kOk, kOk, kOk}},
      {"need-context", {kNo, kNo, kNo, kNo}}};
  for (const auto& [quirk, expected] : quirks) {
    settings_.quirks = parse_quirks(quirk);
    EXPECT_EQ(needs(false), expected) << quirk;
    EXPECT_EQ(needs(true), kAllSucceed) << quirk;
  }
}

TEST_F(ContextQuirk, ContextThatIsGoneIsNone) {
  settings_.quirks = parse_quirks("need-context");
  Driver driver = open();
  make_current(driver, 0);
  driver.release_primary_context(0);
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  EXPECT_EQ(result_of([&] { driver.map(at, kDriverUnit, 0, handle); }),
            Result::kContextIsDestroyed);
}

TEST_F(SimDriver, ImportedHandlesAreNotExportedUnderNoReexport) {
  const auto kFd = HandleType::kPosixFileDescriptor;
  for (const bool refused : {false, true}) {
    settings_.quirks.no_reexport = refused;
    const Result expected = refused ? Result::kNotSupported : Result::kSuccess;
    Driver driver = open();
    const auto export_of = [&](AllocationHandle handle) {
      return result_of([&] { const Fd fd(driver.export_fd(handle, kFd)); });
    };
    const AllocationHandle created = driver.create(kDriverUnit, prop_of(0));
    const Fd fd(driver.export_fd(created, kFd));
    const AllocationHandle imported = driver.import_fd(fd.get());
    EXPECT_EQ(export_of(imported), expected);
    EXPECT_EQ(export_of(created), Result::kSuccess) << "that of the same memory's creator";

    // Nor after a mapping has made it valid again.
    const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
    driver.map(at, kDriverUnit, 0, imported);
    driver.release(imported);
    EXPECT_EQ(driver.retain(at), imported);
    EXPECT_EQ(export_of(imported), expected);
    EXPECT_EQ(driver.properties(imported).requested_handle_types, kFd);
    // A copy of the descriptor serves as another export.
    EXPECT_EQ(result_of([&] { driver.import_fd(fd.duplicate().get()); }), Result::kSuccess);
  }
}

TEST_F(SimDriver, OlderUuidIsNotSupportedUnderNoUuid) {
  Driver usual = open();
  EXPECT_EQ(text_of(usual.old_uuid(1)), text_of(usual.uuid(1)));
  settings_.quirks.no_uuid = true;
  Driver driver = open();
  EXPECT_EQ(result_of([&] { static_cast<void>(driver.old_uuid(1)); }), Result::kNotSupported);
  EXPECT_EQ(text_of(driver.uuid(1)), text_of(usual.uuid(1)));
}

TEST_F(SimDriver, FreeDelayIsThatOfEachDevice) {
  settings_.free_delay = std::chrono::hours(24);
  settings_.context_size = 0;
  Driver driver = open();
  driver.release(driver.create(kDriverUnit, prop_of(1)));
  EXPECT_EQ(driver.memory_info(1).total - driver.memory_info(1).free, kDriverUnit);
  EXPECT_EQ(driver.memory_info(0).total - driver.memory_info(0).free, 0u);
}

TEST_F(SimDriver, AccessIsKeptByDevice) {
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  driver.map(at, kDriverUnit, 0, handle);
  const AccessDesc both[] = {{{LocationType::kDevice, 0}, AccessFlags::kReadWrite},
                             {{LocationType::kDevice, 1}, AccessFlags::kRead}};
  driver.set_access(at, kDriverUnit, both, 2);
  EXPECT_EQ(driver.access(both[0].location, at), AccessFlags::kReadWrite);
  EXPECT_EQ(driver.access(both[1].location, at + 1), AccessFlags::kRead);
  const AccessDesc bad[] = {both[1], {{LocationType::kDevice, 2}, AccessFlags::kRead}};
  EXPECT_EQ(result_of([&] { driver.set_access(at, kDriverUnit, bad, 2); }), Result::kInvalidDevice);
  EXPECT_EQ(driver.access(both[0].location, at), AccessFlags::kReadWrite) << "nothing was changed";
  EXPECT_EQ(result_of([&] {
              static_cast<void>(driver.access({LocationType{2}, 0}, at));
            }),
            Result::kNotSupported);
}

TEST_F(SimDriver, ContextCostsMemoryWhileItIsRetained) {
  settings_.context_size = 3 * kMiB;  // rounded up
  Driver driver = open();
  EXPECT_EQ(result_of([&] { driver.current_device(); }), Result::kInvalidContext);
  make_current(driver, 0);
  EXPECT_EQ(driver.retain_primary_context(0), thread_contexts().back());
  EXPECT_EQ(driver.memory_info(0).total - driver.memory_info(0).free, 4 * kMiB);
  driver.release_primary_context(0);
  EXPECT_EQ(sim_.files(), 1);
  driver.release_primary_context(0);
  EXPECT_EQ(sim_.files(), 0);
  EXPECT_EQ(result_of([&] { driver.current_device(); }), Result::kContextIsDestroyed);
  EXPECT_EQ(result_of([&] { driver.release_primary_context(0); }), Result::kInvalidContext);
}

TEST_F(SimDriver, ContextThatDoesNotFitIsOutOfMemory) {
  settings_.vram = 16 * kMiB;
  Driver driver = open();
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  EXPECT_EQ(result_of([&] { driver.retain_primary_context(0); }), Result::kOutOfMemory);
  driver.release(handle);
  EXPECT_EQ(result_of([&] { driver.retain_primary_context(0); }), Result::kSuccess);
}

TEST_F(SimDriver, IllegalAccessPoisonsTheContext) {
  Driver driver = open();
  make_current(driver, 0);
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  EXPECT_EQ(try_write(driver, at, 1), Result::kInvalidValue);
  driver.map(at, kDriverUnit, 0, handle);
  const AccessDesc desc{{LocationType::kDevice, 0}, AccessFlags::kRead};
  driver.set_access(at, kDriverUnit, &desc, 1);
  EXPECT_EQ(result_of([&] { driver.check_readable(at, kDriverUnit); }), Result::kSuccess);
  EXPECT_EQ(try_write(driver, at, 1), Result::kIllegalAddress);
  EXPECT_EQ(result_of([&] { driver.check_readable(at, 1); }), Result::kIllegalAddress);
  EXPECT_EQ(result_of([&] { driver.synchronize(); }), Result::kIllegalAddress);
  EXPECT_EQ(result_of([&] { driver.current_device(); }), Result::kIllegalAddress);
}

TEST_F(SimDriver, IllegalWriteIsFoundByTheNextSynchronisationUnderLateCopyErrors) {
  settings_.quirks.late_copy_errors = true;
  Driver driver = open();
  make_current(driver, 0);
  const DevicePtr good = driver.reserve(kDriverUnit, 0, 0);
  driver.map(good, kDriverUnit, 0, driver.create(kDriverUnit, prop_of(0)));
  const AccessDesc writable{{LocationType::kDevice, 0}, AccessFlags::kReadWrite};
  driver.set_access(good, kDriverUnit, &writable, 1);
  const AllocationHandle handle = driver.create(kDriverUnit, prop_of(0));
  const DevicePtr at = driver.reserve(kDriverUnit, 0, 0);
  EXPECT_EQ(try_write(driver, at, 1), Result::kInvalidValue) << "misuse is answered at once";
  driver.map(at, kDriverUnit, 0, handle);
  const AccessDesc desc{{LocationType::kDevice, 0}, AccessFlags::kRead};
  driver.set_access(at, kDriverUnit, &desc, 1);
  EXPECT_TRUE(driver.check_writable(good, kDriverUnit));
  EXPECT_FALSE(driver.check_writable(at, 1)) << "no error, but nothing to write";
  EXPECT_FALSE(driver.check_writable(good, kDriverUnit)) << "nor by what comes after it";
  EXPECT_EQ(result_of([&] { driver.require_unbroken(); }), Result::kSuccess);
  EXPECT_EQ(result_of([&] { driver.synchronize(); }), Result::kIllegalAddress);
  EXPECT_EQ(result_of([&] { driver.require_unbroken(); }), Result::kIllegalAddress);
}

TEST_F(SimDriver, LateErrorIsThatOfTheFirstCopyAndOfItsContextOnly) {
  settings_.quirks.late_copy_errors = true;
  Driver driver = open();
  EXPECT_EQ(result_of([&] { driver.fail_copy(Result::kUnknown); }), Result::kInvalidContext);
  make_current(driver, 0);
  driver.fail_copy(Result{714});
  driver.fail_copy(Result::kUnknown);
  make_current(driver, 1);
  EXPECT_EQ(result_of([&] { driver.synchronize(); }), Result::kSuccess);
  thread_contexts().pop_back();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(result_of([&] { driver.synchronize(); }), Result{714}) << "each time";
    EXPECT_EQ(result_of([&] { driver.current_device(); }), Result{714});
  }
  make_current(driver, 1);
  EXPECT_EQ(result_of([&] { driver.require_unbroken(); }), Result::kSuccess);
  // A new context is valid.
  driver.release_primary_context(0);
  make_current(driver, 0);
  EXPECT_EQ(result_of([&] { driver.synchronize(); }), Result::kSuccess);
}

TEST_F(SimDriver, StreamKnowsTheContextThatItWaitsFor) {
  settings_.quirks.late_copy_errors = true;
  Driver driver = open();
  make_current(driver, 0);
  const Stream stream = driver.create_stream();
  driver.fail_copy(Result::kUnknown);
  make_current(driver, 1);
  EXPECT_EQ(result_of([&] { driver.synchronize(nullptr); }), Result::kSuccess);
  EXPECT_EQ(result_of([&] { driver.synchronize(stream); }), Result::kUnknown);
  driver.destroy_stream(stream);
  EXPECT_EQ(result_of([&] { driver.synchronize(stream); }), Result::kInvalidHandle);
}

TEST_F(SimDriver, HostMemory) {
  Driver driver = open();
  make_current(driver, 0);
  void* host = driver.allocate_host(10000);
  std::memset(host, 1, 10000);
  driver.free_host(host);
  EXPECT_EQ(result_of([&] { driver.free_host(host); }), Result::kInvalidValue);
}

TEST_F(SimDriver, Streams) {
  Driver driver = open();
  EXPECT_EQ(result_of([&] { driver.create_stream(); }), Result::kInvalidContext);
  make_current(driver, 0);
  const Stream stream = driver.create_stream();
  EXPECT_EQ(result_of([&] { driver.require_stream(stream); }), Result::kSuccess);
  EXPECT_EQ(result_of([&] { driver.require_stream(nullptr); }), Result::kSuccess);
  driver.destroy_stream(stream);
  EXPECT_EQ(result_of([&] { driver.require_stream(stream); }), Result::kInvalidHandle);
  EXPECT_EQ(result_of([&] { driver.destroy_stream(stream); }), Result::kInvalidHandle);
}

}  // namespace
}  // namespace fo::simcuda
