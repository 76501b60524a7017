// Child processes and pidfds: started, signalled and waited for by descriptor, never by a bare pid.
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

/// pidfd_open(2), CLOEXEC. nullopt when there is no such process; a thread is none.
std::optional<base::UniqueFd> open_pidfd(pid_t pid);

/// pidfd_send_signal(2). False when the process has ended already.
bool send_signal(int pidfd, int signal);

/// process_mrelease(2): takes the memory of a process that was sent SIGKILL back in this thread,
/// beside the process itself, which does it before it closes any descriptor. Where the kernel can't
/// or needs no help, nothing.
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
  /// Reaps the child; nullopt when it still runs at `deadline`.
  [[nodiscard]] std::optional<WaitStatus> wait(const base::Deadline& deadline) const;

 private:
  pid_t pid_;
  base::UniqueFd pidfd_;
};

struct SpawnOptions {
  bool new_process_group = false;
  /// Signal that the child gets when the thread that spawns it ends; 0 for none. Checked against a
  /// parent that died first.
  int parent_death_signal = 0;
  /// Inherited in spite of CLOEXEC, under the same number.
  std::vector<int> keep_fds = {};
  /// Given to the child as stdin, stdout, stderr where >= 0; else ours are inherited.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  /// Set in the child's environment, after ours.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

/// Starts a program (searched in PATH) with signals as restore_signals leaves them. A program that
/// can't be run is an Error(kNotFound) or Error(kCannotRun) here, not a dead child.
Child spawn(const std::vector<std::string>& argv, const SpawnOptions& options = {});

/// Forks a child that runs `body` and exits with what it returns (70 when it throws). For
/// single-threaded callers.
Child fork_child(const std::function<int()>& body, const SpawnOptions& options = {});

/// Orphaned descendants become ours to reap. Throws Error(kOsError).
void become_subreaper();

/// Raises the soft limit on open files to the hard one; returns the limit now in force.
std::size_t raise_fd_limit();

/// What tells two processes with one pid apart: field 22 of /proc/<pid>/stat, in clock ticks since
/// boot. nullopt when the process is not to be seen.
std::optional<std::uint64_t> process_start_time(pid_t pid);

/// The parent's pid, 0 when it is outside this pid namespace. nullopt when the process is not to be
/// seen.
std::optional<pid_t> process_parent(pid_t pid);

/// The inode number of this process's pid namespace.
std::uint64_t own_pid_namespace();

/// What this machine, or this container, calls itself; empty where the kernel does not say.
std::string host_name();

}  // namespace fo::os
