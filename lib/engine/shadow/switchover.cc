#include "engine/shadow/switchover.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "engine/pair.h"
#include "json/object.h"
#include "lock/holder_report.h"
#include "lock/lock_status.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/log.h"

namespace fo::engine {
namespace {

using base::Deadline;
using base::Error;
using boost::asio::awaitable;

// The timeout for the memory servers to report the layouts.
constexpr base::Duration kLayoutTimeout = std::chrono::seconds(5);
// The time for the other engine to acquire the lock before this one waits for it again, and the
// pause between two queries of the lock, which does not report a change of its holder.
constexpr base::Duration kTakeOverTimeout = std::chrono::seconds(10);
constexpr base::Duration kOwnerInterval = std::chrono::milliseconds(20);

}  // namespace

awaitable<std::string> Switchover::request() {
  const auto refuse = [](const std::string& why) {
    throw Error(base::ExitStatus::kTryAgain, "switch over: " + why);
  };
  const auto check = [&] {
    const EngineState state = parts_.life.state();
    if (parts_.course.is_ending() || is_under_way_ || state != EngineState::kActive) {
      refuse(base::quoted(options_.id) + " is " +
             (is_under_way_ ? "handing over already" : std::string(state_name(state))));
    }
  };
  check();
  const std::string obstacle = co_await find_obstacle();
  check();
  if (!obstacle.empty()) refuse(obstacle);
  is_under_way_ = true;
  parts_.course.changed().notify();
  const nlohmann::json answer{{"id", options_.id}, {"generation", parts_.life.generation()}};
  co_return fo::json::dump(answer);
}

awaitable<void> Switchover::until_begun() {
  do {
    while (!is_under_way_) {
      co_await parts_.course.changed().wait();
      parts_.course.check();
    }
    is_under_way_ = co_await prepare();
  } while (!is_under_way_);
}

awaitable<bool> Switchover::prepare() {
  os::log(os::LogLevel::kInfo, "handing over");
  co_await parts_.registration.suspend();
  const std::string obstacle = co_await find_obstacle();
  parts_.course.check();
  if (obstacle.empty()) co_return true;
  os::log(os::LogLevel::kWarning, "not handing over: {}", obstacle);
  co_await parts_.registration.resume();
  co_return false;
}

awaitable<std::string> Switchover::find_obstacle() {
  const bool is_covered = co_await has_standby(options_.lock, options_.id);
  if (!is_covered) co_return "no other engine is in standby";
  if (!parts_.lock->is_confirmed()) co_return "the lock server is unreachable";
  try {
    const Deadline answer_by = Deadline::after(kLayoutTimeout);
    co_await parts_.gms.check(answer_by);
  } catch (const Error& error) {
    co_return error.what();
  }
  co_return "";
}

awaitable<void> Switchover::hand_over() {
  co_await parts_.monitor.stop();
  parts_.course.check();
  if (options_.driver.kind == EngineKind::kCold) {
    co_await parts_.engine.stop();
    parts_.gms.forget();
  } else {
    co_await parts_.engine.sleep(SleepMode::kFinish);
  }
  parts_.gms.release();
  const Deadline confirm_by = Deadline::after(options_.wake_timeout);
  co_await parts_.lock->until_confirmed(confirm_by);
  parts_.registration.hand_over();
  co_await parts_.lock->release();
  parts_.course.check();
  parts_.registration.set_generation(0);
  parts_.life.end_grant();
  co_await until_taken_over();
  is_under_way_ = false;
}

awaitable<void> Switchover::until_taken_over() {
  const Deadline taken_by = Deadline::after(kTakeOverTimeout);
  while (!taken_by.expired()) {
    std::function<std::optional<std::string>()> query = [lock = options_.lock] {
      try {
        return lock::find_owner(lock, lock::kHolderQueryTimeout);
      } catch (const Error&) {  // the lock server is unreachable for now
        return std::optional<std::string>();
      }
    };
    const auto owner = co_await loop::run_blocking<std::optional<std::string>>(std::move(query));
    parts_.course.check();
    if (owner.value_or(options_.id) != options_.id) co_return;
    if (!owner) {
      const bool is_covered = co_await has_standby(options_.lock, options_.id);
      parts_.course.check();
      if (!is_covered) co_return;
    }
    co_await loop::pause_for(kOwnerInterval);
    parts_.course.check();
  }
}

}  // namespace fo::engine
