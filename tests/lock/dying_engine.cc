// Plays an engine that dies, for tests of what a death leaves behind: it has device memory, host
// memory and worker processes with the same. Usage: dying_engine [KEY=VALUE]...; the keys are the
// members of Plan. Once all is allocated, it prints one line on stdout, its pid and those of its
// workers, and waits for its end.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cuda/device.h"
#include "cuda/device_memory.h"
#include "cuda/driver_calls.h"
#include "cuda/memory.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/driver.h"

namespace {

using namespace fo;
using base::Error;
using base::ExitStatus;

constexpr base::DeviceOrdinal kDevice(0);

// Sizes are in bytes, booleans are 1 or 0.
struct Plan {
  // The number of pieces that each process allocates on the device, `device` bytes in all. Their
  // release takes longer the more there are.
  std::uint64_t pieces = 128;
  base::ByteCount device = 2 * base::kMiB;
  // The number of a worker's pieces, of the same size; 0: the same number.
  std::uint64_t worker_pieces = 0;
  // Keep only the mappings of the device memory, without a handle.
  std::uint64_t mapped_only = 0;
  // Host memory of the engine; a worker has 1 MiB.
  base::ByteCount host = base::kMiB;
  // The number of additional threads in each process.
  std::uint64_t threads = 2;
  std::uint64_t workers = 0;
  // Do not pass the lock's descriptor on to the workers, like Python's spawn.
  std::uint64_t close_lock = 0;
  // The workers ignore SIGTERM and the end of their engine.
  std::uint64_t stubborn = 0;
  // The folder for a core dump.
  std::string core;
  // Lock this file incorrectly: by flock on a descriptor with a higher number than the device's.
  std::string late_lock;
  // The same with a POSIX lock, on the lowest descriptor.
  std::string posix_lock;
  // Allocate nothing, and print how much of the device all processes together use.
  std::uint64_t report = 0;
  std::uint64_t worker = 0;
};

Plan parse(int argc, char** argv) {
  const std::map<std::string_view, std::uint64_t Plan::*> numbers{
      {"pieces", &Plan::pieces},
      {"device", &Plan::device},
      {"worker_pieces", &Plan::worker_pieces},
      {"mapped_only", &Plan::mapped_only},
      {"host", &Plan::host},
      {"threads", &Plan::threads},
      {"workers", &Plan::workers},
      {"close_lock", &Plan::close_lock},
      {"stubborn", &Plan::stubborn},
      {"report", &Plan::report},
      {"worker", &Plan::worker}};
  const std::map<std::string_view, std::string Plan::*> paths{
      {"core", &Plan::core}, {"late_lock", &Plan::late_lock}, {"posix_lock", &Plan::posix_lock}};
  Plan plan;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string_view key = word.substr(0, word.find('='));
    const std::string_view value = word.substr(std::min(key.size() + 1, word.size()));
    const auto number = base::parse_size(value);
    if (const auto path = paths.find(key); path != paths.end()) {
      plan.*path->second = value;
    } else if (const auto found = numbers.find(key); found != numbers.end() && number) {
      plan.*found->second = *number;
    } else {
      throw Error(ExitStatus::kUsage, "no such word: " + base::quoted(word));
    }
  }
  return plan;
}

class Memory {
 public:
  explicit Memory(const Plan& plan)
      : driver_(cuda::Driver::open(test::driver())),
        context_(cuda::PrimaryContext::retain(driver_, kDevice)),
        host_(plan.host, std::byte{1}) {
    const base::ByteCount unit = cuda::device_info(*driver_, kDevice).granularity;
    const base::ByteCount piece = base::round_up(plan.device / plan.pieces, unit);
    range_ = cuda::AddressRange::reserve(driver_, piece * plan.pieces);
    for (std::uint64_t i = 0; i < plan.pieces; ++i) {
      auto memory = cuda::PhysicalMemory::create(driver_, kDevice, piece);
      mappings_.push_back(cuda::Mapping::map(driver_, range_.address() + i * piece, piece, memory));
      if (plan.mapped_only == 0) pieces_.push_back(std::move(memory));
    }
    set_access(*driver_, range_.address(), range_.size(), kDevice, cuda::Access::kReadWrite);
    cuda::fill(*driver_, range_.address(), std::byte{1}, range_.size());
    cuda::synchronize(*driver_);
  }

 private:
  std::shared_ptr<const cuda::Driver> driver_;
  cuda::PrimaryContext context_;
  cuda::AddressRange range_;
  std::vector<cuda::PhysicalMemory> pieces_;
  std::vector<cuda::Mapping> mappings_;
  std::vector<std::byte> host_;
};

// Allocates host memory until the kernel kills a process, and makes this process the first choice.
void take_all_memory(int) {
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (::write(score, "1000", 4) != 4) ::_exit(1);
  constexpr std::size_t kStep = 1 << 20;
  for (;;) {
    void* pages =
        ::mmap(nullptr, kStep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) ::_exit(1);
    std::memset(pages, 1, kStep);
  }
}

// Undoes the changes of a sanitizer or gms-lock.
void set_dispositions(const Plan& plan) {
  std::signal(SIGSEGV, SIG_DFL);
  std::signal(SIGTERM, plan.worker != 0 && plan.stubborn != 0 ? SIG_IGN : SIG_DFL);
  std::signal(SIGUSR1, take_all_memory);
  if (plan.core.empty()) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_CORE, &limit) != 0 || ::chdir(plan.core.c_str()) != 0) {
    base::throw_errno(errno, "prepare for a core dump in " + base::quoted(plan.core));
  }
}

struct Worker {
  os::Child process;
  // Pipes to its stdin and from its stdout; each process sees the other one's end by them.
  base::UniqueFd leash;
  base::UniqueFd words;
};

Worker start_worker(const Plan& plan) {
  os::Pipe leash;
  os::Pipe words;
  os::SpawnOptions options;
  options.stdin_fd = leash.reader.get();
  options.stdout_fd = words.writer.get();
  const std::uint64_t pieces = plan.worker_pieces == 0 ? plan.pieces : plan.worker_pieces;
  const auto pair = [](const char* key, std::uint64_t value) {
    return std::string(key) + "=" + std::to_string(value);
  };
  os::Child process =
      os::spawn({"/proc/self/exe", "worker=1", pair("pieces", pieces),
                 pair("device", plan.device / plan.pieces * pieces), pair("threads", plan.threads),
                 pair("mapped_only", plan.mapped_only), pair("stubborn", plan.stubborn)},
                options);
  return {std::move(process), std::move(leash.writer), std::move(words.reader)};
}

// Sets CLOEXEC on the lock descriptor that gms-lock has passed on.
void keep_lock_from_workers() {
  const char* text = std::getenv("FAILOVER_LOCK_FD");
  const auto fd = base::parse_uint(text == nullptr ? "" : text);
  if (!fd || ::fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC) != 0) {
    throw Error(ExitStatus::kConfig, "no lock is inherited");
  }
}

base::UniqueFd take_posix_lock(const std::string& path) {
  base::UniqueFd fd = os::open_file(path, O_RDWR | O_CREAT);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_SETLK, &lock) != 0)
    base::throw_errno(errno, "lock " + base::quoted(path));
  return fd;
}

base::UniqueFd take_flock(const std::string& path) {
  base::UniqueFd fd = os::open_file(path, O_RDWR | O_CREAT);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    base::throw_errno(errno, "lock " + base::quoted(path));
  return fd;
}

int report() {
  const auto memory = cuda::device_memory(cuda::Driver::open(test::driver()), kDevice).ask();
  os::write_all(STDOUT_FILENO, std::to_string(memory.total - memory.free) + "\n", "report");
  return 0;
}

// Waits for a signal, or for the end of one of the other processes of this engine.
int wait_for_the_end(const Plan& plan, const std::vector<Worker>& workers) {
  std::vector<pollfd> ends;
  if (plan.worker != 0 && plan.stubborn == 0) ends.push_back({STDIN_FILENO, POLLIN, 0});
  for (const Worker& worker : workers) ends.push_back({worker.words.get(), POLLIN, 0});
  while (::poll(ends.data(), ends.size(), -1) < 0 && errno == EINTR) {
  }
  ::_exit(1);
}

int run(const Plan& plan) {
  if (plan.report != 0) return report();
  set_dispositions(plan);
  os::raise_fd_limit();  // each piece has a descriptor
  base::UniqueFd lock;
  if (!plan.posix_lock.empty()) lock = take_posix_lock(plan.posix_lock);
  const Memory memory(plan);
  for (std::uint64_t i = 0; i < plan.threads; ++i) {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
  }
  if (!plan.late_lock.empty()) lock = take_flock(plan.late_lock);
  if (plan.close_lock != 0) keep_lock_from_workers();
  std::vector<Worker> workers;
  for (std::uint64_t i = 0; i < plan.workers; ++i) workers.push_back(start_worker(plan));
  std::string pids = std::to_string(::getpid());
  for (const Worker& worker : workers) {
    std::array<char, 64> line{};
    if (::read(worker.words.get(), line.data(), line.size()) <= 0) {
      throw Error(ExitStatus::kSoftware, "a worker ended early");
    }
    pids += " " + std::to_string(worker.process.pid());
  }
  os::write_all(STDOUT_FILENO, pids + "\n", "say that all is ready");
  return wait_for_the_end(plan, workers);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const Error& error) {
    std::fprintf(stderr, "dying_engine: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
