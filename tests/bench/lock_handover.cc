// SIGKILL of a lock's holder until what waits for it runs: gms-lock and, beside it in one run,
// flock(1), which blocks too, and a poll every 50 ms. The same for the bare wait without a program
// to start: the library beside flock(2). Usage: lock_handover [RUNS]
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "lock/flock_lock.h"
#include "os/exec.h"
#include "os/file.h"
#include "os/file_lock.h"
#include "os/process.h"

namespace {

using namespace fo;
using base::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds kPoll(50);
const std::string kStamp = FO_BUILD_DIR "/tests/lock_stamp";
const std::string kGmsLock = FO_BUILD_DIR "/bin/gms-lock";

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

void poll_lock(const std::string& path) {
  const base::UniqueFd fd = os::open_file(path, O_RDWR);
  while (!os::try_lock_file(fd.get())) std::this_thread::sleep_for(kPoll);
  static_cast<void>(::fcntl(fd.get(), F_DUPFD, 3));  // kept until the process ends
}

using Start = std::function<os::Child(const std::string& path, const Pipe& pipe)>;

// Nanoseconds from the kill to the waiter's word. `polls`: it is never seen to wait, so the kill
// comes at a moment of the poll's interval that `phase` (0 to 1) chooses.
std::int64_t measure(const std::string& path, const Start& start, bool polls, double phase) {
  Pipe ready;
  const os::Child holder = os::fork_child([&] {
    const base::UniqueFd fd = os::open_file(path, O_RDWR | O_CREAT);
    if (!os::try_lock_file(fd.get())) return 1;
    say(ready.writer.get(), 0);
    for (;;) ::pause();
  });
  ready.read();
  Pipe pipe;
  const os::Child waiter = start(path, pipe);
  if (polls) {
    pipe.read();
    std::this_thread::sleep_for(kPoll * (2 + phase));
  } else {
    const base::UniqueFd fd = os::open_file(path, O_RDONLY);
    const os::FileKey key = os::file_key(fd.get());
    while (os::visible_file_locks(key).waiters.empty()) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(5));
  }
  const std::int64_t begin = now_ns();
  holder.signal(SIGKILL);
  std::int64_t end = pipe.read();
  while (end == 0) end = pipe.read();
  static_cast<void>(holder.wait(Deadline::never()));
  static_cast<void>(waiter.wait(Deadline::never()));
  return end - begin;
}

struct Contender {
  std::string name;
  Start start;
  bool polls = false;
  std::vector<std::int64_t> times;
  [[nodiscard]] double median_us() {
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[times.size() / 2]) / 1000;
  }
};

void report(const char* title, std::vector<Contender>& contenders) {
  std::printf("%s\n%-34s %12s %12s %12s %8s\n", title, "", "median us", "least us", "most us",
              "x ours");
  const double ours = contenders.front().median_us();
  for (Contender& contender : contenders) {
    const double median = contender.median_us();
    std::printf("%-34s %12.1f %12.1f %12.1f %8.2f\n", contender.name.c_str(), median,
                static_cast<double>(contender.times.front()) / 1000,
                static_cast<double>(contender.times.back()) / 1000, median / ours);
  }
}

int run(int runs) {
  std::string folder = "/tmp/lock-bench.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) base::throw_errno(errno, "create a folder");
  std::vector<Contender> programs;
  programs.push_back({"gms-lock acquire --exec",
                      [](const std::string& path, const Pipe& pipe) {
                        return os::spawn(
                            {kGmsLock, "acquire", "--exec", "--lock", path, "--", kStamp},
                            writing_to(pipe));
                      },
                      false,
                      {}});
  programs.push_back({"flock(1)",
                      [](const std::string& path, const Pipe& pipe) {
                        return os::spawn({"flock", path, kStamp}, writing_to(pipe));
                      },
                      false,
                      {}});
  programs.push_back({"poll every 50 ms, then exec",
                      [](const std::string& path, const Pipe& pipe) {
                        return fork_waiter(
                            pipe, [&] { poll_lock(path); }, true);
                      },
                      true,
                      {}});
  std::vector<Contender> waits;
  waits.push_back({"FlockLock::acquire",
                   [](const std::string& path, const Pipe& pipe) {
                     return fork_waiter(
                         pipe,
                         [&] {
                           static lock::FlockLock waited(path, "bench");
                           waited.acquire(Deadline::never());
                         },
                         false);
                   },
                   false,
                   {}});
  waits.push_back({"flock(2)",
                   [](const std::string& path, const Pipe& pipe) {
                     return fork_waiter(
                         pipe,
                         [&] {
                           const base::UniqueFd fd = os::open_file(path, O_RDWR);
                           while (::flock(fd.get(), LOCK_EX) != 0) {
                           }
                         },
                         false);
                   },
                   false,
                   {}});
  waits.push_back({"poll every 50 ms",
                   [](const std::string& path, const Pipe& pipe) {
                     return fork_waiter(
                         pipe, [&] { poll_lock(path); }, false);
                   },
                   true,
                   {}});
  for (int i = 0; i < runs; ++i) {
    const double phase = (i + 0.5) / runs;
    for (std::vector<Contender>* group : {&programs, &waits}) {
      for (Contender& contender : *group) {
        contender.times.push_back(
            measure(folder + "/lock", contender.start, contender.polls, phase));
      }
    }
  }
  report("SIGKILL of the holder -> the waiter's command runs", programs);
  report("SIGKILL of the holder -> the waiter has the lock and, ours, has recorded it", waits);
  std::filesystem::remove_all(folder);
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
    return run(static_cast<int>(*runs));
  } catch (const base::Error& error) {
    std::fprintf(stderr, "lock_handover: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
