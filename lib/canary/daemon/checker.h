// Checks each worker in its own coroutine, so that no worker waits for another one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canary/check/checker_options.h"
#include "canary/daemon/workers.h"
#include "loop/event.h"

namespace fo::canary {

class Checker {
 public:
  /// `workers` outlives the loop's coroutines.
  Checker(boost::asio::any_io_executor executor, CheckerOptions options, Workers& workers,
          std::function<void(const std::string& id)> on_checked);
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Begins to check the worker, until it is removed.
  void watch(const WorkerPtr& worker);
  /// Ends the checks of a worker. To be called after its is_removed was set.
  void on_removed(const WorkerPtr& worker);

 private:
  boost::asio::awaitable<void> run(WorkerPtr worker, std::shared_ptr<loop::Event> event);
  boost::asio::awaitable<bool> check_reachable(WorkerPtr worker, const std::vector<Step>& due);
  boost::asio::awaitable<void> check_token(WorkerPtr worker);
  boost::asio::awaitable<void> check_content(WorkerPtr worker);
  boost::asio::awaitable<std::optional<Conclusion>> question(WorkerPtr worker, bool uses_sampler);
  boost::asio::awaitable<Decision> vote(WorkerPtr worker, const Canary& canary, Attempt mismatch);
  void on_vote(Worker& worker, const std::string& canary, Decision decision);
  void fail(const WorkerPtr& worker, Step step, Attempt attempt);

  boost::asio::any_io_executor executor_;
  CheckerOptions options_;
  Workers& workers_;
  std::function<void(const std::string& id)> on_checked_;
  std::map<std::string, std::shared_ptr<loop::Event>> events_;
};

}  // namespace fo::canary
