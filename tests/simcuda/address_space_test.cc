// Reserved, mapped, accessible: every transition and every misuse, and real page protection.
#include "simcuda/address_space.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <functional>

#include "cuda/child.h"
#include "simcuda/support.h"

namespace fo::simcuda {
namespace {

constexpr std::uint64_t kUnit = 2 << 20;
constexpr Backing kBacking{0, 1, 2};

class AddressSpaceTest : public ::testing::Test {
 protected:
  AddressSpaceTest() : file_(::memfd_create("memory", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(4 * kUnit)), 0);
  }
  DevicePtr reserve(std::uint64_t size) { return space_.reserve(size, 0, 0); }
  void map(DevicePtr at, std::uint64_t size) { space_.map(at, size, file_, kBacking); }
  Result try_map(DevicePtr at, std::uint64_t size) {
    return result_of([&] { map(at, size); });
  }
  Result try_unmap(DevicePtr at, std::uint64_t size) {
    return result_of([&] { space_.unmap(at, size); });
  }
  Result try_access(DevicePtr at, std::uint64_t size, AccessFlags flags) {
    return result_of([&] { space_.set_access(at, size, 0, flags); });
  }
  Result try_free(DevicePtr at, std::uint64_t size) {
    return result_of([&] { space_.free(at, size); });
  }

  AddressSpace space_{kUnit};
  Fd file_;
};

volatile char* bytes(DevicePtr address) { return reinterpret_cast<volatile char*>(address); }

TEST_F(AddressSpaceTest, RangesAreAligned) {
  EXPECT_EQ(reserve(kUnit) % kUnit, 0u);
  EXPECT_EQ(space_.reserve(kUnit, 64 * kUnit, 0) % (64 * kUnit), 0u);
  EXPECT_EQ(space_.reserve(kUnit, 4096, 0) % kUnit, 0u);
}

TEST_F(AddressSpaceTest, HintIsTakenWhenItIsFree) {
  const DevicePtr at = reserve(2 * kUnit);
  space_.free(at, 2 * kUnit);
  EXPECT_EQ(space_.reserve(kUnit, 0, at), at);
  EXPECT_NE(space_.reserve(kUnit, 0, at), at);
}

TEST_F(AddressSpaceTest, BadReservationsAreInvalid) {
  EXPECT_EQ(result_of([&] { reserve(0); }), Result::kInvalidValue);
  EXPECT_EQ(result_of([&] { reserve(kUnit / 2); }), Result::kInvalidValue);
  EXPECT_EQ(result_of([&] { space_.reserve(kUnit, 3 * kUnit, 0); }), Result::kInvalidValue);
  EXPECT_EQ(result_of([&] { reserve(std::uint64_t{1} << 60); }), Result::kOutOfMemory);
  EXPECT_EQ(result_of([&] { reserve(~std::uint64_t{0} - kUnit + 1); }), Result::kOutOfMemory);
}

TEST_F(AddressSpaceTest, FreeTakesTheExactRange) {
  const DevicePtr at = reserve(2 * kUnit);
  EXPECT_EQ(try_free(at, kUnit), Result::kInvalidValue);
  EXPECT_EQ(try_free(at + kUnit, kUnit), Result::kInvalidValue);
  map(at + kUnit, kUnit);
  EXPECT_EQ(try_free(at, 2 * kUnit), Result::kInvalidValue) << "mapped";
  EXPECT_EQ(try_unmap(at + kUnit, kUnit), Result::kSuccess);
  EXPECT_EQ(try_free(at, 2 * kUnit), Result::kSuccess);
  EXPECT_EQ(try_free(at, 2 * kUnit), Result::kInvalidValue) << "twice";
}

TEST_F(AddressSpaceTest, MapTakesReservedAndUnmappedRanges) {
  const DevicePtr at = reserve(4 * kUnit);
  EXPECT_EQ(try_map(at + 3 * kUnit, 2 * kUnit), Result::kInvalidValue) << "past the end";
  EXPECT_EQ(try_map(at + 4 * kUnit, kUnit), Result::kInvalidValue) << "beyond";
  EXPECT_EQ(try_map(at, kUnit / 2), Result::kInvalidValue);
  EXPECT_EQ(try_map(at + kUnit / 2, kUnit), Result::kInvalidValue);
  EXPECT_EQ(try_map(at, 0), Result::kInvalidValue);
  EXPECT_EQ(try_map(at + kUnit, 2 * kUnit), Result::kSuccess);
  for (std::uint64_t offset = 0; offset < 3; ++offset) {
    EXPECT_EQ(try_map(at + offset * kUnit, 2 * kUnit), Result::kInvalidValue) << "overlaps";
  }
  EXPECT_EQ(try_map(at, kUnit), Result::kSuccess);
  EXPECT_EQ(try_map(at + 3 * kUnit, kUnit), Result::kSuccess);
}

TEST_F(AddressSpaceTest, UnmapTakesWholeMappings) {
  const DevicePtr at = reserve(4 * kUnit);
  map(at, 2 * kUnit);
  map(at + 2 * kUnit, kUnit);
  EXPECT_EQ(try_unmap(at, kUnit), Result::kInvalidValue) << "half";
  EXPECT_EQ(try_unmap(at + kUnit, kUnit), Result::kInvalidValue) << "the other half";
  EXPECT_EQ(try_unmap(at, 4 * kUnit), Result::kInvalidValue) << "and something unmapped";
  EXPECT_EQ(try_unmap(at, 0), Result::kInvalidValue);
  const auto gone = space_.unmap(at, 3 * kUnit);
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_EQ(gone[0].handle, kBacking.handle);
  EXPECT_EQ(try_unmap(at, 3 * kUnit), Result::kInvalidValue) << "twice";
  EXPECT_EQ(try_map(at, 4 * kUnit), Result::kSuccess) << "still reserved";
}

TEST_F(AddressSpaceTest, AccessTakesWholeMappingsAllMapped) {
  const DevicePtr at = reserve(4 * kUnit);
  EXPECT_EQ(try_access(at, kUnit, AccessFlags::kRead), Result::kInvalidValue);
  map(at, kUnit);
  map(at + kUnit, 2 * kUnit);
  EXPECT_EQ(try_access(at, 4 * kUnit, AccessFlags::kRead), Result::kInvalidValue);
  EXPECT_EQ(try_access(at, 2 * kUnit, AccessFlags::kRead), Result::kInvalidValue);
  EXPECT_EQ(try_access(at, kUnit, AccessFlags{2}), Result::kInvalidValue);
  EXPECT_EQ(try_access(at, 3 * kUnit, AccessFlags::kReadWrite), Result::kSuccess);
  *bytes(at) = 1;
  *bytes(at + 3 * kUnit - 1) = 2;
}

TEST_F(AddressSpaceTest, NewMappingsHaveNoAccess) {
  const DevicePtr at = reserve(kUnit);
  map(at, kUnit);
  EXPECT_EQ(try_access(at, kUnit, AccessFlags::kReadWrite), Result::kSuccess);
  EXPECT_EQ(try_unmap(at, kUnit), Result::kSuccess);
  map(at, kUnit);
  EXPECT_TRUE(space_.find(at).mapping->access.empty());
  EXPECT_EQ(result_of([&] { space_.check_access(at, 1, false); }), Result::kIllegalAddress);
}

TEST_F(AddressSpaceTest, ChecksOfAccess) {
  const DevicePtr at = reserve(3 * kUnit);
  map(at, kUnit);
  map(at + kUnit, kUnit);
  space_.set_access(at, kUnit, 0, AccessFlags::kReadWrite);
  space_.set_access(at + kUnit, kUnit, 0, AccessFlags::kRead);
  const auto check = [&](DevicePtr from, std::uint64_t size, bool writing) {
    return result_of([&] { space_.check_access(from, size, writing); });
  };
  EXPECT_EQ(check(at, 2 * kUnit, false), Result::kSuccess);
  EXPECT_EQ(check(at + 1, kUnit - 1, true), Result::kSuccess);
  EXPECT_EQ(check(at + 1, kUnit, true), Result::kIllegalAddress);
  EXPECT_EQ(check(at, 2 * kUnit + 1, false), Result::kInvalidValue);
  EXPECT_EQ(check(at + 2 * kUnit, 1, false), Result::kInvalidValue);
  EXPECT_EQ(check(12345, 1, false), Result::kInvalidValue);
  EXPECT_EQ(check(at, 0, true), Result::kSuccess);
}

/// The exit status of a process that runs `action` with its own mapping: 0, or 128 + signal.
int end_of(const Fd& file, const std::function<void(AddressSpace&, DevicePtr)>& action) {
  return cuda::in_child([&] {
    ::signal(SIGSEGV, SIG_DFL);  // otherwise a sanitizer would print a report
    AddressSpace space(kUnit);
    const DevicePtr at = space.reserve(kUnit, 0, 0);
    space.map(at, kUnit, file, kBacking);
    action(space, at);
  });
}

TEST_F(AddressSpaceTest, ReadOnlyMappingsFaultOnWrite) {
  const auto read_only = [&](AddressSpace& space, DevicePtr at) {
    space.set_access(at, kUnit, 0, AccessFlags::kRead);
    EXPECT_EQ(*bytes(at), 0);
  };
  EXPECT_EQ(end_of(file_, read_only), 0);
  EXPECT_EQ(end_of(file_,
                   [&](AddressSpace& space, DevicePtr at) {
                     read_only(space, at);
                     *bytes(at) = 1;
                   }),
            128 + SIGSEGV);
}

TEST_F(AddressSpaceTest, WithoutAccessEverythingFaults) {
  EXPECT_EQ(end_of(file_, [](AddressSpace&, DevicePtr at) { *bytes(at); }), 128 + SIGSEGV);
  EXPECT_EQ(end_of(file_,
                   [](AddressSpace& space, DevicePtr at) {
                     space.set_access(at, kUnit, 0, AccessFlags::kReadWrite);
                     *bytes(at) = 1;
                     space.unmap(at, kUnit);
                     *bytes(at);
                   }),
            128 + SIGSEGV);
}

TEST_F(AddressSpaceTest, ChildrenInheritNoMapping) {
  EXPECT_EQ(end_of(file_,
                   [](AddressSpace& space, DevicePtr at) {
                     space.set_access(at, kUnit, 0, AccessFlags::kReadWrite);
                     EXPECT_EQ(cuda::in_child([&] { *bytes(at); }), 128 + SIGSEGV);
                     *bytes(at) = 1;
                   }),
            0);
}

}  // namespace
}  // namespace fo::simcuda
