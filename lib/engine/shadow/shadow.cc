#include "engine/shadow/shadow.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.h"
#include "engine/device_gate.h"
#include "engine/health.h"
#include "engine/monitor.h"
#include "engine/shadow/course.h"
#include "engine/shadow/ending.h"
#include "engine/shadow/engine_process.h"
#include "engine/shadow/life_record.h"
#include "engine/shadow/lock_holder.h"
#include "engine/shadow/parts.h"
#include "engine/shadow/registration.h"
#include "engine/shadow/status_page.h"
#include "engine/shadow/switchover.h"
#include "engine/status_server.h"
#include "engine/status_socket.h"
#include "lock/failover_lock.h"
#include "lock/holder_report.h"
#include "loop/children.h"
#include "loop/daemon.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "os/process/core_dump.h"
#include "os/process/process.h"
#include "os/socket/status_fd.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using Clock = Deadline::Clock;

// The status server gets an eighth of this process's descriptors, so that the lock, the published
// address and the end have the others.
constexpr std::size_t kFdsPerStatusClient = 16;
// Time for which a killed fo-shadow may keep the lock of its status socket.
constexpr base::Duration kSocketTimeout = std::chrono::seconds(2);

HealthRules rules_with(base::Duration waking_limit) {
  HealthRules rules = health_rules_from_environment();
  rules.waking_limit = waking_limit;
  return rules;
}

http::ServerLimits status_limits_of(std::size_t max_fds) {
  http::ServerLimits limits = status_limits();
  limits.connections =
      std::clamp(max_fds / kFdsPerStatusClient, std::size_t{1}, limits.connections);
  return limits;
}

/// The flow: the steps in an engine's life, one after the other.
class Shadow {
 public:
  /// `lock` was opened before every other descriptor: a dying process closes the lowest last.
  /// nullptr without failover. `max_fds`: how many descriptors this process may have.
  Shadow(const ShadowOptions& options, std::unique_ptr<lock::FailoverLock> lock,
         std::size_t max_fds)
      : options_(options),
        events_(options.status_fd),
        daemon_(loop::Daemon::for_children()),
        course_(io_.get_executor()),
        lock_(lock ? std::make_unique<LockHolder>(
                         io_.get_executor(), course_, std::move(lock),
                         lock::HolderReport(options.locks, options.id), options.warn_after,
                         [this](const lock::Loss& loss) { ending_.lose(loss); },
                         [this](const std::exception_ptr& error) { ending_.fail(error); })
                   : nullptr),
        children_(io_),
        driver_(make_driver(options.driver, children_)),
        gate_(children_, options.devices, options.gpu_free, options.kv),
        engine_(options, course_, children_, *driver_, gate_, events_,
                [this](os::WaitStatus status) { ending_.engine_ended(status); }),
        monitor_(io_.get_executor(), *driver_,
                 {options.health_interval, options.health_timeout, options.prove_interval,
                  options.prove_timeout, options.failures, options.targets}),
        life_(options.id, options.gms, events_, daemon_, rules_with(wake_timeout())),
        gms_(
            io_.get_executor(), options.gms, options.gms_grace,
            [this](std::size_t i, bool up) {
              const GmsPlace& place = options_.gms[i];
              life_.metrics().set_gms_up(place.device, place.tag, up);
            },
            [this](Error error) { ending_.fail(std::move(error)); }),
        registration_(io_.get_executor(), options, max_fds, course_, children_, engine_, events_),
        server_(std::make_unique<StatusServer>(
            io_.get_executor(),
            StatusSource{[this] { return health(); }, [this] { return life_.metrics().text(); },
                         [this] { return status(); }, [this] { return switchover_.request(); }},
            status_limits_of(max_fds))),
        switchover_(options, parts()),
        ending_(io_, events_, options.grace, parts()) {
    if (options.port) {
      port_ = server_->listen(options.host + ":" + std::to_string(*options.port));
    }
    // The child of a killed fo-shadow may hold the socket's lock for a moment, until its exec.
    if (options.failover) {
      server_->listen_unix(status_socket_path(options.lock, options.id),
                           Deadline::after(kSocketTimeout));
    }
  }

  int run() {
    start(daemon_.run([this](loop::Stop) { ending_.request(); }));
    start(live());
    try {
      io_.run();
    } catch (const std::exception& error) {
      // The lock must not be released before the engine has ended.
      os::log(os::LogLevel::kError, "{}", error.what());
      ending_.abort();
    }
    return ending_.result();
  }

 private:
  awaitable<void> live() {
    std::optional<Error> failure;
    try {
      if (options_.failover) {
        co_await stand_by();
        for (;;) {
          co_await become_active();
          co_await switchover_.until_begun();
          co_await switchover_.hand_over();
        }
      }
      co_await serve_alone();
    } catch (const Ended&) {
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure.emplace(ExitStatus::kSoftware, error.what());
    }
    if (!failure) co_return;
    co_await ending_.fail_after_death(std::move(*failure));
  }

  awaitable<void> serve_alone() {
    const Deadline start_by = Deadline::after(options_.start_timeout);
    engine_.start(nullptr);
    co_await engine_.until_healthy(start_by);
    co_await serve(start_by);
    life_.step(LifeEvent::kServing);
    life_.report_ready();
    co_await watch_engine();
  }

  awaitable<void> stand_by() {
    co_await gate_.check();
    course_.check();
    if (!is_cold()) {
      const Deadline start_by = Deadline::after(options_.start_timeout);
      engine_.start(lock_.get());
      co_await engine_.until_healthy(start_by);
      co_await engine_.sleep(SleepMode::kAbort);
      const Deadline learn_by = Deadline::after(options_.remap_timeout);
      co_await gms_.learn(learn_by);
      course_.check();
    }
    life_.step(LifeEvent::kReady);
    life_.report_ready();
  }

  awaitable<void> become_active() {
    events_.write("waiting");
    const lock::FailoverLock::Result result = co_await lock_->acquire();
    course_.check();
    if (result.is_new_file && engine_.is_running()) {
      // The engine would not keep the lock if fo-shadow were killed; only the gate would protect.
      os::log(os::LogLevel::kWarning,
              "lock {}: the file was replaced, and the engine has the old one",
              base::quoted(lock_->path()));
    }
    const auto granted_at = Clock::now();
    life_.begin_failover(result.grant);
    registration_.set_generation(result.grant.generation);
    lock_->watch();
    const Deadline wake_by = Deadline::after(wake_timeout());
    co_await lock_->until_confirmed(wake_by);
    life_.finish_phase(Phase::kLock, granted_at);

    auto begin = Clock::now();
    const bool is_gated = co_await gate_.wait(wake_by);
    course_.check();
    life_.finish_phase(Phase::kGate, begin);
    if (is_gated) events_.write("gpu_free");

    // A cold engine may publish the layouts itself, so they are held once it has started.
    const bool starts = is_cold() && !engine_.is_running();
    if (!starts) co_await hold_layouts(wake_by);

    begin = Clock::now();
    if (starts) {
      engine_.start(lock_.get());
      co_await engine_.until_healthy(wake_by);
    } else {
      co_await driver_->wake(wake_by);
      course_.check();
    }
    life_.finish_phase(Phase::kWake, begin);
    events_.write("awake");
    if (starts) co_await hold_layouts(wake_by);

    begin = Clock::now();
    const Deadline prove_by = Deadline::after(options_.prove_timeout).sooner(wake_by);
    co_await engine_.prove(prove_by);
    life_.finish_phase(Phase::kFirstToken, begin);
    events_.write("first_token");

    co_await lock_->until_confirmed(wake_by);
    begin = Clock::now();
    co_await serve(wake_by);
    life_.finish_phase(Phase::kRegister, begin);
    life_.finish_failover();
    start(keep_watching());
  }

  awaitable<void> hold_layouts(Deadline wake_by) {
    const auto begin = Clock::now();
    const Deadline remap_by = Deadline::after(options_.remap_timeout).sooner(wake_by);
    co_await gms_.hold(remap_by);
    course_.check();
    life_.finish_phase(Phase::kRemap, begin);
    events_.write("checked");
  }

  awaitable<void> serve(Deadline deadline) {
    co_await monitor_.begin();
    course_.check();
    co_await registration_.open(deadline);
  }

  // --- Tasks beside the flow.

  awaitable<void> watch_engine() {
    const std::string failure = co_await monitor_.run();
    course_.check();
    if (!failure.empty()) {
      throw Error(ExitStatus::kUnavailable, "the engine does not serve any more: " + failure);
    }
  }

  awaitable<void> keep_watching() {
    std::optional<Error> failure;
    try {
      co_await watch_engine();
    } catch (const Error& error) {
      failure = error;
    }
    if (failure) co_await ending_.fail_after_death(std::move(*failure));
  }

  // --- Requests of the status server.

  HealthAnswer health() {
    HealthFacts facts;
    monitor_.tell(facts);
    return life_.health(std::move(facts));
  }

  std::string status() {
    return status_json(options_, life_, gms_,
                       {engine_.pid(), port_, switchover_.is_under_way(), gate_.wanted()});
  }

  void start(awaitable<void> task) {
    loop::spawn(io_, std::move(task),
                [this](const std::exception_ptr& error) { ending_.fail(error); });
  }

  Parts parts() { return {course_, lock_, engine_, registration_, monitor_, gms_, life_, server_}; }

  [[nodiscard]] bool is_cold() const { return options_.driver.kind == EngineKind::kCold; }

  [[nodiscard]] base::Duration wake_timeout() const {
    return is_cold() ? options_.wake_timeout + options_.start_timeout : options_.wake_timeout;
  }

  const ShadowOptions& options_;
  os::StatusFd events_;
  loop::Daemon daemon_;
  asio::io_context io_{1};
  Course course_;
  std::unique_ptr<LockHolder> lock_;
  loop::Children children_;
  std::unique_ptr<EngineDriver> driver_;
  DeviceGate gate_;
  EngineProcess engine_;
  Monitor monitor_;
  LifeRecord life_;
  GmsWatch gms_;
  Registration registration_;
  // The port of the status server; 0 without one.
  std::uint16_t port_ = 0;
  std::unique_ptr<StatusServer> server_;
  Switchover switchover_;
  Ending ending_;
};

}  // namespace

int run_shadow(const ShadowOptions& options) {
  os::limit_core_dumps();
  for (const std::string& warning : options.warnings) {
    os::log(os::LogLevel::kWarning, "{}", warning);
  }
  auto lock = options.failover ? lock::open_locks(options.locks, options.id) : nullptr;
  return Shadow(options, std::move(lock), os::raise_fd_limit()).run();
}

}  // namespace fo::engine
