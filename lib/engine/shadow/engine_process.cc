#include "engine/shadow/engine_process.h"

#include <fcntl.h>

#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/file/file.h"
#include "os/log.h"
#include "os/process/process_tree.h"
#include "os/socket/server_socket.h"

namespace fo::engine {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

// The pause between two queries of an engine, which reports no change by itself.
constexpr base::Duration kQueryInterval = std::chrono::milliseconds(20);

}  // namespace

EngineProcess::EngineProcess(const ShadowOptions& options, Course& course, loop::Children& children,
                             EngineDriver& driver, DeviceGate& gate, const os::StatusFd& events,
                             std::function<void(os::WaitStatus)> on_end)
    : options_(options),
      course_(course),
      children_(children),
      driver_(driver),
      gate_(gate),
      events_(events),
      on_end_(std::move(on_end)) {}

void EngineProcess::start(const LockHolder* lock) {
  os::SpawnOptions spawn;
  const base::UniqueFd nothing = os::open_file("/dev/null", O_RDONLY);
  spawn.stdin_fd = nothing.get();
  spawn.new_process_group = true;
  if (lock != nullptr) {
    spawn.keep_fds = lock->fds();
    spawn.environment = lock->environment();
  }
  if (options_.engine_port != 0) {
    spawn.environment.emplace_back("DYN_SYSTEM_PORT", std::to_string(options_.engine_port));
  }
  pid_ = children_.start(options_.command, spawn, [this](os::WaitStatus status) { ended(status); });
  events_.write("child_started", R"("pid":)" + std::to_string(pid_));
}

void EngineProcess::ended(os::WaitStatus status) {
  pid_ = 0;
  events_.write("child_ended", R"("status":)" + std::to_string(status));
  course_.changed().notify();
  if (!course_.is_ending() && !is_stopping_) on_end_(status);
}

awaitable<void> EngineProcess::until_healthy(Deadline deadline) {
  std::optional<std::string> reason;
  while (!deadline.expired()) {
    const Deadline answer_by = Deadline::after(options_.health_timeout).sooner(deadline);
    const std::optional<std::string> failure = co_await driver_.check_health(answer_by);
    course_.check();
    if (!failure) co_return;
    // The reason of a query that the deadline interrupted says less than the reason before it.
    if (!reason || !deadline.expired()) reason = failure;
    co_await loop::pause_for(kQueryInterval);
    course_.check();
  }
  throw Error(ExitStatus::kTryAgain, "start the engine: not healthy in time: " +
                                         reason.value_or("its health was not checked"));
}

awaitable<void> EngineProcess::sleep_unmeasured(SleepMode mode) {
  const Deadline deadline = Deadline::after(options_.sleep_timeout);
  co_await driver_.sleep(deadline, mode);
  course_.check();
  events_.write("asleep");
}

awaitable<void> EngineProcess::sleep(SleepMode mode) {
  if (gate_.is_known()) co_return co_await sleep_unmeasured(mode);
  const Deadline turn_by = Deadline::after(options_.sleep_timeout);
  std::function<std::optional<base::UniqueFd>()> wait = [this, turn_by] {
    return os::lock_path(options_.lock.path + ".gate", turn_by, course_.interrupt_fd());
  };
  const auto turn = co_await loop::run_blocking<std::optional<base::UniqueFd>>(std::move(wait));
  course_.check();
  co_await gate_.before_sleep();
  course_.check();
  co_await sleep_unmeasured(mode);
  co_await gate_.after_sleep();
  course_.check();
  if (gate_.is_known()) co_return;
  const bool has_kv_server = co_await gate_.has_kv_server();
  course_.check();
  os::log(os::LogLevel::kWarning, "the engine released no device memory: {}",
          has_kv_server ? "fo-shadow waits only for the memory that the GMS of the KV cache reports"
                        : "fo-shadow waits for no device memory");
}

awaitable<void> EngineProcess::prove(Deadline deadline) {
  std::string reason;
  try {
    co_await driver_.prove(deadline);
    course_.check();
    co_return;
  } catch (const Error& error) {
    // The caller reports the engine's end instead, if that is why it does not answer.
    if (error.status() == ExitStatus::kUnavailable || course_.is_ending()) throw;
    reason = error.what();
  }
  throw Error(ExitStatus::kSoftware, "first generation: " + reason);
}

awaitable<void> EngineProcess::until_idle(Deadline deadline) {
  while (is_running() && course_.urgency() != Urgency::kKill && !deadline.expired()) {
    std::optional<bool> idle;
    try {
      const Deadline answer_by = Deadline::after(options_.health_timeout).sooner(deadline);
      idle = co_await driver_.is_idle(answer_by);
    } catch (const Error& error) {
      os::log(os::LogLevel::kInfo, "drain: {}", error.what());
    }
    if (idle.value_or(true)) co_return;
    co_await loop::pause_for(kQueryInterval);
  }
}

awaitable<void> EngineProcess::stop() {
  is_stopping_ = true;
  const Deadline kill_at = Deadline::after(options_.grace);
  co_await children_.end_all(kill_at);
  is_stopping_ = false;
  course_.changed().notify();
  course_.check();
}

awaitable<void> EngineProcess::end_all(Deadline kill_at) {
  while (is_stopping_) co_await course_.changed().wait();
  co_await children_.end_all(kill_at);
}

void EngineProcess::kill() const {
  if (pid_ == 0) return;
  // The group first, because that needs no descriptor, and clients may use all of them.
  ::kill(-pid_, SIGKILL);
  os::signal_left(SIGKILL);
}

}  // namespace fo::engine
