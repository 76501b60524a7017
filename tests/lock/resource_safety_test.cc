// The device memory of a dead engine is free when the lock is granted again: engines with device
// memory, host memory and workers die in every way, and at each grant the device's memory is
// queried, from a simulated device, which the kernel accounts for, or from a GPU by NVML.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "cuda/device_memory.h"
#include "cuda/memory.h"
#include "cuda/sim_folder.h"
#include "cuda/test_device.h"
#include "device/gpu_gate.h"
#include "lock/engine_process.h"
#include "lock/flock/flock_lock.h"
#include "os/process/process.h"
#include "support/driver.h"
#include "support/must_run.h"
#include "support/sanitizers.h"

namespace fo::lock {
namespace {

using test::EngineProcess;
using test::kPatience;

constexpr base::DeviceOrdinal kDevice(0);
// The number of deaths of each kind; --gtest_repeat=4 makes it a thousand in all. On a GPU an engine
// starts in seconds.
const int kDeaths = test::on_gpu() ? 4 : 12;

enum class Death { kKill, kSegv, kTerm, kOom };
enum class First { kEngine, kRank, kAll };
enum class Form {
  /// --exec, one process.
  kAlone,
  /// --exec, and workers that inherit the lock. A process that ends releases its share of the lock
  /// when it begins to close its files: if several end together, the last share may be released
  /// before another process's device memory. So here the contender has a gate.
  kInherit,
  /// Under a supervisor, with workers that have closed the lock.
  kSupervise
};

std::function<bool()> lost_check(FailoverLock& lock) {
  return [&lock] { return lock.check().has_value(); };
}

int signal_of(Death death) {
  switch (death) {
    case Death::kSegv:
      return SIGSEGV;
    case Death::kTerm:
      return SIGTERM;
    case Death::kKill:
    case Death::kOom:
      return SIGKILL;
  }
  return 0;
}

/// A memory cgroup, v1 or v2, for a process that the OOM killer shall kill.
class MemoryGroup {
 public:
  MemoryGroup() {
    v1_ = std::filesystem::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    path_ = std::string("/sys/fs/cgroup/") + (v1_ ? "memory/" : "") + "fo-test-" +
            std::to_string(::getpid());
    if (::mkdir(path_.c_str(), 0755) != 0) {
      why_not_ = "no memory cgroup can be made: " + std::system_category().message(errno);
    } else if (!set_limit(kNoLimit)) {
      why_not_ = "a memory cgroup takes no limit here";
    } else {
      // Prevents swapping; the file may be missing on a machine without swap.
      write(v1_ ? "memory.swappiness" : "memory.swap.max", "0");
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() { ::rmdir(path_.c_str()); }

  [[nodiscard]] const std::optional<std::string>& why_not() const { return why_not_; }

  /// The same command, run in this group.
  [[nodiscard]] std::vector<std::string> within(const std::vector<std::string>& argv) const {
    std::vector<std::string> words{"sh", "-c", R"(echo $$ >"$0/cgroup.procs" && exec "$@")", path_};
    words.insert(words.end(), argv.begin(), argv.end());
    return words;
  }

  void limit_to_little_more() const {
    std::uint64_t used = 0;
    std::ifstream(path_ + (v1_ ? "/memory.usage_in_bytes" : "/memory.current")) >> used;
    set_limit(std::to_string(used + 4 * base::kMiB));
  }
  void lift_limit() const { set_limit(kNoLimit); }

 private:
  // Both versions read this as no limit.
  static constexpr const char* kNoLimit = "9223372036854771712";

  bool set_limit(const std::string& bytes) const {
    return write(v1_ ? "memory.limit_in_bytes" : "memory.max", bytes);
  }
  bool write(const std::string& file, const std::string& value) const {
    const base::UniqueFd fd(::open((path_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC));
    return ::write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
  }

  bool v1_ = false;
  std::string path_;
  std::optional<std::string> why_not_;
};

/// A device whose memory this process only queries, and a lock.
class ResourceSafety : public testing::Test {
 protected:
  void SetUp() override {
    FO_SKIP_WITHOUT_ITS_DEVICE();
    os::become_subreaper();
    os::raise_fd_limit();
    if (!test::on_gpu()) {
      // Many small pieces take the longest to release.
      sim_.set("GMS_SIM_GRANULARITY", "16KiB");
      sim_.set("GMS_SIM_CONTEXT_SIZE", "64KiB");
      sim_.set("GMS_SIM_VRAM", "1GiB");
    }
    sim_.set("GMS_DRIVER", test::driver());
    sim_.set("FO_LIBEXEC_DIR", FO_BUILD_DIR "/libexec/fo");
    driver_ = cuda::Driver::open(test::driver());
    context_ = cuda::PrimaryContext::retain(driver_, kDevice);
    memory_ = cuda::device_memory(driver_, kDevice);
    baseline_ = used();
    core_ = sim_.dir() / "core";
    std::filesystem::create_directory(core_);
    // Created here, so that it exists for every observer.
    std::ofstream(lock_path()).flush();
  }

  [[nodiscard]] base::ByteCount used() const {
    const cuda::MemoryInfo info = memory_.ask();
    return info.total - info.free;
  }
  /// The part of this that the engines hold.
  [[nodiscard]] base::ByteCount held_of(base::ByteCount used) const {
    return used > baseline_ + cuda::slack() ? used - baseline_ : 0;
  }
  [[nodiscard]] base::ByteCount held() const { return held_of(used()); }
  /// Free memory of the device for a gate that opens when no engine holds any.
  [[nodiscard]] base::ByteCount wanted() const { return memory_.ask().free - cuda::slack(); }
  [[nodiscard]] std::string lock_path() const { return sim_.dir() / "lock"; }

  [[nodiscard]] std::vector<std::string> under_lock(const std::vector<std::string>& options,
                                                    const std::vector<std::string>& engine) const {
    std::vector<std::string> argv{test::kGmsLock, "acquire", "--lock",
                                  lock_path(),    "--id",    "dying"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", test::kDyingEngine, "core=" + core_.native()});
    if (test::on_gpu()) argv.insert(argv.end(), {"pieces=8", "device=1GiB"});
    argv.insert(argv.end(), engine.begin(), engine.end());
    return argv;
  }

  struct Seen {
    std::uint64_t generation = 0;
    /// Memory of the dead engine: when the lock was granted, and when the contender may begin.
    base::ByteCount held_at_grant = 0;
    base::ByteCount held = 0;
  };
  /// What a contender sees that waits for the lock while `kill` is called.
  Seen wait_for_death(const std::function<void()>& kill, device::GpuGate* gate = nullptr) {
    std::optional<test::DeviceFiles> files;
    if (!test::on_gpu()) files.emplace(sim_.device(kDevice.value()));
    FlockLock lock(lock_path(), "observer");
    const test::Once once([&] { return test::is_awaited(lock_path()); }, kill);
    const FailoverLock::Result result = lock.acquire(base::Deadline::after(kPatience));
    Seen seen{result.grant.generation, held_of(files ? files->held() : used())};
    if (result.outcome != os::LockWait::kLocked) test::give_up("the lock never came");
    if (gate != nullptr && gate->wait(base::Deadline::after(kPatience), -1, lost_check(lock)) !=
                               device::GpuGate::Outcome::kFree) {
      test::give_up("the device was never free");
    }
    seen.held = std::max(gate == nullptr ? seen.held_at_grant : 0, held());
    return seen;
  }

  cuda::SimFolder sim_;
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::PrimaryContext context_;
  cuda::DeviceMemory memory_;
  base::ByteCount baseline_ = 0;
  std::filesystem::path core_;
};

using Case = std::tuple<Death, First, Form>;

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto [death, first, form] = info.param;
  static constexpr const char* kDeath[] = {"Kill", "Segv", "Term", "Oom"};
  static constexpr const char* kFirst[] = {"OfEngine", "OfRank", "OfAll"};
  static constexpr const char* kForm[] = {"Alone", "WithInheritors", "Supervised"};
  return std::string(kDeath[static_cast<int>(death)]) + kFirst[static_cast<int>(first)] +
         kForm[static_cast<int>(form)];
}

class EveryDeath : public ResourceSafety, public testing::WithParamInterface<Case> {
 protected:
  // The i-th engine under the lock.
  [[nodiscard]] std::vector<std::string> argv(int i) const {
    if (form_ == Form::kAlone) return under_lock({"--exec"}, {});
    std::vector<std::string> engine{i % 4 == 1 ? "workers=2" : "workers=1"};
    if (form_ == Form::kInherit) return under_lock({"--exec"}, engine);
    engine.emplace_back("close_lock=1");
    if (i % 4 == 0 && death_ != Death::kTerm) engine.emplace_back("stubborn=1");
    return under_lock({"--grace", "5ms"}, engine);
  }

  void kill(const EngineProcess& engine, const MemoryGroup* group) const {
    if (first_ == First::kAll) return engine.kill_all();
    const int victim = first_ == First::kEngine ? engine.engine() : engine.worker(0);
    if (group != nullptr) {
      group->limit_to_little_more();
      os::send_signal(victim, SIGUSR1);  // it then allocates all memory
    } else if (death_ == Death::kTerm && first_ == First::kEngine) {
      engine.process().signal(SIGTERM);  // a supervisor forwards it
    } else {
      os::send_signal(victim, signal_of(death_));
    }
  }

  [[nodiscard]] std::size_t take_cores() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(core_)) {
      if (std::filesystem::remove(entry.path())) ++count;
    }
    return count;
  }

  Death death_ = std::get<Death>(GetParam());
  First first_ = std::get<First>(GetParam());
  Form form_ = std::get<Form>(GetParam());
};

TEST_P(EveryDeath, LeavesNoDeviceMemoryHeldAtTheGrant) {
  std::optional<MemoryGroup> group;
  if (death_ == Death::kOom) {
    group.emplace();
    if (group->why_not()) FO_SKIP("oom", *group->why_not());
    if (test::kHasSanitizers && form_ == Form::kSupervise) {
      FO_SKIP("release", "with a sanitizer the supervisor is the largest process, which is killed");
    }
  }
  const int expected = first_ == First::kRank ? 1 : 128 + signal_of(death_);
  std::optional<device::GpuGate> gate;
  if (form_ == Form::kInherit) gate.emplace(wanted(), kDevice);
  int violations = 0;
  int early = 0;
  std::size_t cores = 0;
  std::uint64_t generation = 0;
  for (int i = 0; i < kDeaths; ++i) {
    const std::vector<std::string> command = argv(i);
    EngineProcess engine(group ? group->within(command) : command);
    ASSERT_GT(held(), 0u);
    const Seen seen =
        wait_for_death([&] { kill(engine, group ? &*group : nullptr); }, gate ? &*gate : nullptr);
    if (seen.held_at_grant > 0) ++early;
    if (seen.held > 0) {
      ++violations;
      ADD_FAILURE() << "death " << i << ": " << seen.held / base::kKiB << " KiB still held";
    }
    ASSERT_EQ(engine.await_end(), expected);
    if (group) group->lift_limit();
    EXPECT_GT(seen.generation, generation + 1) << "the engine's grant and this one";
    generation = seen.generation;
    cores += take_cores();
  }
  std::printf("%d deaths, %d violations, %zu core dumps", kDeaths, violations, cores);
  std::printf(gate ? "; %d would be violations without the gate\n" : "\n", early);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Death death : {Death::kKill, Death::kSegv, Death::kTerm, Death::kOom}) {
    cases.emplace_back(death, First::kEngine, Form::kAlone);
    for (const Form form : {Form::kInherit, Form::kSupervise}) {
      cases.emplace_back(death, First::kEngine, form);
      cases.emplace_back(death, First::kRank, form);
    }
  }
  for (const Form form : {Form::kInherit, Form::kSupervise}) {
    cases.emplace_back(Death::kKill, First::kAll, form);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, EveryDeath, testing::ValuesIn(all_cases()), name_of);

// The supervisor's death frees the lock while workers that closed it still run: only the gate
// helps.
TEST_F(ResourceSafety, GateHoldsWhenTheSupervisorIsKilled) {
  const base::ByteCount free = wanted();
  for (int i = 0; i < 2 * kDeaths; ++i) {
    EngineProcess engine(under_lock({}, {"workers=1", "close_lock=1"}));
    const test::Talker next({test::kGmsLock, "acquire", "--exec", "--lock", lock_path(), "--id",
                             "next", "--gpu-free", std::to_string(free), "--timeout", "20s", "--",
                             test::kDyingEngine, "report=1"});
    {
      const test::Once once([&] { return test::is_awaited(lock_path()); },
                            [&] { engine.process().signal(SIGKILL); });
    }
    EXPECT_TRUE(cuda::about(std::stoull(next.read_line()), baseline_)) << "at the command's start";
    EXPECT_EQ(next.process().wait(base::Deadline::after(kPatience)), 0);
    ASSERT_EQ(engine.await_end(), 128 + SIGKILL);
  }
}

// The tests above rely on this.
TEST_F(ResourceSafety, MemoryThatOutlivesTheLockIsSeenAndWaitedFor) {
  device::GpuGate gate(wanted(), kDevice);
  EngineProcess engine(under_lock({"--exec"}, {"workers=1", "close_lock=1", "stubborn=1"}));
  const Seen seen = wait_for_death([&] { os::send_signal(engine.engine(), SIGKILL); });
  EXPECT_GT(seen.held_at_grant, 0U);
  EXPECT_GT(seen.held, 0U);
  FlockLock lock(lock_path(), "observer");
  ASSERT_EQ(lock.acquire(base::Deadline::after(kPatience)).outcome, os::LockWait::kLocked);
  EXPECT_EQ(gate.wait(base::Deadline::after(base::Duration::zero()), -1, lost_check(lock)),
            device::GpuGate::Outcome::kDeadline);
  os::send_signal(engine.worker(0), SIGKILL);
  EXPECT_EQ(gate.wait(base::Deadline::after(kPatience), -1, lost_check(lock)),
            device::GpuGate::Outcome::kFree);
  EXPECT_TRUE(cuda::about(used(), baseline_));
  EXPECT_EQ(engine.await_end(), 128 + SIGKILL);
}

}  // namespace
}  // namespace fo::lock
