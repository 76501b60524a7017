// For tests and measurements: a dying_engine, under gms-lock or on its own, that is ready to die,
// and the wait until none of its processes is left. The caller is a child subreaper, has no other
// children meanwhile, and spawns from its first thread.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "os/process/process_tree.h"

namespace fo::test {

inline const std::string kDyingEngine = FO_BUILD_DIR "/tests/dying_engine";
inline const std::string kGmsLock = FO_BUILD_DIR "/bin/gms-lock";
inline constexpr base::Duration kPatience = std::chrono::seconds(30);

[[noreturn]] inline void give_up(const std::string& what) {
  throw base::Error(base::ExitStatus::kSoftware, what);
}

/// A program whose stdout is read here. It dies with this process.
class Talker {
 public:
  explicit Talker(const std::vector<std::string>& argv) {
    os::Pipe pipe;
    reader_ = std::move(pipe.reader);
    os::SpawnOptions options;
    options.stdout_fd = pipe.writer.get();
    options.parent_death_signal = SIGKILL;
    process_ = std::make_unique<os::Child>(os::spawn(argv, options));
  }

  [[nodiscard]] const os::Child& process() const { return *process_; }

  /// Waits for a line of its output.
  [[nodiscard]] std::string read_line() const {
    const base::Deadline deadline = base::Deadline::after(kPatience);
    std::string line;
    while (!line.ends_with('\n')) {
      pollfd ready{reader_.get(), POLLIN, 0};
      if (::poll(&ready, 1, deadline.poll_timeout()) <= 0) give_up("no word from a program");
      std::array<char, 256> some{};
      const ssize_t got = ::read(reader_.get(), some.data(), some.size());
      if (got <= 0) give_up("a program ended without a word");
      line.append(some.data(), static_cast<std::size_t>(got));
    }
    return line;
  }

 private:
  base::UniqueFd reader_;
  std::unique_ptr<os::Child> process_;
};

class EngineProcess {
 public:
  /// `argv` becomes a dying_engine, which is ready when the constructor returns.
  explicit EngineProcess(const std::vector<std::string>& argv) : talker_(argv) {
    std::istringstream line(talker_.read_line());
    for (pid_t pid = 0; line >> pid;) {
      auto pidfd = os::open_pidfd(pid);
      if (!pidfd) give_up("an engine ended early");
      members_.push_back(std::move(*pidfd));
      pids_.push_back(pid);
    }
  }
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;
  ~EngineProcess() {
    if (ended_) return;
    kill_all();
    process().signal(SIGKILL);
    static_cast<void>(process().wait(base::Deadline::after(kPatience)));
    while (os::reap_any().pid != 0) {
    }
  }

  /// The process that was started: gms-lock, or the engine that it became.
  [[nodiscard]] const os::Child& process() const { return talker_.process(); }
  /// Pidfds of the engine and of its workers.
  [[nodiscard]] int engine() const { return members_.front().get(); }
  [[nodiscard]] int worker(std::size_t i) const { return members_.at(i + 1).get(); }
  /// Kills the engine and its workers at once.
  void kill_all() const {
    for (const base::UniqueFd& member : members_) os::send_signal(member.get(), SIGKILL);
  }

  /// Kills the first worker, and the others while it releases its memory.
  void kill_during_release() const {
    os::send_signal(worker(0), SIGKILL);
    const std::string fds = "/proc/" + std::to_string(pids_.at(1)) + "/fd";
    std::error_code gone;
    while (!gone && !std::filesystem::is_empty(fds, gone)) {
    }
    kill_all();
  }

  /// Waits until all have ended; returns the status of process(). Throws if one of them, or a child
  /// of theirs, still runs.
  int await_end() {
    const base::Deadline deadline = base::Deadline::after(kPatience);
    for (const base::UniqueFd& member : members_) {
      pollfd ended{member.get(), POLLIN, 0};
      if (::poll(&ended, 1, deadline.poll_timeout()) <= 0)
        give_up("a process of a dead engine lives");
    }
    const auto status = process().wait(deadline);
    if (!status) give_up("gms-lock outlives its engine");
    ended_ = true;
    for (;;) {
      const os::Reaped reaped = os::reap_any();
      if (reaped.none_left) return *status;
      if (reaped.pid == 0) give_up("an engine left a process behind");
    }
  }

 private:
  Talker talker_;
  // Pidfds of the engine and its workers.
  std::vector<base::UniqueFd> members_;
  std::vector<pid_t> pids_;
  bool ended_ = false;
};

/// The memory of a simulated device, read faster than by its driver: a locked file is used memory.
class DeviceFiles {
 public:
  /// Opens the files that exist now.
  explicit DeviceFiles(const std::filesystem::path& device) {
    for (const auto& entry : std::filesystem::directory_iterator(device)) {
      if (entry.path().filename() == "book") continue;
      files_.push_back({os::open_file(entry.path(), O_RDONLY), entry.file_size()});
    }
  }

  /// The number of their bytes that any process still uses.
  [[nodiscard]] base::ByteCount held() const {
    base::ByteCount held = 0;
    for (const auto& [fd, size] : files_) {
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        held += size;
      } else {
        ::flock(fd.get(), LOCK_UN);
      }
    }
    return held;
  }

 private:
  std::vector<std::pair<base::UniqueFd, base::ByteCount>> files_;
};

/// Whether a process waits for the flock of the file.
inline bool is_awaited(const std::string& path) {
  const base::UniqueFd fd = os::open_file(path, O_RDONLY);
  return !os::visible_file_locks(os::file_key(fd.get())).waiters.empty();
}

/// Waits on its own thread until `is_true` returns true, and then calls `act`.
class Once {
 public:
  Once(const std::function<bool()>& is_true, const std::function<void()>& act)
      : thread_([is_true, act] {
          const base::Deadline deadline = base::Deadline::after(kPatience);
          while (!is_true() && !deadline.expired()) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
          act();
        }) {}
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;
  ~Once() { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace fo::test
