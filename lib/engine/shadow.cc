#include "engine/shadow.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>
#include <csignal>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/device_gate.h"
#include "engine/drivers/engine_api.h"
#include "engine/health.h"
#include "engine/metrics.h"
#include "engine/monitor.h"
#include "engine/pair.h"
#include "engine/publish/control_paths.h"
#include "engine/publish/publisher.h"
#include "engine/state.h"
#include "engine/status_server.h"
#include "engine/status_socket.h"
#include "json/dump.h"
#include "lock/failover_lock.h"
#include "lock/grant.h"
#include "lock/holder_report.h"
#include "lock/lock_status.h"
#include "lock/status_events.h"
#include "loop/blocking.h"
#include "loop/children.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/core_dump.h"
#include "os/file.h"
#include "os/log.h"
#include "os/notify.h"
#include "os/process.h"
#include "os/process_tree.h"
#include "os/server_socket.h"
#include "os/signals.h"
#include "os/status_fd.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using nlohmann::json;
using Clock = Deadline::Clock;

// Between two questions whether the engine is healthy, or idle, or the lock is another's.
constexpr base::Duration kAskAgain = std::chrono::milliseconds(20);
// What an engine that answers no more gets to turn out to be dead.
constexpr base::Duration kTimeToDie = std::chrono::seconds(1);
// After a hand-over, the other engine's to take the lock before we want it again.
constexpr base::Duration kTimeToTake = std::chrono::seconds(10);
// Before a hand-over, for the memory servers to show that they have the layouts.
constexpr base::Duration kTimeToAnswer = std::chrono::seconds(5);
// For a thread that was called back from the lock.
constexpr base::Duration kTimeToReturn = std::chrono::seconds(5);
// For what is left of a fo-shadow that was killed to give up the lock of its status socket.
constexpr base::Duration kTimeToGo = std::chrono::seconds(2);
// Of all descriptors that this process may have, so that clients leave some for the lock and the
// end: two thirds for those of the engine, with four for each, an eighth for those of the status.
constexpr std::size_t kPublishedShare = 6;
constexpr std::size_t kStatusShare = 16;
// For the sockets that the other engine may have left.
constexpr base::Duration kTimeToHandOver = std::chrono::seconds(2);

/// Unwinds the flow once something has ended the engine.
struct Ended {};

/// One that led to where this engine was active.
struct Failover {
  std::uint64_t generation = 0;
  /// In seconds since 1970.
  double active_at = 0;
  std::map<Phase, base::Duration> phases;
};

/// Why and how it ends.
struct Ending {
  int status = 0;
  /// What to throw; nothing for an end that is no failure of ours.
  std::optional<Error> failure;
  /// Asked for: what is in flight may finish.
  bool graceful = false;
  Deadline kill_at = Deadline::never();
};

class Shadow {
 public:
  /// `most_fds`: that this process may have.
  Shadow(const ShadowOptions& options, std::size_t most_fds)
      : options_(options),
        events_(options.status_fd),
        lock_(options.failover ? lock::open_locks(options.locks, options.id) : nullptr),
        holder_report_(options.locks, options.id),
        signals_(open_signals()),
        interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        children_(io_),
        driver_(make_driver(options.driver, children_)),
        gate_(children_, options.devices, options.gpu_free, options.kv),
        monitor_(io_.get_executor(), *driver_,
                 {options.health_interval, options.health_timeout, options.prove_interval,
                  options.prove_timeout, options.failures, options.targets}),
        metrics_(options.id, places_of(options.gms), os::wall_seconds()),
        rules_(health_rules_from_environment()),
        gms_(
            io_.get_executor(), options.gms, options.gms_grace,
            [this](std::size_t i, bool up) {
              const GmsPlace& place = options_.gms[i];
              metrics_.set_gms_up(place.device, place.tag, up);
            },
            [this](Error error) { fail(std::move(error)); }),
        changed_(io_.get_executor()),
        server_(std::make_unique<StatusServer>(
            io_.get_executor(),
            StatusSource{[this] { return health(); }, [this] { return metrics_.text(); },
                         [this] { return status(); }, [this] { return switch_over(); }},
            status_limits_of(most_fds))) {
    if (!interrupt_) base::throw_errno(errno, "create an eventfd");
    rules_.waking_limit = wake_timeout();
    if (!options.publish.empty()) {
      publisher_ = std::make_unique<Publisher>(io_.get_executor(), options.publish,
                                               address_of(options.driver.url),
                                               publisher_limits_of(most_fds), judge_of(options));
    }
    if (options.port) {
      port_ = server_->listen(options.host + ":" + std::to_string(*options.port));
    }
    // A child that was about to be another program dies a moment later than fo-shadow.
    if (options.failover) {
      server_->listen_unix(status_socket_path(options.lock, options.id),
                           Deadline::after(kTimeToGo));
    }
  }

  int run() {
    start(wait_for_signals());
    start(beat());
    start(live());
    try {
      io_.run();
    } catch (const std::exception& error) {
      // The lock must not go before the engine.
      os::log(os::LogLevel::kError, "{}", error.what());
      end_badly();
    }
    if (ending_->failure) throw *std::move(ending_->failure);
    return ending_->status;
  }

 private:
  // --- The flow.

  awaitable<void> live() {
    std::optional<Error> failure;
    try {
      if (options_.failover) {
        co_await stand_by();
        for (;;) {
          co_await become_active();
          co_await hand_over();
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
    co_await fail_after_death(std::move(*failure));
  }

  awaitable<void> serve_alone() {
    const Deadline start_by = Deadline::after(options_.start_timeout);
    start_engine();
    co_await until_healthy(start_by);
    co_await serve(start_by);
    step(LifeEvent::kServing);
    notifier_.ready();
    co_await watch_engine();
  }

  awaitable<void> stand_by() {
    co_await gate_.check();
    check_alive();
    if (!is_cold()) {
      const Deadline start_by = Deadline::after(options_.start_timeout);
      start_engine();
      co_await until_healthy(start_by);
      co_await measured_sleep(SleepMode::kAbort);
      const Deadline learn_by = Deadline::after(options_.remap_timeout);
      co_await gms_.learn(learn_by);
      check_alive();
    }
    step(LifeEvent::kReady);
    notifier_.ready();
  }

  awaitable<void> become_active() {
    events_.write("waiting");
    const lock::FailoverLock::Result result = co_await acquire();
    check_alive();
    if (result.is_new_file && engine_ != 0) {
      // It would not keep the lock if we were killed; the gate is what is left then.
      os::log(os::LogLevel::kWarning,
              "lock {}: the file was replaced, and the engine has the old one",
              base::quoted(lock_->path()));
    }
    grant_ = result.grant;
    phases_.clear();
    const auto granted_at = Clock::now();
    metrics_.set_lock_wait(grant_->waited);
    metrics_.set_generation(grant_->generation);
    events_.write("granted", R"("generation":)" + std::to_string(grant_->generation));
    step(LifeEvent::kGranted);
    start_watching_lock();
    const Deadline wake_by = Deadline::after(wake_timeout());
    co_await until_confirmed(wake_by);
    finish_phase(Phase::kLock, granted_at);

    auto begin = Clock::now();
    const bool gated = co_await gate_.wait(wake_by);
    check_alive();
    finish_phase(Phase::kGate, begin);
    if (gated) events_.write("gpu_free");

    // A cold engine may be the one that publishes.
    const bool starts = is_cold() && engine_ == 0;
    if (!starts) co_await hold_layouts(wake_by);

    begin = Clock::now();
    if (starts) {
      start_engine();
      co_await until_healthy(wake_by);
    } else {
      co_await driver_->wake(wake_by);
      check_alive();
    }
    finish_phase(Phase::kWake, begin);
    events_.write("awake");
    if (starts) co_await hold_layouts(wake_by);

    begin = Clock::now();
    const Deadline prove_by = Deadline::after(options_.prove_timeout).sooner(wake_by);
    co_await prove(prove_by);
    finish_phase(Phase::kFirstToken, begin);
    events_.write("first_token");

    co_await until_confirmed(wake_by);
    begin = Clock::now();
    co_await serve(wake_by);
    finish_phase(Phase::kRegister, begin);
    last_failover_ = Failover{grant_->generation, os::wall_seconds(), phases_};
    step(LifeEvent::kServing);
    notifier_.ready();
    start(keep_watching());
    do {
      while (!switching_) {
        co_await changed_.wait();
        check_alive();
      }
      switching_ = co_await prepare_hand_over();
    } while (!switching_);
  }

  awaitable<void> hold_layouts(Deadline wake_by) {
    const auto begin = Clock::now();
    const Deadline remap_by = Deadline::after(options_.remap_timeout).sooner(wake_by);
    co_await gms_.hold(remap_by);
    check_alive();
    finish_phase(Phase::kRemap, begin);
    events_.write("checked");
  }

  // Up to where nothing can be taken back. False when it goes on as it was: nobody would take over.
  awaitable<bool> prepare_hand_over() {
    os::log(os::LogLevel::kInfo, "handing over");
    co_await deregister();
    check_alive();
    const Deadline drain_by = Deadline::after(options_.drain);
    co_await drain(drain_by, Successor::kFollows);
    check_alive();
    const std::string obstacle = co_await find_obstacle();
    check_alive();
    if (obstacle.empty()) co_return true;
    os::log(os::LogLevel::kWarning, "not handing over: {}", obstacle);
    if (publisher_) publisher_->resume();
    co_await enroll();
    co_return false;
  }

  // Why nobody could take over now; empty where somebody can.
  awaitable<std::string> find_obstacle() {
    const bool can_be_taken = co_await somebody_stands_by(options_.lock, options_.id);
    if (!can_be_taken) co_return "no other engine is on standby";
    if (!lock_->is_confirmed()) co_return "the lock server is unreachable";
    try {
      const Deadline answer_by = Deadline::after(kTimeToAnswer);
      co_await gms_.check(answer_by);
    } catch (const Error& error) {
      co_return error.what();
    }
    co_return "";
  }

  // The planned way: nothing is lost on it.
  awaitable<void> hand_over() {
    co_await monitor_.stop();
    check_alive();
    if (is_cold()) {
      co_await stop_engine();
      gms_.forget();
    } else {
      co_await measured_sleep(SleepMode::kFinish);
    }
    gms_.let_go();
    co_await until_confirmed(Deadline::after(options_.wake_timeout));
    // What it waits for is a copy of a descriptor, and an open connection to a server is the lock.
    lock_watch_.emit(asio::cancellation_type::terminal);
    while (watching_lock_) co_await changed_.wait();
    check_alive();
    // A keeper across a network takes its time.
    std::function<bool()> release = [this] {
      lock_->release();
      return true;
    };
    co_await loop::run_blocking<bool>(std::move(release));
    check_alive();
    grant_.reset();
    serving_ = false;
    events_.write("released");
    step(LifeEvent::kHandedOver);
    if (publisher_) {
      left_ = publisher_->take();
      start(offer());
    }
    const Deadline taken_by = Deadline::after(kTimeToTake);
    while (!taken_by.expired()) {
      std::function<std::optional<std::string>()> ask = [lock = options_.lock] {
        try {
          return lock::find_owner(lock, lock::kGlanceTime);
        } catch (const Error&) {  // a server that is not there now
          return std::optional<std::string>();
        }
      };
      const auto owner = co_await loop::run_blocking<std::optional<std::string>>(std::move(ask));
      check_alive();
      if (owner.value_or(options_.id) != options_.id) break;
      if (!owner) {
        const bool may_be_taken = co_await somebody_stands_by(options_.lock, options_.id);
        check_alive();
        if (!may_be_taken) break;
      }
      co_await loop::pause_for(kAskAgain);
      check_alive();
    }
    switching_ = false;
  }

  // --- Its steps.

  void start_engine() {
    os::SpawnOptions spawn;
    const base::UniqueFd nothing = os::open_file("/dev/null", O_RDONLY);
    spawn.stdin_fd = nothing.get();
    spawn.new_process_group = true;
    if (lock_) {
      spawn.keep_fds = lock_->fds();
      spawn.environment = lock::inheritance_of(*lock_);
    }
    if (options_.engine_port != 0) {
      spawn.environment.emplace_back("DYN_SYSTEM_PORT", std::to_string(options_.engine_port));
    }
    engine_ = children_.start(options_.command, spawn, [this](os::WaitStatus status) {
      engine_ = 0;
      engine_ended(status);
    });
    events_.write("child_started", R"("pid":)" + std::to_string(engine_));
  }

  void engine_ended(os::WaitStatus status) {
    events_.write("child_ended", R"("status":)" + std::to_string(status));
    changed_.notify();
    if (ending_ || stopping_engine_) return;
    os::log(os::LogLevel::kError, "the engine ended with status {}, while {}", status,
            state_name(state_));
    // Its other processes have nobody left to end them properly.
    end({status, std::nullopt, false, Deadline::after(base::Duration::zero())});
  }

  awaitable<void> until_healthy(Deadline deadline) {
    std::optional<std::string> reason;
    while (!deadline.expired()) {
      const Deadline answer_by = Deadline::after(options_.health_timeout).sooner(deadline);
      const std::optional<std::string> trouble = co_await driver_->check_health(answer_by);
      check_alive();
      if (!trouble) co_return;
      // A question that the deadline cut off tells less than one before.
      if (!reason || !deadline.expired()) reason = trouble;
      co_await loop::pause_for(kAskAgain);
      check_alive();
    }
    throw Error(ExitStatus::kTryAgain, "start the engine: not healthy in time: " +
                                           reason.value_or("its health was not checked"));
  }

  awaitable<void> put_to_sleep(SleepMode mode) {
    const Deadline deadline = Deadline::after(options_.sleep_timeout);
    co_await driver_->sleep(deadline, mode);
    check_alive();
    events_.write("asleep");
  }

  // With what it gives back on the way. Two engines that do so at once would count each other's.
  awaitable<void> measured_sleep(SleepMode mode) {
    if (gate_.is_known()) co_return co_await put_to_sleep(mode);
    const Deadline turn_by = Deadline::after(options_.sleep_timeout);
    std::function<std::optional<base::UniqueFd>()> wait = [this, turn_by] {
      return os::lock_path(gate_path(), turn_by, interrupt_.get());
    };
    const auto turn = co_await loop::run_blocking<std::optional<base::UniqueFd>>(std::move(wait));
    check_alive();
    co_await gate_.before_sleep();
    check_alive();
    co_await put_to_sleep(mode);
    co_await gate_.after_sleep();
    check_alive();
    if (gate_.is_known()) co_return;
    const bool has_kv_server = co_await gate_.has_kv_server();
    check_alive();
    os::log(os::LogLevel::kWarning, "the engine released no device memory: {}",
            has_kv_server ? "only the memory that the GMS of the KV cache reports is waited for"
                          : "no device memory is waited for");
  }

  [[nodiscard]] std::string gate_path() const { return options_.lock.path + ".gate"; }

  // All of it, on purpose, and we live on.
  awaitable<void> stop_engine() {
    stopping_engine_ = true;
    const Deadline kill_at = Deadline::after(options_.grace);
    co_await children_.end_all(kill_at);
    stopping_engine_ = false;
    check_alive();
  }

  awaitable<lock::FailoverLock::Result> acquire() {
    std::function<lock::FailoverLock::Result()> body = [this] {
      const os::Reminder reminder{options_.warn_after, holder_report_};
      return lock_->acquire(Deadline::never(), interrupt_.get(), reminder);
    };
    acquiring_ = true;
    std::exception_ptr failure;
    lock::FailoverLock::Result result;
    try {
      result = co_await loop::run_blocking<lock::FailoverLock::Result>(std::move(body));
    } catch (...) {
      failure = std::current_exception();
    }
    acquiring_ = false;
    changed_.notify();
    if (failure) std::rethrow_exception(failure);
    co_return result;
  }

  // A lock whose server is away is no time to begin anything.
  awaitable<void> until_confirmed(Deadline deadline) {
    while (!lock_->is_confirmed()) {
      if (deadline.expired()) {
        throw Error(ExitStatus::kTryAgain, "hold lock " + base::quoted(lock_->path()) +
                                               ": it could not be confirmed in time");
      }
      co_await changed_.wait(deadline);
      check_alive();
    }
  }

  awaitable<void> prove(Deadline deadline) {
    std::string reason;
    try {
      co_await driver_->prove(deadline);
      check_alive();
      co_return;
    } catch (const Error& error) {
      // The engine's end is told as such.
      if (error.status() == ExitStatus::kUnavailable || ending_) throw;
      reason = error.what();
    }
    throw Error(ExitStatus::kSoftware, "first generation: " + reason);
  }

  // Open to the world: published and registered.
  awaitable<void> serve(Deadline deadline) {
    serving_ = true;
    co_await monitor_.begin();
    check_alive();
    if (publisher_) {
      PublishedSockets inherited;
      if (options_.failover) {
        inherited = co_await inherit(deadline);
        check_alive();
      }
      publisher_->start(std::move(inherited));
    }
    co_await enroll();
  }

  awaitable<void> enroll() {
    if (options_.register_command.empty()) co_return;
    registered_ = true;
    const std::string trouble = co_await run_command(options_.register_command);
    check_alive();
    if (!trouble.empty()) throw Error(ExitStatus::kUnavailable, "register: " + trouble);
    events_.write("registered");
  }

  // What the engine before us left. One that can't give it now may be able to in a moment.
  awaitable<PublishedSockets> inherit(Deadline deadline) {
    for (;;) {
      try {
        const Deadline answer_by = Deadline::after(kTimeToHandOver).sooner(deadline);
        std::string path = handover_path(options_.lock);
        co_return co_await take_sockets(std::move(path), answer_by);
      } catch (const Error& error) {
        if (deadline.expired() || ending_) throw;
        os::log(os::LogLevel::kWarning, "{}", error.what());
      }
      co_await loop::pause_for(kAskAgain);
    }
  }

  awaitable<void> deregister() {
    if (!registered_) co_return;
    registered_ = false;
    if (options_.deregister_command.empty()) co_return;
    const std::string trouble = co_await run_command(options_.deregister_command);
    if (!trouble.empty()) os::log(os::LogLevel::kError, "deregister: {}", trouble);
    events_.write("deregistered");
  }

  // What went wrong; nothing where all is well.
  awaitable<std::string> run_command(std::string command) {
    std::vector<std::string> argv{"sh", "-c", std::move(command)};
    std::vector<std::pair<std::string, std::string>> environment{
        {"FAILOVER_LOCK_ID", options_.id},
        {"FAILOVER_GENERATION", std::to_string(grant_ ? grant_->generation : 0)},
        {"FO_ENGINE_URL", options_.driver.url},
        {"FO_PUBLISH", options_.publish}};
    const Deadline deadline = Deadline::after(options_.register_timeout);
    std::string reason;
    ++commands_;
    try {
      const auto result =
          co_await children_.run_captured(std::move(argv), deadline, std::move(environment));
      if (!result) {
        reason = "not done within " + base::format_duration(options_.register_timeout);
      } else if (result->status != 0) {
        const std::string words = last_line(result->err);
        reason = "status " + std::to_string(result->status) + (words.empty() ? "" : ": " + words);
      }
    } catch (const Error& error) {
      reason = error.what();
    }
    --commands_;
    changed_.notify();
    co_return reason;
  }

  // Until nothing is in flight, as far as can be told.
  awaitable<void> drain(Deadline deadline, Successor successor) {
    if (publisher_) {
      const bool drained = co_await publisher_->drain(deadline, successor);
      if (!drained) os::log(os::LogLevel::kWarning, "drain: requests were cut at the deadline");
    }
    while (engine_ != 0 && !hurry_ && !deadline.expired()) {
      std::optional<bool> idle;
      try {
        const Deadline answer_by = Deadline::after(options_.health_timeout).sooner(deadline);
        idle = co_await driver_->is_idle(answer_by);
      } catch (const Error& error) {
        os::log(os::LogLevel::kInfo, "drain: {}", error.what());
      }
      if (idle.value_or(true)) break;
      co_await loop::pause_for(kAskAgain);
    }
  }

  // Until somebody takes them, which may be we ourselves.
  awaitable<void> offer() {
    offering_ = true;
    try {
      std::string path = handover_path(options_.lock);
      co_await offer_sockets(std::move(path), left_, Deadline::never());
    } catch (const Error& error) {
      os::log(os::LogLevel::kError, "hand the published sockets over: {}", error.what());
    }
    left_ = {};
    offering_ = false;
    changed_.notify();
  }

  // --- What goes on beside it.

  void start_watching_lock() {
    watching_lock_ = true;
    asio::co_spawn(
        io_, watch_lock(),
        asio::bind_cancellation_slot(lock_watch_.slot(), [this](const std::exception_ptr& error) {
          watching_lock_ = false;
          changed_.notify();
          end_task(error);
        }));
  }

  awaitable<void> watch_lock() {
    for (;;) {
      const std::optional<lock::Loss> loss = lock_->check();
      if (loss) lose(*loss);
      changed_.notify();
      lock::FailoverLock::Watch wait;
      try {
        wait = lock_->watch();
      } catch (const Error&) {  // no descriptor is left for it
        wait.at = Deadline::after(kAskAgain);
      }
      // Where there is time left there may be less of it soon.
      if (loss && (loss->end_by.expired() || (wait.fd < 0 && wait.at.is_never()))) co_return;
      co_await loop::until_ready(wait.fd, wait.events, wait.at);
      const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
      if (state.cancelled() != asio::cancellation_type::none) co_return;
    }
  }

  awaitable<void> watch_engine() {
    const std::string trouble = co_await monitor_.run();
    check_alive();
    if (!trouble.empty()) {
      throw Error(ExitStatus::kUnavailable, "the engine does not serve any more: " + trouble);
    }
  }

  awaitable<void> keep_watching() {
    std::optional<Error> failure;
    try {
      co_await watch_engine();
    } catch (const Ended&) {
    } catch (const Error& error) {
      failure = error;
    }
    if (failure) co_await fail_after_death(std::move(*failure));
  }

  awaitable<void> wait_for_signals() {
    for (;;) {
      co_await loop::until_ready(signals_.get(), POLLIN, Deadline::never());
      while (const int signal = os::read_signal(signals_.get())) {
        os::log(os::LogLevel::kInfo, "signal {}: ending", signal);
        if (ending_) {
          kill_all();
        } else {
          end({0, std::nullopt, true, Deadline::never()});
        }
      }
    }
  }

  // For a service manager that wants to know that this loop goes on.
  awaitable<void> beat() {
    const std::optional<base::Duration> interval = notifier_.watchdog_interval();
    while (interval) {
      notifier_.alive();
      co_await loop::pause_for(*interval);
    }
  }

  // --- The end.

  void fail(Error error) {
    const int status = base::to_int(error.status());
    end({status, std::move(error), false, Deadline::never()});
  }

  // An engine that died tells more than that it does not answer.
  awaitable<void> fail_after_death(Error failure) {
    const Deadline patience = Deadline::after(kTimeToDie);
    while (failure.status() == ExitStatus::kUnavailable && engine_ != 0 && !ending_ &&
           !patience.expired()) {
      co_await changed_.wait(patience);
    }
    fail(std::move(failure));
  }

  void lose(const lock::Loss& loss) {
    // Another may be active already: nothing comes before that.
    if (loss.end_by.expired()) kill_engine();
    // It may turn out later for how long another was active.
    const bool is_worse = loss.overlap > overlap_;
    if (lost_ && !is_worse) return;
    const bool is_known = std::exchange(lost_, true);
    overlap_ = loss.overlap;
    events_.write("lost", R"("reason":)" + fo::json::dump(loss.reason) + R"(,"overlap":)" +
                              lock::overlap_json(loss));
    if (is_known) return;
    if (ending_) return kill_all();
    Error error(loss.status, "hold lock " + base::quoted(lock_->path()) + ": " + loss.reason);
    end({base::to_int(loss.status), std::move(error), false, loss.end_by});
  }

  // With what it started. Its group first: that takes no descriptor, and clients may have all.
  void kill_engine() const {
    if (engine_ == 0) return;
    ::kill(-engine_, SIGKILL);
    os::signal_left(SIGKILL);
  }

  // Nothing is waited for any more.
  void kill_all() {
    publisher_.reset();
    if (!std::exchange(hurry_, true)) start(keep_killing());
    changed_.notify();
  }

  awaitable<void> keep_killing() {
    for (;;) {
      os::signal_left(SIGKILL);
      co_await loop::pause_for(os::kAgainAfter);
    }
  }

  void end(Ending ending) {
    if (ending_) return;
    ending_ = std::move(ending);
    notifier_.stopping();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(interrupt_.get(), &one, sizeof one);
    changed_.notify();
    asio::co_spawn(io_, finish(), [this](const std::exception_ptr& error) {
      if (error) end_badly();
    });
  }

  // Whatever went wrong at the end, nothing of ours lives on.
  [[noreturn]] void end_badly() {
    os::log(os::LogLevel::kError, "killing the engine's remaining processes");
    publisher_.reset();
    kill_engine();
    const Deadline patience = Deadline::after(options_.grace);
    for (os::Reaped dead; !dead.none_left && !patience.expired();) {
      os::signal_left(SIGKILL);
      std::this_thread::sleep_for(os::kAgainAfter);
      while ((dead = os::reap_any()).pid != 0) continue;
    }
    ::_exit(base::to_int(ExitStatus::kSoftware));
  }

  // What others see goes first, then the engine, and the lock last.
  awaitable<void> finish() {
    const Ending& ending = *ending_;
    if (!ending.graceful) publisher_.reset();
    monitor_.cease();
    // A lock that another may have, and what a dead engine left behind, wait for no command.
    if (lost_ || (engine_ == 0 && !ending.graceful)) co_await end_engine();
    // One that is under way has its own limit.
    while (commands_ > 0) co_await changed_.wait();
    co_await deregister();
    const Deadline drain_by = Deadline::after(options_.drain);
    if (ending.graceful && serving_) co_await drain(drain_by, Successor::kNone);
    while (ending.graceful && offering_ && !hurry_ && !drain_by.expired()) {
      co_await changed_.wait(drain_by);
    }
    publisher_.reset();
    step(LifeEvent::kEnded);
    server_.reset();
    co_await end_engine();
    gms_.let_go();
    // A thread may sit in it, and can't be called back where its file system hangs.
    const Deadline back_by = Deadline::after(kTimeToReturn);
    while (acquiring_ && !back_by.expired()) co_await changed_.wait(back_by);
    if (acquiring_) {
      os::log(os::LogLevel::kError, "the lock's file system does not answer");
      if (ending.failure) os::log(os::LogLevel::kError, "{}", ending.failure->what());
      tell_end();
      ::_exit(ending.status);
    }
    lock_watch_.emit(asio::cancellation_type::terminal);
    while (watching_lock_) co_await changed_.wait();
    lock_.reset();
    tell_end();
    io_.stop();
  }

  void tell_end() { events_.write("ended", R"("status":)" + std::to_string(ending_->status)); }

  awaitable<void> end_engine() {
    const Deadline grace = Deadline::after(hurry_ ? base::Duration::zero() : options_.grace);
    const Deadline kill_at = ending_->kill_at.sooner(grace);
    while (stopping_engine_) co_await loop::pause_for(kAskAgain);
    co_await children_.end_all(kill_at);
  }

  // --- What is told.

  void step(LifeEvent event) {
    const std::optional<EngineState> next = next_state(state_, event);
    if (!next) {
      throw Error(ExitStatus::kSoftware,
                  "internal error: event " + std::to_string(static_cast<int>(event)) +
                      " is not valid in state " + base::quoted(state_name(state_)));
    }
    metrics_.enter(state_, *next, os::wall_seconds());
    os::log(os::LogLevel::kInfo, "{} -> {}", state_name(state_), state_name(*next));
    state_ = *next;
    since_ = os::wall_seconds();
    entered_ = Clock::now();
    events_.write("state", R"("state":")" + std::string(state_name(state_)) + "\"");
    notifier_.status(std::string(state_name(state_)));
  }

  void finish_phase(Phase phase, Clock::time_point begin) {
    const base::Duration took = Clock::now() - begin;
    phases_[phase] = took;
    metrics_.observe(phase, took);
  }

  HealthAnswer health() {
    HealthFacts facts;
    facts.state = state_;
    facts.in_state = Clock::now() - entered_;
    facts.since = since_;
    monitor_.tell(facts);
    return answer_health(rules_, facts);
  }

  std::string status() {
    json object{
        {"id", options_.id},       {"state", state_name(state_)}, {"since", since_},
        {"pid", ::getpid()},       {"engine_pid", nullptr},       {"generation", nullptr},
        {"switching", switching_}, {"url", options_.driver.url},  {"publish", nullptr},
        {"port", nullptr},         {"gms", json::array()},        {"last_failover", nullptr}};
    object["gpu_free"] = gate_.wanted();
    if (port_ != 0) object["port"] = port_;
    if (engine_ != 0) object["engine_pid"] = engine_;
    if (grant_) object["generation"] = grant_->generation;
    if (!options_.publish.empty()) object["publish"] = options_.publish;
    for (std::size_t i = 0; i < options_.gms.size(); ++i) {
      const GmsPlace& place = options_.gms[i];
      object["gms"].push_back({{"socket", place.socket},
                               {"device", place.device},
                               {"tag", place.tag},
                               {"connected", gms_.is_up(i)},
                               {"memory_layout_hash", gms_.layout_hash(i)}});
    }
    if (last_failover_) {
      json phases = json::object();
      for (const auto& [phase, took] : last_failover_->phases) {
        phases[std::string(phase_name(phase))] = std::chrono::duration<double>(took).count();
      }
      object["last_failover"] = {{"generation", last_failover_->generation},
                                 {"active_at", last_failover_->active_at},
                                 {"phases", std::move(phases)}};
    }
    return fo::json::dump(object);
  }

  awaitable<std::string> switch_over() {
    const auto refuse = [](const std::string& why) {
      throw Error(ExitStatus::kTryAgain, "switch over: " + why);
    };
    const auto check = [&] {
      if (ending_ || switching_ || state_ != EngineState::kActive) {
        refuse(base::quoted(options_.id) + " is " +
               (switching_ ? "handing over already" : std::string(state_name(state_))));
      }
    };
    check();
    const std::string obstacle = co_await find_obstacle();
    check();
    if (!obstacle.empty()) refuse(obstacle);
    switching_ = true;
    changed_.notify();
    co_return fo::json::dump({{"id", options_.id}, {"generation", grant_->generation}});
  }

  // --- Small change.

  void check_alive() const {
    if (ending_) throw Ended{};
  }

  [[nodiscard]] bool is_cold() const { return options_.driver.kind == EngineKind::kCold; }

  [[nodiscard]] base::Duration wake_timeout() const {
    return is_cold() ? options_.wake_timeout + options_.start_timeout : options_.wake_timeout;
  }

  void start(awaitable<void> task) {
    asio::co_spawn(io_, std::move(task),
                   [this](const std::exception_ptr& error) { end_task(error); });
  }

  void end_task(const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      fail(known);
    } catch (const std::exception& other) {
      fail(Error(ExitStatus::kSoftware, other.what()));
    }
  }

  static base::UniqueFd open_signals() {
    const sigset_t ends = os::signal_set({SIGTERM, SIGINT, SIGHUP, SIGQUIT});
    sigset_t blocked = ends;
    sigaddset(&blocked, SIGCHLD);
    os::block_signals(blocked);
    return os::open_signal_fd(ends);
  }

  static std::vector<std::pair<int, std::string>> places_of(const std::vector<GmsPlace>& gms) {
    std::vector<std::pair<int, std::string>> places;
    for (const GmsPlace& place : gms) places.emplace_back(place.device, place.tag);
    return places;
  }

  static http::ServerLimits status_limits_of(std::size_t most_fds) {
    http::ServerLimits limits = status_limits();
    limits.connections = std::clamp(most_fds / kStatusShare, std::size_t{1}, limits.connections);
    return limits;
  }

  static PublisherLimits publisher_limits_of(std::size_t most_fds) {
    PublisherLimits limits;
    limits.connections = std::clamp(most_fds / kPublishedShare, std::size_t{1}, limits.connections);
    return limits;
  }

  static HttpFraming::Judge judge_of(const ShadowOptions& options) {
    if (options.publish_control) return {};
    return [kind = options.driver.kind](std::string_view target) {
      const std::optional<std::string> path = plain_path(target);
      if (!path) return 400;
      return is_control_path(kind, *path) ? 403 : 0;
    };
  }

  static std::string address_of(const std::string& url) {
    const net::Url parsed = net::parse_url(url);
    return parsed.socket_path.empty() ? net::to_string(parsed.address) : parsed.socket_path;
  }

  const ShadowOptions& options_;
  os::StatusFd events_;
  // Before all that opens descriptors: it has to be numbered below them.
  std::unique_ptr<lock::FailoverLock> lock_;
  /// Here, so that no grant waits for its thread.
  lock::HolderReport holder_report_;
  base::UniqueFd signals_;
  base::UniqueFd interrupt_;
  asio::io_context io_{1};
  loop::Children children_;
  std::unique_ptr<EngineDriver> driver_;
  DeviceGate gate_;
  Monitor monitor_;
  Metrics metrics_;
  HealthRules rules_;
  GmsWatch gms_;
  loop::Event changed_;
  std::unique_ptr<Publisher> publisher_;
  PublishedSockets left_;
  os::Notifier notifier_;
  EngineState state_ = EngineState::kInit;
  // Of the status server; 0: none.
  std::uint16_t port_ = 0;
  double since_ = os::wall_seconds();
  Clock::time_point entered_ = Clock::now();
  pid_t engine_ = 0;
  std::optional<lock::Grant> grant_;
  std::map<Phase, base::Duration> phases_;
  std::optional<Failover> last_failover_;
  bool registered_ = false;
  bool switching_ = false;
  bool acquiring_ = false;
  bool offering_ = false;
  // Published or registered, or about to be.
  bool serving_ = false;
  bool stopping_engine_ = false;
  // Those for registration that run now.
  int commands_ = 0;
  bool lost_ = false;
  base::Duration overlap_{};
  bool hurry_ = false;
  // Ends the watch of the lock.
  asio::cancellation_signal lock_watch_;
  bool watching_lock_ = false;
  std::optional<Ending> ending_;
  std::unique_ptr<StatusServer> server_;
};

}  // namespace

int run_shadow(const ShadowOptions& options) {
  os::limit_core_dumps();
  for (const std::string& warning : options.warnings) {
    os::log(os::LogLevel::kWarning, "{}", warning);
  }
  return Shadow(options, os::raise_fd_limit()).run();
}

}  // namespace fo::engine
