#include "os/process/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/process/signals.h"

namespace fo::os {
namespace {

using base::throw_errno;
using base::UniqueFd;

// The libc wrappers of these two need glibc 2.36, which would tie our programs to it.
int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
int pidfd_send_signal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}
constexpr auto kPidfd = static_cast<idtype_t>(3);  // P_PIDFD

// Runs first in a new child. False if the parent died before its death signal was set.
bool enter_child(const SpawnOptions& options, pid_t parent) {
  if (options.parent_death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, options.parent_death_signal);
    if (::getppid() != parent) return false;
  }
  if (options.new_process_group) ::setpgid(0, 0);
  return true;
}

Child adopt(pid_t pid, const SpawnOptions& options) {
  // Both sides set the group, so that it is set whichever runs first.
  if (options.new_process_group) ::setpgid(pid, pid);
  UniqueFd pidfd(pidfd_open(pid));
  if (pidfd) return {pid, std::move(pidfd)};
  const int err = errno;
  // The child is not reaped yet, so its pid cannot be reused.
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  throw_errno(err, "open a pidfd for process " + std::to_string(pid));
}

// Puts `fd` where the child expects it; the copy made by dup2 is inherited.
bool redirect(int fd, int target) {
  if (fd < 0) return true;
  if (fd == target) return ::fcntl(fd, F_SETFD, 0) == 0;
  return ::dup2(fd, target) >= 0;
}

// A numeric field of /proc/<pid>/stat, counted from 1 as proc(5) does, from the fourth on.
std::optional<std::uint64_t> stat_field(pid_t pid, int wanted) {
  std::string stat;
  try {
    stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  } catch (const base::Error&) {
    return std::nullopt;
  }
  // The command name, in parentheses, may contain anything; the fields after it cannot.
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < wanted && at != std::string::npos; ++field) {
    at = stat.find(' ', at + 1);
  }
  if (at == std::string::npos) return std::nullopt;
  return base::parse_uint(std::string_view(stat).substr(at + 1, stat.find(' ', at + 1) - at - 1));
}

}  // namespace

std::optional<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd fd(pidfd_open(pid));
  if (fd) return fd;
  // The number may belong to a thread by now: ENOENT, or EINVAL in older kernels.
  if (errno == ESRCH || errno == ENOENT || errno == EINVAL) return std::nullopt;
  throw_errno(errno, "open a pidfd for process " + std::to_string(pid));
}

bool send_signal(int pidfd, int signal) {
  if (pidfd_send_signal(pidfd, signal) == 0) return true;
  if (errno == ESRCH) return false;
  throw_errno(errno, "send signal " + std::to_string(signal));
}

void release_memory(int pidfd) noexcept { ::syscall(SYS_process_mrelease, pidfd, 0); }

std::optional<WaitStatus> Child::wait(const base::Deadline& deadline) const {
  pollfd ready{pidfd_.get(), POLLIN, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, deadline.poll_timeout());
    if (count > 0) break;
    if (count == 0) return std::nullopt;
    if (errno != EINTR) throw_errno(errno, "wait for process " + std::to_string(pid_));
  }
  siginfo_t info{};
  while (::waitid(kPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
    if (errno != EINTR) throw_errno(errno, "wait for process " + std::to_string(pid_));
  }
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

Child spawn(const std::vector<std::string>& argv, const SpawnOptions& options) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::vector<std::string> assignments;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced =
        std::any_of(options.environment.begin(), options.environment.end(), [&](const auto& pair) {
          return text.size() > pair.first.size() && text.starts_with(pair.first) &&
                 text[pair.first.size()] == '=';
        });
    if (!replaced) assignments.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) assignments.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& entry : assignments) environment.push_back(entry.data());
  environment.push_back(nullptr);

  // The child writes its errno here if it fails before or in exec; exec itself closes the pipe.
  auto [reader, writer] = Pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno(errno, "fork");
  if (pid == 0) {
    // Only async-signal-safe calls from here to exec, because the caller may have threads.
    bool ready = enter_child(options, parent) && redirect(options.stdin_fd, STDIN_FILENO) &&
                 redirect(options.stdout_fd, STDOUT_FILENO) &&
                 redirect(options.stderr_fd, STDERR_FILENO);
    for (const int fd : options.keep_fds) ready = ready && ::fcntl(fd, F_SETFD, 0) == 0;
    restore_signals();
    if (ready) ::execvpe(words.front(), words.data(), environment.data());
    const int err = errno;
    [[maybe_unused]] const ssize_t put = ::write(writer.get(), &err, sizeof err);
    ::_exit(127);
  }
  Child child = adopt(pid, options);
  writer.reset();
  int err = 0;
  ssize_t got = 0;
  do {
    got = ::read(reader.get(), &err, sizeof err);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return child;
  static_cast<void>(child.wait(base::Deadline::never()));
  const bool absent = err == ENOENT || err == ENOTDIR;
  throw_errno(err, absent ? base::ExitStatus::kNotFound : base::ExitStatus::kCannotRun,
              "run " + base::quoted(argv.front()));
}

Child fork_child(const std::function<int()>& body, const SpawnOptions& options) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno(errno, "fork");
  if (pid != 0) return adopt(pid, options);
  int status = base::to_int(base::ExitStatus::kSoftware);
  try {
    if (enter_child(options, parent)) status = body();
  } catch (const base::Error& error) {
    log_line(LogLevel::kError, error.what());
    status = base::to_int(error.status());
  } catch (const std::exception& error) {
    log_line(LogLevel::kError, error.what());
  }
  ::_exit(status);
}

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw_errno(errno, "become a child subreaper");
}

std::size_t raise_fd_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) throw_errno(errno, "read the limit on open files");
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
      throw_errno(errno, "raise the limit on open files");
  }
  return limit.rlim_cur;
}

std::optional<std::uint64_t> process_start_time(pid_t pid) { return stat_field(pid, 22); }

std::optional<pid_t> process_parent(pid_t pid) {
  const std::optional<std::uint64_t> parent = stat_field(pid, 4);
  if (!parent) return std::nullopt;
  return static_cast<pid_t>(*parent);
}

std::uint64_t own_pid_namespace() {
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) != 0) throw_errno(errno, "read the pid namespace");
  return info.st_ino;
}

std::string host_name() {
  std::array<char, 65> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace fo::os
