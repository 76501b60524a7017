#include "lock/acquire.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "device/gpu_gate.h"
#include "lock/grant.h"
#include "lock/holder_report.h"
#include "lock/lock_status.h"
#include "lock/status_events.h"
#include "lock/supervise.h"
#include "os/log.h"
#include "os/process/core_dump.h"
#include "os/process/exec.h"
#include "os/process/signals.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::Error;
using base::ExitStatus;

std::vector<std::pair<std::string, std::string>> environment_of(const FailoverLock& lock,
                                                                const Grant& grant) {
  std::vector<std::pair<std::string, std::string>> environment = inheritance_of(lock);
  environment.insert(environment.begin(),
                     {"FAILOVER_GENERATION", std::to_string(grant.generation)});
  return environment;
}

[[noreturn]] void become_command(const FailoverLock& lock, const Grant& grant,
                                 const std::vector<std::string>& command) {
  for (const auto& [name, value] : environment_of(lock, grant)) {
    ::unsetenv(name.c_str());  // so that it comes last and only once
    os::set_environment(name, value);
  }
  os::exec_command(command, lock.fds());
}

// The holder of the first lock that another process holds.
std::string holder_name(const std::vector<LockUri>& locks, const std::string& id) {
  for (const LockUri& lock : locks) {
    try {
      const std::string owner = find_owner(lock, holder_query_timeout(lock)).value_or("");
      if (!owner.empty() && (locks.size() == 1 || owner != id)) return base::quoted(owner);
    } catch (const Error& error) {
      // An unreachable lock service, or a key that no contender made, is the reason itself.
      const bool is_explained =
          error.status() == ExitStatus::kUnavailable || error.status() == ExitStatus::kBadData;
      if (!is_local(lock) && is_explained) throw;
    }
  }
  return "another process";
}

[[noreturn]] void fail_lost(const FailoverLock& lock, const Loss& loss, StatusEvents& events) {
  events.lost(loss);
  throw Error(loss.status, "hold lock " + base::quoted(lock.path()) + ": " + loss.reason);
}

// Holds the lock until stdin ends or a signal arrives.
int hold(FailoverLock& lock, int signal_fd, StatusEvents& events) {
  for (;;) {
    if (const auto loss = lock.check()) fail_lost(lock, *loss, events);
    const FailoverLock::Watch watch = lock.watch();
    std::array<pollfd, 3> ready{
        {{STDIN_FILENO, POLLIN, 0}, {signal_fd, POLLIN, 0}, {watch.fd, watch.events, 0}}};
    if (::poll(ready.data(), ready.size(), watch.at.poll_timeout()) < 0) {
      if (errno == EINTR) continue;
      base::throw_errno(errno, "hold lock " + base::quoted(lock.path()));
    }
    if (ready[1].revents != 0) return base::to_int(ExitStatus::kOk);
    if (ready[0].revents == 0) continue;
    std::array<char, 4096> ignored{};
    const ssize_t got = ::read(STDIN_FILENO, ignored.data(), ignored.size());
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
      return base::to_int(ExitStatus::kOk);
    }
  }
}

// The last check before the lock is used: no signal has arrived, and the lock is held as far as is
// known now. Waits for a server that is unreachable.
os::LockWait confirm(FailoverLock& lock, const base::Deadline& deadline, int signal_fd,
                     StatusEvents& events) {
  for (;;) {
    if (const auto loss = lock.check()) fail_lost(lock, *loss, events);
    const bool sure = lock.is_confirmed();
    const FailoverLock::Watch watch = sure ? FailoverLock::Watch{} : lock.watch();
    std::array<pollfd, 2> ready{{{signal_fd, POLLIN, 0}, {watch.fd, watch.events, 0}}};
    const base::Deadline next =
        sure ? base::Deadline::after(base::Duration::zero()) : watch.at.sooner(deadline);
    if (::poll(ready.data(), ready.size(), next.poll_timeout()) < 0 && errno != EINTR) {
      base::throw_errno(errno, "hold lock " + base::quoted(lock.path()));
    }
    if (ready[0].revents != 0) return os::LockWait::kInterrupted;
    if (sure) return os::LockWait::kLocked;
    if (deadline.expired()) return os::LockWait::kDeadline;
  }
}

// Uses a grant: execs the command, supervises it, or holds the lock.
AcquireEnd use(FailoverLock& lock, const Grant& grant, const AcquireOptions& options, int signal_fd,
               StatusEvents& events, const std::function<void(const Grant&)>& on_held) {
  if (options.exec) become_command(lock, grant, options.command);
  if (!options.command.empty()) {
    const SuperviseOptions supervised{options.command, environment_of(lock, grant), options.grace};
    return {supervise(lock, supervised, events), 0};
  }
  on_held(grant);
  return {hold(lock, signal_fd, events), 0};
}

}  // namespace

AcquireEnd acquire(const AcquireOptions& options,
                   const std::function<void(const Grant&)>& on_held) {
  const std::string what = "acquire lock " + base::quoted(names_of(options.locks));
  for (const LockUri& lock : options.locks) {
    if (options.exec && lock.kind != LockUri::Kind::kFlock) {
      throw Error(ExitStatus::kUsage, what + ": --exec works with a flock only; leave it out");
    }
  }
  StatusEvents events(options.status_fd);
  // The lock is opened first, because its descriptor must have the lowest number.
  const std::unique_ptr<FailoverLock> lock = open_locks(options.locks, options.id, options.fd);
  if (!options.command.empty()) os::limit_core_dumps();
  const sigset_t signals = os::terminating_signals();
  os::block_signals(signals);
  const base::UniqueFd signal_fd = os::open_signal_fd(signals);
  // A signal that arrives with the grant is handled here: the command may be pid 1 and ignore it.
  const auto interrupted = [&]() -> AcquireEnd {
    const int signal = os::read_signal(signal_fd.get());
    if (signal == 0) throw Error(ExitStatus::kOsError, what + ": interrupted without a signal");
    return {0, signal};
  };
  const auto busy = [&](const std::string& reason) -> AcquireEnd {
    os::log(os::LogLevel::kWarning, "{}: {}", what, reason);
    return {options.busy_status, 0};
  };
  std::optional<device::GpuGate> gate;
  if (options.gpu_free) {
    gate.emplace(*options.gpu_free, options.device);
    if (!gate->prepare(signal_fd.get())) return interrupted();
  }
  events.waiting();
  const base::Deadline deadline = base::Deadline::after(options.timeout);
  // The report queries the holder on its own thread and lives until the end of this function, so
  // that a grant does not wait for a lock service that is slow to answer.
  const HolderReport report(options.locks, options.id);
  const FailoverLock::Result result =
      lock->acquire(deadline, signal_fd.get(), {options.warn_after, report});
  if (result.outcome == os::LockWait::kInterrupted) return interrupted();
  if (result.outcome == os::LockWait::kDeadline) {
    return busy("held by " + holder_name(options.locks, options.id));
  }
  events.granted(result.grant);
  if (gate) {
    const base::Deadline::Clock::time_point begin = base::Deadline::Clock::now();
    const auto is_lost = [&] { return lock->check().has_value(); };
    const device::GpuGate::Outcome outcome = gate->wait(deadline, signal_fd.get(), is_lost);
    if (outcome == device::GpuGate::Outcome::kDeadline)
      return busy("released: " + gate->describe());
    if (outcome == device::GpuGate::Outcome::kFree) {
      events.gpu_free(gate->free(), base::Deadline::Clock::now() - begin);
    }
  }
  // This is also done if the gate was interrupted, because confirm() reports the reason.
  switch (confirm(*lock, deadline, signal_fd.get(), events)) {
    case os::LockWait::kLocked:
      return use(*lock, result.grant, options, signal_fd.get(), events, on_held);
    case os::LockWait::kDeadline:
      return busy("released: it could not be confirmed");
    case os::LockWait::kInterrupted:
      break;
  }
  return interrupted();
}

std::string to_json(const Grant& grant) {
  return nlohmann::json{{"id", grant.id},
                        {"generation", grant.generation},
                        {"granted_at", text::format_time(grant.granted_at)},
                        {"waited", base::seconds_of(grant.waited)}}
      .dump();
}

std::string to_text(const Grant& grant) {
  return "id: " + grant.id + "\ngeneration: " + std::to_string(grant.generation) +
         "\ngranted_at: " + text::format_time(grant.granted_at) +
         "\nwaited: " + base::format_duration(grant.waited) + "\n";
}

}  // namespace fo::lock
