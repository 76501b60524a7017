// SIGKILL of a lock's holder until what waits for it runs: gms-lock and, beside it in one run,
// flock(1), which blocks too, polls every 50 and 100 ms, and gms-lock with a lock server; once for
// a holder that has no memory to give back and once for one of 2 GiB. The same for the bare wait
// without a program to start: the library beside flock(2). Usage: lock_handover [RUNS]
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "bench.h"
#include "lock/flock_lock.h"
#include "lock/lock_status.h"
#include "os/exec.h"
#include "os/file.h"
#include "os/file_lock.h"
#include "os/process.h"

namespace {

using namespace fo;
using base::Deadline;
using std::chrono::milliseconds;

const std::string kStamp = FO_BUILD_DIR "/tests/lock_stamp";
const std::string kGmsLock = FO_BUILD_DIR "/bin/gms-lock";
const std::string kGmsLockd = FO_BUILD_DIR "/bin/gms-lockd";

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno(errno, "create a pipe");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  std::int64_t read() {
    std::int64_t value = 0;
    if (::read(reader.get(), &value, sizeof value) != sizeof value) {
      throw base::Error(base::ExitStatus::kSoftware, "read from a process: it ended");
    }
    return value;
  }
  base::UniqueFd reader;
  base::UniqueFd writer;
};

void say(int fd, std::int64_t value) {
  if (::write(fd, &value, sizeof value) != sizeof value) ::_exit(1);
}

os::SpawnOptions writing_to(const Pipe& pipe) {
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdout_fd = pipe.writer.get();
  return options;
}

// A forked waiter: says 0 when it is about to wait, and the time when it has the lock, or becomes
// the program that does.
os::Child fork_waiter(const Pipe& pipe, const std::function<void()>& wait, bool run_stamp) {
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  return os::fork_child(
      [&] {
        say(pipe.writer.get(), 0);
        wait();
        if (!run_stamp) {
          say(pipe.writer.get(), now_ns());
          return 0;
        }
        if (::dup2(pipe.writer.get(), STDOUT_FILENO) < 0) return 1;
        os::exec_command({kStamp});
      },
      options);
}

void poll_lock(const std::string& path, milliseconds interval) {
  const base::UniqueFd fd = os::open_file(path, O_RDWR);
  while (!os::try_lock_file(fd.get())) std::this_thread::sleep_for(interval);
  static_cast<void>(::fcntl(fd.get(), F_DUPFD, 3));  // kept until the process ends
}

void await_waiter(const lock::LockUri& uri) {
  while (lock::read_lock_status(uri).waiters.empty()) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(5));
}

using Start = std::function<os::Child(const std::string& path, const Pipe& pipe)>;

// Touches so much memory in small pages.
void touch(base::ByteCount size) {
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) base::throw_errno(errno, "map memory");
  ::madvise(memory, size, MADV_NOHUGEPAGE);
  for (base::ByteCount at = 0; at < size; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
}

// Seconds from the kill to the waiter's word.
double measure(const lock::LockUri& uri, base::ByteCount memory, const Start& start,
               const std::function<void(Pipe& pipe)>& await_wait) {
  Pipe ready;
  const os::Child holder = os::fork_child([&] {
    const auto lock = lock::open_lock(uri, "holder");
    lock->acquire(Deadline::never());
    touch(memory);
    say(ready.writer.get(), 0);
    for (;;) ::pause();
    return 0;
  });
  ready.read();
  Pipe pipe;
  const os::Child waiter = start(uri.path, pipe);
  await_wait(pipe);
  const std::int64_t begin = now_ns();
  holder.signal(SIGKILL);
  std::int64_t end = pipe.read();
  while (end == 0) end = pipe.read();
  static_cast<void>(holder.wait(Deadline::never()));
  static_cast<void>(waiter.wait(Deadline::never()));
  return static_cast<double>(end - begin) / 1e9;
}

class Handover {
 public:
  Handover(std::string folder, std::size_t runs) : folder_(std::move(folder)), runs_(runs) {}

  void with_holders_of(base::ByteCount memory) {
    const lock::LockUri file{lock::LockUri::Kind::kFlock, folder_ + "/lock"};
    std::vector<bench::Contender> programs;
    programs.push_back(blocking("gms-lock acquire --exec", file, memory,
                                gms_lock({"--exec", "--lock", file.path})));
    programs.push_back(
        blocking("flock(1)", file, memory, [](const std::string& path, const Pipe& pipe) {
          return os::spawn({"flock", path, kStamp}, writing_to(pipe));
        }));
    programs.push_back(
        blocking("gms-lock acquire, supervising", file, memory, gms_lock({"--lock", file.path})));
    for (const char* name : {"memory", "disk"}) {
      const lock::LockUri server{lock::LockUri::Kind::kLockd, folder_ + "/" + name + ".sock"};
      programs.push_back(blocking(std::string("  with gms-lockd, state in ") + name, server, memory,
                                  gms_lock({"--lock", "unix:" + server.path})));
    }
    for (const int interval : {50, 100}) programs.push_back(polling(interval, file, memory, true));
    std::vector<bench::Contender> waits;
    waits.push_back(
        blocking("FlockLock::acquire", file, memory, [](const std::string& path, const Pipe& pipe) {
          return fork_waiter(
              pipe,
              [&] {
                static lock::FlockLock waited(path, "bench");
                waited.acquire(Deadline::never());
              },
              false);
        }));
    waits.push_back(
        blocking("flock(2)", file, memory, [](const std::string& path, const Pipe& pipe) {
          return fork_waiter(
              pipe,
              [&] {
                static const base::UniqueFd fd = os::open_file(path, O_RDWR);
                while (::flock(fd.get(), LOCK_EX) != 0) {
                }
              },
              false);
        }));
    waits.push_back(polling(50, file, memory, false));
    bench::take_turns(programs, runs_);
    bench::take_turns(waits, runs_);
    const std::string holder = "SIGKILL of a holder of " + base::format_size(memory) + " -> ";
    bench::print_table(holder + "the waiter's command runs", "us", 1e6, programs);
    bench::print_table(holder + "the waiter has the lock and, ours, has recorded it", "us", 1e6,
                       waits);
  }

 private:
  static Start gms_lock(std::vector<std::string> options) {
    return [options = std::move(options)](const std::string&, const Pipe& pipe) {
      std::vector<std::string> argv{kGmsLock, "acquire", "-q"};
      argv.insert(argv.end(), options.begin(), options.end());
      argv.insert(argv.end(), {"--", kStamp});
      return os::spawn(argv, writing_to(pipe));
    };
  }

  static bench::Contender blocking(const std::string& name, const lock::LockUri& uri,
                                   base::ByteCount memory, const Start& start) {
    return {name, [=] { return measure(uri, memory, start, [&](Pipe&) { await_waiter(uri); }); }};
  }

  // A poll is never seen to wait: each kill comes at another moment of its interval.
  [[nodiscard]] bench::Contender polling(int interval_ms, const lock::LockUri& uri,
                                         base::ByteCount memory, bool run_stamp) const {
    const milliseconds interval(interval_ms);
    const Start start = [=](const std::string& path, const Pipe& pipe) {
      return fork_waiter(
          pipe, [&] { poll_lock(path, interval); }, run_stamp);
    };
    const auto turn = std::make_shared<std::size_t>(0);
    return {"poll every " + std::to_string(interval_ms) + " ms", [=, runs = runs_] {
              const double phase =
                  (static_cast<double>((*turn)++ % runs) + 0.5) / static_cast<double>(runs);
              return measure(uri, memory, start, [&](Pipe& pipe) {
                pipe.read();
                std::this_thread::sleep_for(interval * (2 + phase));
              });
            }};
  }

  std::string folder_;
  std::size_t runs_;
};

os::Child start_lockd(const std::string& socket, const std::string& state) {
  const lock::LockUri uri{lock::LockUri::Kind::kLockd, socket};
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  os::Child server = os::spawn({kGmsLockd, "-q", "--socket", socket, "--state", state}, options);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  for (;;) {
    try {
      lock::find_owner(uri);
      return server;
    } catch (const base::Error&) {
      if (deadline.expired()) throw;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

int run(std::size_t runs) {
  std::string folder = "/tmp/lock-bench.XXXXXX";
  std::string memory = "/dev/shm/lock-bench.XXXXXX";
  for (std::string* made : {&folder, &memory}) {
    if (::mkdtemp(made->data()) == nullptr) base::throw_errno(errno, "create a folder");
  }
  {
    std::vector<os::Child> servers;
    servers.push_back(start_lockd(folder + "/memory.sock", memory + "/state"));
    servers.push_back(start_lockd(folder + "/disk.sock", folder + "/state"));
    Handover handover(folder, runs);
    handover.with_holders_of(0);
    handover.with_holders_of(2 * base::kGiB);
    for (const os::Child& server : servers) {
      server.signal(SIGTERM);
      static_cast<void>(server.wait(Deadline::never()));
    }
  }
  std::filesystem::remove_all(folder);
  std::filesystem::remove_all(memory);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto runs = argc > 1 ? base::parse_uint(argv[1]) : 21;
  if (argc > 2 || !runs || *runs < 1 || *runs > 100000) {
    std::fprintf(stderr, "usage: lock_handover [RUNS]\n");
    return base::to_int(base::ExitStatus::kUsage);
  }
  try {
    return run(*runs);
  } catch (const base::Error& error) {
    std::fprintf(stderr, "lock_handover: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
