#include "lock/acquire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lock/grant.h"
#include "lock/lock_status.h"
#include "lock/path_watch.h"
#include "lock/status_events.h"
#include "lock/supervise.h"
#include "os/exec.h"
#include "os/file.h"
#include "os/log.h"
#include "os/signals.h"

namespace fo::lock {
namespace {

using base::Error;
using base::ExitStatus;

// The lock that this process was started under would be waited for until this process has ended.
void refuse_own_lock(const std::string& path) {
  const char* text = std::getenv("FAILOVER_LOCK_FD");
  const auto fd = base::parse_uint(text == nullptr ? "" : text);
  struct stat inherited {};
  struct stat wanted {};
  if (fd && *fd <= 1U << 30 && ::fstat(static_cast<int>(*fd), &inherited) == 0 &&
      ::stat(path.c_str(), &wanted) == 0 && inherited.st_dev == wanted.st_dev &&
      inherited.st_ino == wanted.st_ino) {
    throw Error(ExitStatus::kConfig, "acquire lock " + base::quoted(path) +
                                         ": inherited already, on descriptor " + std::string(text));
  }
}

// Headers only: a core dump keeps lock and memory until it is written.
void limit_core_dumps() {
  try {
    const base::UniqueFd fd = os::open_file("/proc/self/coredump_filter", O_WRONLY);
    os::write_all(fd.get(), "0x10", "limit core dumps");
  } catch (const Error& error) {
    os::log(os::LogLevel::kInfo, "{}", error.what());
  }
}

std::vector<std::pair<std::string, std::string>> environment_of(const FailoverLock& lock,
                                                                const Grant& grant) {
  return {{"FAILOVER_GENERATION", std::to_string(grant.generation)},
          {"FAILOVER_LOCK_ID", grant.id},
          {"FAILOVER_LOCK_FD", std::to_string(lock.fd())}};
}

[[noreturn]] void become_command(const FailoverLock& lock, const Grant& grant,
                                 const std::vector<std::string>& command) {
  for (const auto& [name, value] : environment_of(lock, grant)) {
    ::unsetenv(name.c_str());  // so that it comes last, and once
    os::set_environment(name, value);
  }
  const std::array<int, 1> keep{lock.fd()};
  os::exec_command(command, keep);
}

// Until stdin ends or a signal comes.
int hold(const FailoverLock& lock, int signal_fd, StatusEvents& events) {
  const PathWatch watch(lock.path());
  for (;;) {
    if (lock.is_replaced()) {
      events.lost("the lock file was replaced");
      throw Error(ExitStatus::kProtocol,
                  "hold lock " + base::quoted(lock.path()) + ": the file was replaced");
    }
    std::array<pollfd, 3> ready{
        {{STDIN_FILENO, POLLIN, 0}, {signal_fd, POLLIN, 0}, {watch.fd(), POLLIN, 0}}};
    const int timeout = base::Deadline::after(kPathCheckInterval).poll_timeout();
    if (::poll(ready.data(), ready.size(), timeout) < 0 && errno != EINTR) {
      base::throw_errno(errno, "hold lock " + base::quoted(lock.path()));
    }
    watch.drain();
    if (ready[1].revents != 0) return base::to_int(ExitStatus::kOk);
    if (ready[0].revents == 0) continue;
    std::array<char, 4096> ignored{};
    const ssize_t got = ::read(STDIN_FILENO, ignored.data(), ignored.size());
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
      return base::to_int(ExitStatus::kOk);
    }
  }
}

}  // namespace

AcquireEnd acquire(const AcquireOptions& options,
                   const std::function<void(const Grant&)>& on_held) {
  StatusEvents events(options.status_fd);
  refuse_own_lock(options.path);
  // The lock comes first: its descriptor has to be numbered below all others.
  FailoverLock lock(options.path, options.id, options.fd);
  if (!options.command.empty()) limit_core_dumps();
  const sigset_t signals = os::terminating_signals();
  os::block_signals(signals);
  const base::UniqueFd signal_fd = os::open_signal_fd(signals);
  events.waiting();
  const FailoverLock::Result result =
      lock.acquire(base::Deadline::after(options.timeout), signal_fd.get());
  if (result.outcome == os::LockWait::kDeadline) {
    const std::string owner = find_owner(options.path).value_or("");
    os::log(os::LogLevel::kWarning, "acquire lock {}: held by {}", base::quoted(options.path),
            owner.empty() ? "another process" : base::quoted(owner));
    return {options.busy_status, 0};
  }
  // A signal that came with the grant is not left for the command, which may be pid 1 and deaf.
  if (const int signal = os::read_signal(signal_fd.get()); signal != 0) return {0, signal};
  if (result.outcome != os::LockWait::kLocked) {
    throw Error(ExitStatus::kOsError,
                "acquire lock " + base::quoted(options.path) + ": woken for no signal");
  }
  events.granted(result.grant);
  if (options.exec) become_command(lock, result.grant, options.command);
  if (!options.command.empty()) {
    const SuperviseOptions supervised{options.command, environment_of(lock, result.grant),
                                      options.grace};
    return {supervise(lock, supervised, events), 0};
  }
  on_held(result.grant);
  return {hold(lock, signal_fd.get(), events), 0};
}

std::string to_json(const Grant& grant) {
  return nlohmann::json{{"id", grant.id},
                        {"generation", grant.generation},
                        {"granted_at", format_time(grant.granted_at)},
                        {"waited", std::chrono::duration<double>(grant.waited).count()}}
      .dump();
}

std::string to_text(const Grant& grant) {
  return "id: " + grant.id + "\ngeneration: " + std::to_string(grant.generation) +
         "\ngranted_at: " + format_time(grant.granted_at) +
         "\nwaited: " + base::format_duration(grant.waited) + "\n";
}

}  // namespace fo::lock
