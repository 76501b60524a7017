// Child processes and pidfds: processes are started, signalled and waited for by descriptor, never
// by a bare pid.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::os {

/// pidfd_open(2), CLOEXEC. nullopt if there is no such process, or it is a thread.
std::optional<base::UniqueFd> open_pidfd(pid_t pid);

/// pidfd_send_signal(2). False when the process has ended already.
bool send_signal(int pidfd, int signal);

/// process_mrelease(2): frees the memory of a process that was sent SIGKILL from this thread, in
/// parallel to the process itself, which frees it before it closes any descriptor. Does nothing if
/// the kernel does not support it.
void release_memory(int pidfd) noexcept;

/// An exit status as a shell reports it: 0–255, or 128+n for death by signal n.
using WaitStatus = int;

/// A child of this process. Destroying it neither kills nor waits.
class Child {
 public:
  Child(pid_t pid, base::UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable once the child has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  bool signal(int signal) const { return send_signal(pidfd_.get(), signal); }
  /// Reaps the child; nullopt if it still runs at `deadline`.
  [[nodiscard]] std::optional<WaitStatus> wait(const base::Deadline& deadline) const;

 private:
  pid_t pid_;
  base::UniqueFd pidfd_;
};

struct SpawnOptions {
  bool new_process_group = false;
  /// The signal that the child gets when the thread that spawned it ends; 0 for none. A parent that
  /// died before it was set is detected.
  int parent_death_signal = 0;
  /// Inherited despite CLOEXEC, under the same number.
  std::vector<int> keep_fds = {};
  /// The child's stdin, stdout and stderr; a negative value inherits ours.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  /// Added to the child's environment.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

/// Starts a program (searched in PATH) with signals as restore_signals leaves them. Throws
/// Error(kNotFound) or Error(kCannotRun) for a program that cannot be run.
Child spawn(const std::vector<std::string>& argv, const SpawnOptions& options = {});

/// Forks a child that runs `body` and exits with its result (70 if it throws). For single-threaded
/// callers.
Child fork_child(const std::function<int()>& body, const SpawnOptions& options = {});

/// From now on, orphaned descendants are reparented to this process. Throws Error(kOsError).
void become_subreaper();

/// Raises the soft limit on open files to the hard one; returns the limit now in force.
std::size_t raise_fd_limit();

/// Distinguishes two processes with one pid: field 22 of /proc/<pid>/stat, in clock ticks since
/// boot. nullopt if the process is not visible.
std::optional<std::uint64_t> process_start_time(pid_t pid);

/// The parent's pid; 0 if it is outside this pid namespace. nullopt if the process is not visible.
std::optional<pid_t> process_parent(pid_t pid);

/// The inode number of this process's pid namespace.
std::uint64_t own_pid_namespace();

/// The host name of this machine or container; empty if the kernel does not report one.
std::string host_name();

}  // namespace fo::os
