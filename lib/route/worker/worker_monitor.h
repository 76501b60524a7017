// Checks whether each worker can be reached, independently of its requests. A worker that refuses a
// connection is out at once, and checked often: it is back as soon as it accepts one and its
// /health is 200, because a standby binds the same address within a second. Lowers the slot limit
// of a worker whose engine has a queue of its own. Coroutines of one loop.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "http/message.h"
#include "route/worker/worker.h"

namespace fo::route {

class WorkerMonitor {
 public:
  struct Options {
    /// Interval of attempts to reach a worker, at first, and once it was out for `slow_after`.
    base::Duration retry = std::chrono::milliseconds(50);
    base::Duration slow_retry = std::chrono::seconds(1);
    base::Duration slow_after = std::chrono::minutes(1);
    /// Interval of the checks of a reachable worker, and the timeout of a check.
    base::Duration check = std::chrono::seconds(5);
    base::Duration timeout = std::chrono::seconds(1);
    /// Interval of the queries for the queue of an engine that has requests, and their timeout.
    base::Duration load = std::chrono::seconds(1);
    base::Duration load_timeout = std::chrono::seconds(1);
    /// How long a stale worker is used at most.
    base::Duration stale = std::chrono::hours(1);
    /// How long a stale worker may refuse connections, or another model answer at its address,
    /// before it has ended: the standby of its pair may take over.
    base::Duration takeover = std::chrono::seconds(10);
    /// Sent with each query, such as the engines' key.
    http::Fields headers;
  };
  /// Called after a worker has become reachable or unreachable, its first answer was late, its
  /// models have changed, or its engine's queue has lowered its slot limit.
  using OnChange = std::function<void(const WorkerPtr& worker)>;
  /// Called for a stale worker that has refused connections, or served another model, for as long
  /// as `takeover`, so that it has ended, and for one that has been stale for too long.
  using OnEnded = std::function<void(const WorkerPtr& worker)>;

  WorkerMonitor(boost::asio::any_io_executor executor, Options options, OnChange on_change,
                OnEnded on_ended);
  WorkerMonitor(const WorkerMonitor&) = delete;
  WorkerMonitor& operator=(const WorkerMonitor&) = delete;

  /// Sets the options of the next checks.
  void set_options(Options options);
  /// Begins to watch the worker, until it is removed. It counts as unreachable at first.
  void watch(const WorkerPtr& worker);
  /// The worker has refused a connection, or answers nothing but 503: it is out, for this reason,
  /// until it answers a check.
  void on_refused(const WorkerPtr& worker, const std::string& reason);
  /// The worker may have ended: it is checked at once.
  void on_fault(const WorkerPtr& worker);
  /// To be called after is_removed was set: ends the coroutine that watches the worker.
  void on_removed(const WorkerPtr& worker);

 private:
  struct State;
  struct Wake;
  static boost::asio::awaitable<void> run(std::shared_ptr<State> state, WorkerPtr worker,
                                          std::shared_ptr<Wake> wake);
  static boost::asio::awaitable<void> watch_queue(std::shared_ptr<State> state, WorkerPtr worker);
  std::shared_ptr<State> state_;
};

/// The models that an engine reports.
struct ServedModels {
  /// First the model that the engine was started with, then others, such as adapters.
  std::vector<std::string> names;
  /// The "max_model_len" of the first model in the answer, as vLLM has it; 0 without one.
  std::uint64_t context_length = 0;
};

/// Reads an answer to GET /v1/models. The result has no names if the text is anything else.
ServedModels read_models(std::string_view answer);

}  // namespace fo::route
