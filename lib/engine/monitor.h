// Monitors whether an active engine still serves: by frequent checks of its own health and of the
// configured targets, and by occasional generations, because an engine may hang while its health
// check succeeds.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "engine/drivers/driver.h"
#include "engine/health.h"
#include "loop/event.h"

namespace fo::engine {

struct MonitorOptions {
  base::Duration health_interval{};
  base::Duration health_timeout{};
  base::Duration prove_interval{};
  base::Duration prove_timeout{};
  /// The engine has failed after this many consecutive failures of one kind.
  int failures = 3;
  /// Names and URLs of the targets: a target is ready if a GET is answered with 200.
  std::vector<std::pair<std::string, std::string>> targets;
};

class Monitor {
 public:
  /// The driver must outlive the monitor.
  Monitor(const boost::asio::any_io_executor& executor, EngineDriver& driver,
          MonitorOptions options);

  /// Starts afresh with an engine that was just proven to serve, and checks the targets once.
  boost::asio::awaitable<void> begin();
  /// Checks until stop(). Returns the reason why the engine has failed; empty after stop().
  boost::asio::awaitable<std::string> run();
  /// Begins no further checks.
  void cease();
  /// Calls cease(), and returns when run() has returned; a check in progress is completed.
  boost::asio::awaitable<void> stop();

  /// Fills in the engine's part of the facts.
  void tell(HealthFacts& facts) const;

 private:
  using Clock = base::Deadline::Clock;

  // True if no further checks are needed.
  [[nodiscard]] bool is_over() const;
  boost::asio::awaitable<void> check_engine();
  boost::asio::awaitable<void> prove();
  // Whether the engine generates for other clients.
  boost::asio::awaitable<bool> makes_progress();
  boost::asio::awaitable<void> check_targets();

  EngineDriver& driver_;
  MonitorOptions options_;
  loop::Event changed_;
  bool running_ = false;
  bool stopping_ = false;
  int unhealthy_ = 0;
  int unproven_ = 0;
  /// The number of generated tokens at the last query.
  std::optional<double> progress_;
  std::string reason_;
  std::optional<Clock::time_point> proven_at_;
  std::map<std::string, bool> targets_;
};

}  // namespace fo::engine
