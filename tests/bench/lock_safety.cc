// How often a lock is granted while device memory of the dead engine is still held, and how much:
// gms-lock in its forms, with and without the gate, against other ways to lock. On the simulated
// device, where more pieces of memory take longer to release. Reading the device takes time, too,
// so the shown amounts are lower limits.
// Usage: lock_safety [--json FILE] [--quick] [DEATHS]
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cuda/device_memory.h"
#include "cuda/sim_folder.h"
#include "device/gpu_gate.h"
#include "lock/engine_process.h"
#include "lock/flock/flock_lock.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "report.h"

namespace {

using namespace fo;
using base::Deadline;
using test::EngineProcess;

constexpr base::DeviceOrdinal kDevice(0);
const std::string kPeer = "flock taken by the engine after its device files";

struct Variant {
  std::string name;
  // The program that takes the lock, with its arguments; empty for none.
  std::vector<std::string> wrapper;
  std::vector<std::string> engine;
  std::function<void(const EngineProcess&)> kill;
  bool gated = false;
  bool posix = false;
  // Whether gms-lock guarantees that no memory is held.
  bool is_promised = false;
  // The MiB still held, for each violation.
  std::vector<double> held = {};
};

class Bench {
 public:
  Bench() {
    os::become_subreaper();
    os::raise_fd_limit();
    sim_.set("GMS_SIM_GRANULARITY", "4KiB");
    sim_.set("GMS_SIM_CONTEXT_SIZE", "1MiB");
    sim_.set("GMS_SIM_VRAM", "1GiB");
    sim_.set("GMS_DRIVER", "sim");
    sim_.set("FO_LIBEXEC_DIR", FO_BUILD_DIR "/libexec/fo");
    memory_ = cuda::device_memory(cuda::Driver::open("sim"), kDevice);
    std::ofstream(path_).flush();
    make_variants();
  }

  void run(std::uint64_t deaths, bench::Report& report) {
    device::GpuGate gate(memory_.ask().free, kDevice);
    for (std::uint64_t i = 0; i < deaths; ++i) {
      for (Variant& variant : variants_) die(variant, i, variant.gated ? &gate : nullptr);
    }
    std::printf("device memory of the dead engine still held when its successor starts\n");
    std::printf("%-64s %7s %10s %6s %10s %9s\n", "", "deaths", "violations", "rate", "median MiB",
                "most MiB");
    for (Variant& variant : variants_) {
      std::vector<double>& held = variant.held;
      std::sort(held.begin(), held.end());
      std::printf("%-64s %7llu %10zu %5.1f%%", variant.name.c_str(),
                  static_cast<unsigned long long>(deaths), held.size(),
                  100.0 * static_cast<double>(held.size()) / static_cast<double>(deaths));
      if (held.empty()) {
        std::printf(" %10s %9s\n", "-", "-");
      } else {
        std::printf(" %10.1f %9.1f\n", held[held.size() / 2], held.back());
      }
    }
    report_all(deaths, report);
  }

 private:
  void report_all(std::uint64_t deaths, bench::Report& report) const {
    const auto count = [](const Variant& variant, const std::string& name) {
      return bench::Values{name, {static_cast<double>(variant.held.size())}};
    };
    const auto peer = std::find_if(variants_.begin(), variants_.end(),
                                   [](const Variant& one) { return one.name == kPeer; });
    std::string name;
    for (const Variant& variant : variants_) {
      if (variant.name == kPeer) break;
      name = variant.gated ? name + ", with the gate" : variant.name;
      report.row("Grants while the dead engine's memory is held", "of " + std::to_string(deaths),
                 count(variant, name), count(*peer, "flock after the device files"),
                 variant.is_promised ? bench::value_at_most(0) : bench::Aim{});
    }
  }

  void make_variants() {
    const std::vector<std::string> exec{test::kGmsLock, "acquire", "--lock", path_,
                                        "--id",         "dying",   "--exec", "--"};
    const std::vector<std::string> supervise{test::kGmsLock, "acquire", "--lock", path_, "--id",
                                             "dying",        "--grace", "100ms",  "--"};
    // 32 MiB, in enough pieces to take a while.
    const std::vector<std::string> alone{"pieces=8192", "device=32MiB"};
    const auto and_also = [&alone](std::vector<std::string> more) {
      more.insert(more.begin(), alone.begin(), alone.end());
      return more;
    };
    // The engine itself has little device memory.
    const std::vector<std::string> ranks{"pieces=8", "device=32KiB", "worker_pieces=4096",
                                         "workers=2"};
    std::vector<std::string> one_rank = ranks;
    one_rank.emplace_back("workers=1");
    std::vector<std::string> closing = ranks;
    closing.emplace_back("close_lock=1");
    const auto kill_engine = [](const EngineProcess& engine) {
      os::send_signal(engine.engine(), SIGKILL);
    };
    const auto kill_rank = [](const EngineProcess& engine) {
      os::send_signal(engine.worker(0), SIGKILL);
    };
    const auto kill_all = [](const EngineProcess& engine) { engine.kill_all(); };
    const auto kill_in_turn = [](const EngineProcess& engine) { engine.kill_during_release(); };
    const auto kill_wrapper = [](const EngineProcess& engine) { engine.process().signal(SIGKILL); };
    const auto add = [this](Variant variant) { variants_.push_back(std::move(variant)); };
    const auto promise = [this](Variant variant) {
      variant.is_promised = true;
      variants_.push_back(std::move(variant));
    };
    promise({"gms-lock --exec, one process", exec, alone, kill_engine});
    promise({"gms-lock --exec, ranks inherit, one rank dies first", exec, ranks, kill_rank});
    promise({"gms-lock --exec, ranks inherit, all die at once", exec, ranks, kill_all});
    add({"gms-lock --exec, a rank inherits, the engine dies during its end", exec, one_rank,
         kill_in_turn});
    promise({"  the same, with the gate", exec, one_rank, kill_in_turn, true});
    add({"gms-lock --exec, memory without descriptors", exec, and_also({"mapped_only=1"}),
         kill_engine});
    promise({"  the same, with the gate", exec, and_also({"mapped_only=1"}), kill_engine, true});
    promise({"gms-lock supervising, one rank dies first", supervise, closing, kill_rank});
    promise({"gms-lock supervising, the engine and all ranks die at once", supervise, closing,
             kill_all});
    add({"gms-lock supervising, SIGKILL of gms-lock", supervise, closing, kill_wrapper});
    promise({"  the same, with the gate", supervise, closing, kill_wrapper, true});
    add({kPeer, {}, and_also({"late_lock=" + path_}), kill_engine});
    add({"POSIX lock on the lowest descriptor",
         {},
         and_also({"posix_lock=" + path_}),
         kill_engine,
         false,
         true});
  }

  void die(Variant& variant, std::uint64_t turn, device::GpuGate* gate) const {
    static_cast<void>(memory_.ask());  // the driver frees what dead processes have left
    std::vector<std::string> argv = variant.wrapper;
    argv.push_back(test::kDyingEngine);
    argv.insert(argv.end(), variant.engine.begin(), variant.engine.end());
    // Host memory is released first, so its size decides which of several dying processes is last.
    argv.push_back("host=" + std::to_string(turn % 32) + "MiB");
    EngineProcess engine(argv);
    const test::DeviceFiles files(sim_.device(kDevice.value()));
    const auto kill = [&] { variant.kill(engine); };
    const base::ByteCount held =
        variant.posix ? wait_posix(files, kill) : wait_flock(files, kill, gate);
    static_cast<void>(engine.await_end());
    if (held > 0) {
      variant.held.push_back(static_cast<double>(held) / static_cast<double>(base::kMiB));
    }
  }

  // The memory held at the moment of the grant, before gms-lock has recorded it, or after the gate.
  [[nodiscard]] base::ByteCount wait_flock(const test::DeviceFiles& files,
                                           const std::function<void()>& kill,
                                           device::GpuGate* gate) const {
    const test::Once once([this] { return test::is_awaited(path_); }, kill);
    if (gate == nullptr) {
      const base::UniqueFd fd = os::open_file(path_, O_RDWR);
      if (::flock(fd.get(), LOCK_EX) != 0) base::throw_errno(errno, "wait for a flock");
      return files.held();
    }
    lock::FlockLock lock(path_, "successor");
    const Deadline deadline = Deadline::after(test::kPatience);
    if (lock.acquire(deadline).outcome != os::LockWait::kLocked || gate->wait(deadline, -1, [&] {
          return lock.check().has_value();
        }) != device::GpuGate::Outcome::kFree) {
      test::give_up("the lock never came, or the device was never free");
    }
    return files.held();
  }

  [[nodiscard]] base::ByteCount wait_posix(const test::DeviceFiles& files,
                                           const std::function<void()>& kill) const {
    const base::UniqueFd fd = os::open_file(path_, O_RDWR);
    const std::string inode = ":" + std::to_string(os::file_key(fd.get()).inode) + " ";
    const auto is_awaited = [inode] {
      std::ifstream locks("/proc/locks");
      for (std::string line; std::getline(locks, line);) {
        if (line.find("-> POSIX") != std::string::npos && line.find(inode) != std::string::npos) {
          return true;
        }
      }
      return false;
    };
    const test::Once once(is_awaited, kill);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(fd.get(), F_SETLKW, &lock) != 0) base::throw_errno(errno, "wait for a POSIX lock");
    return files.held();
  }

  cuda::SimFolder sim_;
  cuda::DeviceMemory memory_;
  std::string path_ = sim_.dir() / "lock";
  std::vector<Variant> variants_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run("lock_safety", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      Bench().run(bench::parse_runs(arguments, 20), report);
                    });
}
