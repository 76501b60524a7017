// Whether an engine that is active still serves: its own health check asked often, the targets that
// were named, and now and then a generation, since an engine may hang behind a health check that
// says yes.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
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
  /// So many of one kind in a row, and the engine has failed.
  int failures = 3;
  /// Names and URLs: a GET that is answered with 200 is ready.
  std::vector<std::pair<std::string, std::string>> targets;
};

class Monitor {
 public:
  /// The driver outlives the monitor.
  Monitor(const boost::asio::any_io_executor& executor, EngineDriver& driver,
          MonitorOptions options);

  /// The first look, at an engine that was proven to serve a moment ago.
  boost::asio::awaitable<void> begin();
  /// Looks until stop(). Returns why the engine has failed, or an empty string after stop().
  boost::asio::awaitable<std::string> run();
  /// Asks nothing any more.
  void cease();
  /// The same, and returns when run() has: the question that is being asked is waited for.
  boost::asio::awaitable<void> stop();

  /// What is known, for the engine's part of the facts.
  void tell(HealthFacts& facts) const;

 private:
  using Clock = base::Deadline::Clock;

  // Nothing more is to be asked.
  [[nodiscard]] bool is_over() const;
  boost::asio::awaitable<void> look();
  boost::asio::awaitable<void> prove();
  // Whether the engine generates for others.
  boost::asio::awaitable<bool> makes_progress();
  boost::asio::awaitable<void> look_at_targets();

  EngineDriver& driver_;
  MonitorOptions options_;
  loop::Event changed_;
  bool running_ = false;
  bool stopping_ = false;
  int unhealthy_ = 0;
  int unproven_ = 0;
  /// Tokens that the engine had generated, when that was asked last.
  std::optional<double> progress_;
  std::string trouble_;
  std::optional<Clock::time_point> proven_at_;
  std::map<std::string, bool> targets_;
};

}  // namespace fo::engine
