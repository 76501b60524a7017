// One device's memory in several processes: holders, releases at death, and books that survive a
// SIGKILL at every system call.
#include "simcuda/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <memory>
#include <vector>

#include "cuda/child.h"
#include "cuda/sim_folder.h"
#include "simcuda/result.h"
#include "simcuda/support.h"
#include "support/must_run.h"

namespace fo::simcuda {
namespace {

using namespace std::chrono_literals;
using cuda::Channel;
using cuda::Child;
using cuda::expect_in_child;
using cuda::in_child;

constexpr std::uint64_t kStoreUnit = 64 << 10;
constexpr std::uint64_t kStoreCapacity = 4 * kStoreUnit;

// Free delays that never end during a test, and that are over at the next scan.
constexpr auto kNeverFree = 24h;
constexpr auto kSoonFree = 1ns;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { std::filesystem::create_directory(sim_.gpu()); }
  [[nodiscard]] Store open(std::chrono::nanoseconds free_delay = {}) const {
    return {sim_.device(0), kStoreCapacity, free_delay};
  }

  cuda::SimFolder sim_;
};

TEST_F(StoreTest, NewMemoryIsZeroAndBackedInFull) {
  Store store = open();
  const Allocation memory = store.create(kStoreUnit);
  struct stat status {};
  ASSERT_EQ(::fstat(memory.fd.get(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), kStoreUnit);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, kStoreUnit);
  std::vector<char> bytes(kStoreUnit, 'x');
  ASSERT_EQ(::pread(memory.fd.get(), bytes.data(), kStoreUnit, 0),
            static_cast<ssize_t>(kStoreUnit));
  EXPECT_EQ(bytes, std::vector<char>(kStoreUnit, '\0'));
  EXPECT_EQ(::fcntl(memory.fd.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(StoreTest, CapacityHoldsAcrossProcesses) {
  Child other([&](Channel& test) {
    Store store = open();
    const Allocation memory = store.create(3 * kStoreUnit);
    test.send(1);
    static_cast<void>(test.receive());
  });
  other.channel().expect(1);
  Store store = open();
  EXPECT_EQ(result_of([&] { store.create(2 * kStoreUnit); }), Result::kOutOfMemory);
  const Allocation memory = store.create(kStoreUnit);
  EXPECT_EQ(store.used(), kStoreCapacity);
  EXPECT_EQ(result_of([&] { store.create(kStoreUnit); }), Result::kOutOfMemory);
  other.kill();
  EXPECT_NO_THROW(store.release(store.create(3 * kStoreUnit)));
  EXPECT_EQ(store.used(), kStoreUnit);
}

TEST_F(StoreTest, MoreThanTheCapacityIsOutOfMemory) {
  Store store = open();
  EXPECT_EQ(result_of([&] { store.create(kStoreCapacity + kStoreUnit); }), Result::kOutOfMemory);
  EXPECT_EQ(result_of([&] { store.create(~std::uint64_t{0}); }), Result::kOutOfMemory);
}

TEST_F(StoreTest, ReleaseRemovesTheFileAtOnce) {
  Store store = open();
  store.release(store.create(kStoreUnit));
  EXPECT_EQ(sim_.files(), 0);
}

TEST_F(StoreTest, LastReferenceOfAnyKindKeepsMemory) {
  Store store = open();
  Allocation memory = store.create(kStoreUnit);
  Fd exported = memory.fd.duplicate();
  const FileId id = memory.id;
  store.release(std::move(memory));
  EXPECT_EQ(store.used(), kStoreUnit) << "an exported fd";

  Allocation imported = store.adopt(exported.get()).value();
  EXPECT_EQ(imported.id, id);
  EXPECT_EQ(imported.size, kStoreUnit);
  exported.reset();
  EXPECT_EQ(store.used(), kStoreUnit) << "an import";

  void* mapping = ::mmap(nullptr, kStoreUnit, PROT_READ, MAP_SHARED, imported.fd.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  store.release(std::move(imported));
  EXPECT_EQ(store.used(), kStoreUnit) << "a mapping";

  Allocation again = store.reopen(id);
  ::munmap(mapping, kStoreUnit);
  EXPECT_EQ(store.used(), kStoreUnit) << "a reopened file";
  store.release(std::move(again));
  EXPECT_EQ(store.used(), 0u);
}

TEST_F(StoreTest, OnlyFilesOfTheDeviceAreAdopted) {
  Store store = open();
  Store other(sim_.device(1), kStoreCapacity);
  const Allocation foreign = other.create(kStoreUnit);
  EXPECT_FALSE(store.adopt(foreign.fd.get()));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(store.adopt(null.get()));
  EXPECT_EQ(result_of([&] { static_cast<void>(store.adopt(-1)); }), Result::kOperatingSystem);

  Allocation gone = store.create(kStoreUnit);
  const Fd unlinked(
      ::open(("/proc/self/fd/" + std::to_string(gone.fd.get())).c_str(), O_RDWR | O_CLOEXEC));
  store.release(std::move(gone));
  EXPECT_FALSE(store.adopt(unlinked.get())) << "freed memory, by an fd that held nothing";
}

TEST_F(StoreTest, AdoptedFileIsHeldEvenWhenItsFdWasNot) {
  Store store = open();
  Allocation memory = store.create(kStoreUnit);
  const Fd by_name(
      ::open(("/proc/self/fd/" + std::to_string(memory.fd.get())).c_str(), O_RDWR | O_CLOEXEC));
  const Allocation adopted = store.adopt(by_name.get()).value();
  store.release(std::move(memory));
  EXPECT_EQ(store.used(), kStoreUnit);
}

TEST_F(StoreTest, LostBookIsMadeAnew) {
  Store store = open();
  const Allocation memory = store.create(3 * kStoreUnit);
  ASSERT_EQ(::truncate((sim_.device(0) / "book").c_str(), 0), 0);
  EXPECT_EQ(result_of([&] { store.create(2 * kStoreUnit); }), Result::kOutOfMemory);
  EXPECT_EQ(store.used(), 3 * kStoreUnit);
}

TEST_F(StoreTest, ReleasedMemoryCountsAsUsedUntilTheDelayIsOver) {
  Store store = open(kNeverFree);
  store.release(store.create(3 * kStoreUnit));
  EXPECT_EQ(store.used(), 3 * kStoreUnit);
  EXPECT_EQ(sim_.files(), 0) << "as an allocation it is gone";
  EXPECT_EQ(result_of([&] { store.create(2 * kStoreUnit); }), Result::kOutOfMemory);
  expect_in_child([&] {
    Store other = open(kNeverFree);
    EXPECT_EQ(other.used(), 3 * kStoreUnit) << "for all processes";
    EXPECT_EQ(result_of([&] { other.create(2 * kStoreUnit); }), Result::kOutOfMemory);
    EXPECT_EQ(result_of([&] { other.create(kStoreUnit); }), Result::kSuccess);
  });
  EXPECT_NO_THROW(open(kSoonFree).create(2 * kStoreUnit))
      << "a create that does not fit looks again";
}

TEST_F(StoreTest, KilledHoldersMemoryCountsAsUsedForTheDelayAfterItIsFound) {
  Child other([&](Channel& test) {
    Store store = open(kSoonFree);
    const Allocation memory = store.create(3 * kStoreUnit);
    test.send(1);
    static_cast<void>(test.receive());
  });
  other.channel().expect(1);
  Store store = open(kNeverFree);
  EXPECT_EQ(store.used(), 3 * kStoreUnit);
  other.kill();
  EXPECT_EQ(result_of([&] { store.create(2 * kStoreUnit); }), Result::kOutOfMemory);
  EXPECT_EQ(store.used(), 3 * kStoreUnit);
  EXPECT_EQ(result_of([&] { store.create(kStoreUnit); }), Result::kSuccess) << "what fits is given";
  Store soon = open(kSoonFree);
  EXPECT_EQ(soon.used(), kStoreUnit) << "the delay has begun when it was found, once";
  EXPECT_EQ(soon.used(), 0u);
}

TEST_F(StoreTest, FreeDelayBeginsWhenADeathIsFound) {
  Store store = open(kSoonFree);
  expect_in_child([&] { static_cast<void>(open().create(3 * kStoreUnit).fd.release()); });
  EXPECT_EQ(store.used(), 3 * kStoreUnit);
  EXPECT_EQ(store.used(), 0u);
}

TEST_F(StoreTest, HeldMemoryIsNoneOfTheFreeDelaysBusiness) {
  Store store = open(kSoonFree);
  Allocation memory = store.create(kStoreUnit);
  const Allocation imported = store.adopt(memory.fd.get()).value();
  store.release(std::move(memory));
  EXPECT_EQ(store.used(), kStoreUnit);
  EXPECT_EQ(store.used(), kStoreUnit);
  EXPECT_TRUE(store.adopt(imported.fd.get()));
}

TEST_F(StoreTest, GoneMemoryIsNotAdopted) {
  Store store = open(kNeverFree);
  Allocation gone = store.create(kStoreUnit);
  const Fd by_name(
      ::open(("/proc/self/fd/" + std::to_string(gone.fd.get())).c_str(), O_RDWR | O_CLOEXEC));
  store.release(std::move(gone));
  EXPECT_FALSE(store.adopt(by_name.get()));
}

TEST_F(StoreTest, WithoutADelayGoneMemoryOfOthersIsFreeAtOnce) {
  Store delayed = open(kNeverFree);
  delayed.release(delayed.create(3 * kStoreUnit));
  EXPECT_EQ(delayed.used(), 3 * kStoreUnit);
  Store store = open();
  EXPECT_EQ(store.used(), 0u);
  EXPECT_EQ(delayed.used(), 0u);
}

TEST_F(StoreTest, FreeDelayDoesNotOutliveAReboot) {
  Store store = open(kNeverFree);
  // The clock, which starts at boot, has not reached this time.
  std::ofstream(sim_.device(0) / "gone-1-9223372036854775807") << std::string(kStoreUnit, 'x');
  EXPECT_EQ(store.used(), 0u);
}

/// Mounts a disk of 256 KiB on `dir`, for this process only. False without permission.
bool mount_small_disk(const std::filesystem::path& dir) {
  const uid_t uid = ::geteuid();
  if (::unshare(CLONE_NEWNS) < 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=256k") == 0;
}

TEST_F(StoreTest, FullDiskIsOutOfMemoryAndLeavesNothing) {
  constexpr int kNotPermitted = 77;
  const int status = in_child([&] {
    if (!mount_small_disk(sim_.gpu())) ::_exit(kNotPermitted);
    const auto open_large = [&] { return Store(sim_.device(0), 100 * kStoreCapacity); };
    Store store = open_large();
    expect_in_child([&] { open_large().create(2 * kStoreUnit); });
    EXPECT_EQ(sim_.files(), 1) << "a dead process's";
    const Allocation held = store.create(2 * kStoreUnit);
    EXPECT_EQ(sim_.files(), 1) << "it was found when it was in the way";
    EXPECT_EQ(result_of([&] { store.create(4 * kStoreUnit); }), Result::kOutOfMemory);
    EXPECT_EQ(store.used(), 2 * kStoreUnit);
    EXPECT_EQ(sim_.files(), 1);
    Store delayed(sim_.device(0), 100 * kStoreCapacity, kNeverFree);
    EXPECT_EQ(result_of([&] { delayed.create(4 * kStoreUnit); }), Result::kOutOfMemory);
    EXPECT_EQ(delayed.used(), 2 * kStoreUnit) << "nobody had it, so no delay";
  });
  if (status == kNotPermitted) FO_SKIP("root", "mounting a small disk is not permitted here");
  EXPECT_EQ(status, 0);
}

/// Runs `body` in a child, kills it at its `stops`-th entry to or return from a system call, and
/// waits. False if it ended before.
template <typename Body>
bool kill_at_system_call(int stops, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int i = 0; i < stops && WIFSTOPPED(status); ++i) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) return false;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return true;
}

bool may_trace() {
  return in_child([] {
           if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) < 0) ::_exit(77);
         }) != 77;
}

TEST_F(StoreTest, BooksSurviveSigkillAtEverySystemCall) {
  if (!may_trace()) FO_SKIP("ptrace", "ptrace is not permitted here");
  Store store = open();
  const Allocation held = store.create(kStoreUnit);
  for (int stops = 1;; ++stops) {
    const bool killed = kill_at_system_call(stops, [&] {
      Store own = open();
      own.release(own.create(2 * kStoreUnit));
      const Allocation left_behind = own.create(kStoreUnit);
      own.used();
    });
    // The book is never too low and is corrected when needed: exactly the remaining memory can be
    // allocated.
    Allocation rest = store.create(kStoreCapacity - kStoreUnit);
    EXPECT_EQ(result_of([&] { store.create(kStoreUnit); }), Result::kOutOfMemory);
    store.release(std::move(rest));
    EXPECT_EQ(store.used(), kStoreUnit) << "killed at stop " << stops;
    EXPECT_EQ(sim_.files(), 1) << "killed at stop " << stops;
    if (!killed || HasFailure()) {
      EXPECT_GT(stops, 100) << "the child did next to nothing";
      break;
    }
  }
}

TEST_F(StoreTest, BooksOfDelayedMemorySurviveSigkillAtEverySystemCall) {
  if (!may_trace()) FO_SKIP("ptrace", "ptrace is not permitted here");
  Store store = open(kNeverFree);
  const Allocation held = store.create(kStoreUnit);
  for (int stops = 1;; ++stops) {
    const bool killed = kill_at_system_call(stops, [&] {
      Store own = open(kNeverFree);
      own.release(own.create(kStoreUnit));
      const Allocation left_behind = own.create(kStoreUnit);
      own.used();
    });
    // Memory created before the kill counts once, and exactly the rest can be allocated.
    const std::uint64_t used = store.used();
    EXPECT_TRUE(used == kStoreUnit || used == 2 * kStoreUnit || used == 3 * kStoreUnit)
        << "killed at stop " << stops << ": " << used;
    EXPECT_EQ(result_of([&] { store.create(kStoreCapacity - used + kStoreUnit); }),
              Result::kOutOfMemory);
    EXPECT_EQ(result_of([&] { store.create(kStoreCapacity - used); }), Result::kSuccess);
    EXPECT_EQ(store.used(), kStoreCapacity) << "killed at stop " << stops;
    EXPECT_EQ(open().used(), kStoreUnit) << "killed at stop " << stops;
    if (!killed || HasFailure()) {
      EXPECT_GT(stops, 100) << "the child did next to nothing";
      EXPECT_EQ(used, 3 * kStoreUnit);
      break;
    }
  }
}

TEST_F(StoreTest, ManyProcessesNeverExceedTheCapacityAndLeaveNothing) {
  constexpr int kProcesses = 6;
  constexpr int kRounds = 60;
  std::vector<std::unique_ptr<Child>> children;
  const auto churn = [&](Channel& test) {
    Store store = open();
    for (std::uint64_t round = 0;; ++round) {
      if (round == 20) test.send(1);
      try {
        Allocation memory = store.create((1 + round % 2) * kStoreUnit);
        if (round % 3 != 0)
          store.release(std::move(memory));  // otherwise closed, for others to find
      } catch (const Failure& failure) {
        if (failure.result != Result::kOutOfMemory) throw;
      }
    }
  };
  for (int i = 0; i < kProcesses; ++i) children.push_back(std::make_unique<Child>(churn));
  Store store = open();
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_LE(store.used(), kStoreCapacity);
    auto& victim = children[static_cast<std::size_t>(round % kProcesses)];
    victim->channel().expect(1);
    victim = std::make_unique<Child>(churn);  // kills the previous one
  }
  children.clear();
  EXPECT_EQ(store.used(), 0u);
  EXPECT_EQ(sim_.files(), 0);
  EXPECT_NO_THROW(store.release(store.create(kStoreCapacity)));
}

TEST_F(StoreTest, ItsFilesAreListedWithThoseThatAreHeldToldApart) {
  Store store = open();
  const Allocation memory = store.create(2 * kStoreUnit);
  EXPECT_EQ(store.create(kStoreUnit).size, kStoreUnit);  // not released: its file stays, unheld
  std::filesystem::create_directory(sim_.device(0) / "mem-folder");
  const DeviceFiles all = list_files(sim_.device(0), false);
  EXPECT_EQ(all.dir, std::filesystem::canonical(sim_.device(0)));
  EXPECT_EQ(all.files.size(), 2u);
  const DeviceFiles held = list_files(sim_.device(0), true);
  ASSERT_EQ(held.files.size(), 1u);
  struct stat status {};
  ASSERT_EQ(::fstat(memory.fd.get(), &status), 0);
  EXPECT_EQ(held.files[0].device, status.st_dev);
  EXPECT_EQ(held.files[0].id, memory.id);
  EXPECT_EQ(held.files[0].size, 2 * kStoreUnit);
  EXPECT_EQ(held.files[0].name, "mem-" + std::to_string(memory.id));
}

TEST_F(StoreTest, ListingADeviceThatIsAbsentCreatesNothing) {
  EXPECT_THROW(list_files(sim_.device(7), false), std::system_error);
  EXPECT_FALSE(std::filesystem::exists(sim_.device(7)));
  std::filesystem::create_directory(sim_.device(7));
  EXPECT_THROW(list_files(sim_.device(7), true), std::system_error);
  EXPECT_TRUE(std::filesystem::is_empty(sim_.device(7)));
}

}  // namespace
}  // namespace fo::simcuda
