// The time from SIGKILL of a lock's holder until the waiter's program runs: for gms-lock, and, in
// the same run, for flock(1), for polls every 50 and 100 ms, and for gms-lock with a lock server;
// once for a holder without memory, once for one with 2 GiB. The same for the wait alone, without a
// program to start: the library against flock(2). And the time from the end of a holder's command
// until the next one runs, for locks across machines, against etcdctl lock.
// Usage: lock_handover [--json FILE] [--quick] [RUNS]
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "etcd/server.h"
#include "lock/flock/flock_lock.h"
#include "lock/lock_status.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/file/pipe.h"
#include "os/process/exec.h"
#include "os/process/process.h"
#include "report.h"
#include "support/ports.h"
#include "support/temp_dir.h"

namespace {

using namespace fo;
using base::Deadline;
using std::chrono::milliseconds;

const std::string kStamp = FO_BUILD_DIR "/tests/lock_stamp";
const std::string kGmsLock = FO_BUILD_DIR "/bin/gms-lock";
const std::string kGmsLockd = FO_BUILD_DIR "/bin/gms-lockd";
const std::string kAcross = "End of the holder's command -> the waiter's runs";

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Pipe : os::Pipe {
  std::int64_t read() {
    std::int64_t value = 0;
    if (::read(reader.get(), &value, sizeof value) != sizeof value) {
      throw base::Error(base::ExitStatus::kSoftware, "read from a process: it ended");
    }
    return value;
  }
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

// A forked waiter: sends 0 before it waits, and then the time when it has the lock, or becomes the
// program that sends it.
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

// Touches this much memory in small pages.
void touch(base::ByteCount size) {
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) base::throw_errno(errno, "map memory");
  ::madvise(memory, size, MADV_NOHUGEPAGE);
  for (base::ByteCount at = 0; at < size; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
}

// The seconds from the kill to the waiter's message.
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
  Handover(std::string folder, std::size_t runs, bench::Report& report)
      : folder_(std::move(folder)), runs_(runs), report_(report) {}

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
    const std::string first = programs.front().name;
    report_.table(holder + "the waiter's command runs", "us", 1e6, programs,
                  {{first, "flock(1)", bench::cost_at_most(1.1)},
                   {first, "poll every 50 ms"},
                   {"gms-lock acquire, supervising", "flock(1)"},
                   {"  with gms-lockd, state in memory", "flock(1)"},
                   {"  with gms-lockd, state in disk", "flock(1)"}});
    // The end of a large process takes longer than any poll's interval.
    const bench::Aim aim = memory == 0 ? bench::speed_at_least(50) : bench::Aim{};
    report_.table(holder + "the waiter has the lock and, ours, has recorded it", "us", 1e6, waits,
                  {{waits[0].name, "flock(2)"}, {waits[0].name, "poll every 50 ms", aim}});
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

  // A waiting poll is not visible, so the kills are spread over its interval.
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
  bench::Report& report_;
};

// --- Locks across machines.

// The seconds from the end of the holder's command until the waiter's command runs. A kill of the
// holder itself would take the length of the lease.
double measure_release(const std::vector<std::string>& wrapper, const std::string& uri) {
  Pipe holding;
  std::vector<std::string> argv = wrapper;
  argv.insert(argv.end(), {std::filesystem::read_symlink("/proc/self/exe"), "hold"});
  // etcdctl prints an error if its command is killed.
  const base::UniqueFd nothing = os::open_file("/dev/null", O_WRONLY);
  os::SpawnOptions quiet = writing_to(holding);
  quiet.stderr_fd = nothing.get();
  // gms-lockd lets processes with the same id share the lock.
  quiet.environment = {{"ENGINE_ID", "1"}};
  const os::Child holder = os::spawn(argv, quiet);
  const auto command = static_cast<pid_t>(holding.read());
  Pipe pipe;
  argv = wrapper;
  argv.push_back(kStamp);
  const os::Child waiter = os::spawn(argv, writing_to(pipe));
  const lock::LockUri lock = lock::parse_lock_uri(uri);
  if (lock.kind == lock::LockUri::Kind::kKube) {
    // A Lease does not show its waiters.
    std::this_thread::sleep_for(milliseconds(200));
  } else {
    await_waiter(lock);
    std::this_thread::sleep_for(milliseconds(20));
  }
  const std::int64_t begin = now_ns();
  ::kill(command, SIGKILL);
  const std::int64_t end = pipe.read();
  static_cast<void>(holder.wait(Deadline::never()));
  static_cast<void>(waiter.wait(Deadline::never()));
  return static_cast<double>(end - begin) / 1e9;
}

// The holder's command, which sends its pid.
int hold() {
  say(STDOUT_FILENO, ::getpid());
  for (;;) ::pause();
}

void await_server(const std::string& uri) {
  const lock::LockUri lock = lock::parse_lock_uri(uri);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (;;) {
    try {
      lock::find_owner(lock);
      return;
    } catch (const base::Error&) {
      if (deadline.expired()) throw;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

os::Child start_server(const std::vector<std::string>& command, const std::string& out) {
  const base::UniqueFd log = os::open_file(out, O_WRONLY | O_CREAT | O_TRUNC);
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdout_fd = log.get();
  options.stderr_fd = log.get();
  return os::spawn(command, options);
}

void end_server(const os::Child& server) {
  server.signal(SIGTERM);
  static_cast<void>(server.wait(Deadline::never()));
}

void across_machines(const std::string& folder, std::size_t runs, bench::Report& report) {
  // env runs it below, and would not report that it is missing.
  const base::UniqueFd nothing = os::open_file("/dev/null", O_WRONLY);
  os::SpawnOptions quiet;
  quiet.stdout_fd = nothing.get();
  static_cast<void>(os::spawn({"etcdctl", "version"}, quiet).wait(Deadline::never()));
  const std::array<test::ReservedPort, 3> ports;
  const std::string etcd = "127.0.0.1:" + std::to_string(ports[0].number());
  const std::string tcp = "127.0.0.1:" + std::to_string(ports[2].number());
  const os::Child etcd_server =
      start_server(test::etcd_command(folder + "/etcd", ports[0].number(), ports[1].number()),
                   folder + "/etcd.log");
  const os::Child lockd = start_server(
      {kGmsLockd, "-q", "--socket", folder + "/both.sock", "--listen", tcp}, folder + "/lockd.log");
  const os::Child kube = start_server({FO_SOURCE_DIR "/bats/kube-api"}, folder + "/kube.log");
  while (test::slurp(folder + "/kube.log").empty()) std::this_thread::sleep_for(milliseconds(5));
  const std::string api =
      "http://127.0.0.1:" + std::to_string(std::stoi(test::slurp(folder + "/kube.log")));
  const std::string key = "etcd:http://" + etcd + "/bench";
  std::vector<std::pair<std::string, std::string>> ours{
      {"gms-lock, etcd:", "etcd:http://" + etcd + "/ours"},
      {"gms-lock, tcp:", "tcp:" + tcp},
      {"gms-lock, k8s: (the tests' stand-in)", "k8s:ns/bench?api=" + api},
      {"gms-lock, unix:", "unix:" + folder + "/both.sock"},
      {"gms-lock, flock:", "flock:" + folder + "/lock"}};
  await_server(key);
  for (const auto& [name, uri] : ours) await_server(uri);
  std::vector<bench::Contender> contenders;
  contenders.push_back({"etcdctl lock", [&] {
                          return measure_release({"env", "ETCDCTL_API=3", "etcdctl",
                                                  "--endpoints=http://" + etcd, "lock", "bench"},
                                                 key);
                        }});
  for (const auto& [name, uri] : ours) {
    contenders.push_back(
        {name, [uri = uri] {
           return measure_release({kGmsLock, "acquire", "-q", "--lock", uri, "--"}, uri);
         }});
  }
  bench::take_turns(contenders, runs);
  std::vector<bench::Comparison> comparisons;
  for (const auto& [name, uri] : ours) comparisons.push_back({name, contenders.front().name});
  report.table(kAcross, "us", 1e6, contenders, comparisons);
  for (const os::Child* server : {&etcd_server, &lockd, &kube}) end_server(*server);
}

os::Child start_lockd(const std::string& socket, const std::string& state) {
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  os::Child server = os::spawn({kGmsLockd, "-q", "--socket", socket, "--state", state}, options);
  await_server("unix:" + socket);
  return server;
}

void run(std::size_t runs, bool quick, bench::Report& report) {
  const test::TempDir folder;
  const test::TempDir memory("/dev/shm");
  {
    std::vector<os::Child> servers;
    servers.push_back(start_lockd(folder.path("memory.sock"), memory.path("state")));
    servers.push_back(start_lockd(folder.path("disk.sock"), folder.path("state")));
    Handover handover(folder.path(), runs, report);
    handover.with_holders_of(0);
    if (!quick) handover.with_holders_of(2 * base::kGiB);
    for (const os::Child& server : servers) end_server(server);
  }
  try {
    across_machines(folder.path(), runs, report);
  } catch (const base::Error& error) {
    if (error.status() != base::ExitStatus::kNotFound) throw;
    report.skip(kAcross, "etcd, etcdctl or python3 is not installed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "hold") return hold();
  return bench::run("lock_handover", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      run(bench::parse_runs(arguments, 21), arguments.quick, report);
                    });
}
