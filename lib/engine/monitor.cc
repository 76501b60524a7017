#include "engine/monitor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "http/client.h"
#include "os/log.h"

namespace fo::engine {

using base::Deadline;
using boost::asio::awaitable;

Monitor::Monitor(const boost::asio::any_io_executor& executor, EngineDriver& driver,
                 MonitorOptions options)
    : driver_(driver), options_(std::move(options)), changed_(executor) {
  for (const auto& [name, url] : options_.targets) targets_[name] = false;
}

awaitable<void> Monitor::begin() {
  stopping_ = false;
  unhealthy_ = 0;
  unproven_ = 0;
  progress_.reset();
  reason_.clear();
  proven_at_ = Clock::now();
  co_await check_targets();
}

awaitable<std::string> Monitor::run() {
  running_ = true;
  Deadline prove_at = Deadline::after(options_.prove_interval);
  while (!is_over()) {
    co_await check_engine();
    if (!is_over()) co_await check_targets();
    if (!is_over() && prove_at.expired()) {
      co_await prove();
      // After a failure, the next proof is sooner.
      prove_at = Deadline::after(unproven_ == 0
                                     ? options_.prove_interval
                                     : std::min(options_.prove_interval, options_.health_interval));
    }
    const Deadline next = Deadline::after(options_.health_interval).sooner(prove_at);
    while (!is_over() && !next.expired()) co_await changed_.wait(next);
  }
  running_ = false;
  changed_.notify();
  co_return stopping_ ? std::string() : reason_;
}

bool Monitor::is_over() const {
  return stopping_ || unhealthy_ >= options_.failures || unproven_ >= options_.failures;
}

void Monitor::cease() {
  stopping_ = true;
  changed_.notify();
}

awaitable<void> Monitor::stop() {
  cease();
  while (running_) co_await changed_.wait();
}

awaitable<void> Monitor::check_engine() {
  std::optional<std::string> reason;
  try {
    const Deadline deadline = Deadline::after(options_.health_timeout);
    reason = co_await driver_.check_health(deadline);
  } catch (const base::Error& error) {
    reason = error.what();
  }
  if (!reason) {
    if (unhealthy_ > 0) os::log(os::LogLevel::kWarning, "the engine is healthy again");
    unhealthy_ = 0;
    if (unproven_ == 0) reason_.clear();
    co_return;
  }
  if (++unhealthy_ == 1) os::log(os::LogLevel::kWarning, "the engine is not healthy: {}", *reason);
  reason_ = *reason;
}

awaitable<bool> Monitor::makes_progress() {
  const std::optional<double> before = progress_;
  try {
    const Deadline deadline = Deadline::after(options_.health_timeout);
    progress_ = co_await driver_.progress(deadline);
  } catch (const base::Error&) {
    progress_.reset();
  }
  co_return before&& progress_&&* progress_ > *before;
}

awaitable<void> Monitor::prove() {
  std::string reason;
  co_await makes_progress();
  try {
    const Deadline deadline = Deadline::after(options_.prove_timeout);
    co_await driver_.prove(deadline);
  } catch (const base::Error& error) {
    reason = error.what();
  }
  // An engine that is too busy for the proof serves other clients.
  if (!reason.empty()) {
    const bool busy = co_await makes_progress();
    if (busy) reason.clear();
  }
  if (reason.empty()) {
    unproven_ = 0;
    proven_at_ = Clock::now();
    if (unhealthy_ == 0) reason_.clear();
    co_return;
  }
  if (++unproven_ == 1) os::log(os::LogLevel::kWarning, "the engine generates nothing: {}", reason);
  reason_ = reason;
}

awaitable<void> Monitor::check_targets() {
  for (std::size_t i = 0; i < options_.targets.size() && !stopping_; ++i) {
    const std::string name = options_.targets[i].first;
    try {
      const std::string url = options_.targets[i].second;
      const Deadline deadline = Deadline::after(options_.health_timeout);
      const http::FetchOptions limits{.response_limit = base::kMiB};
      const http::Response response = co_await http::async_fetch("GET", url, deadline, limits);
      targets_[name] = response.status == 200;
    } catch (const base::Error&) {
      targets_[name] = false;
    }
  }
}

void Monitor::tell(HealthFacts& facts) const {
  const auto fresh = 2 * options_.prove_interval + options_.prove_timeout;
  const bool generates = unproven_ == 0 && proven_at_ && Clock::now() - *proven_at_ <= fresh;
  facts.endpoints["generate"] = generates;
  for (const auto& [name, ready] : targets_) {
    facts.endpoints[name] = ready;
    facts.targets.push_back(name);
  }
  facts.engine_ready = reason_.empty() && generates;
  facts.reason = reason_;
  if (reason_.empty() && !generates) {
    facts.reason = "no generation was proven for " + base::format_duration(fresh);
  }
}

}  // namespace fo::engine
