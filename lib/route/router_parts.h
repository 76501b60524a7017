// The state that the requests of one router share, on one event loop.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <map>
#include <string>
#include <utility>

#include "http/pool.h"
#include "route/metrics.h"
#include "route/queue/demand.h"
#include "route/queue/dispatcher.h"
#include "route/queue/job.h"
#include "route/request/admission.h"
#include "route/request/response_ids.h"
#include "route/resume/budget.h"
#include "route/resume/poison_guard.h"
#include "route/router.h"
#include "route/worker/workers.h"

namespace fo::route {

struct RouterParts {
  RouterParts(const boost::asio::any_io_executor& on, RouterOptions with)
      : executor(on),
        options(std::move(with)),
        pool(on, options.pool),
        dispatcher(on, options.dispatch, workers, metrics),
        admission(options.keys),
        demand(time_now(), options.demand),
        level(options.degradation),
        retries(options.dispatch.budget) {
    poison.set_settings(options.dispatch.poison);
    metrics.has_groups = options.metrics_groups;
  }

  /// Returns the headers of each request to a worker for a job: the router's own, and the client's
  /// Authorization if it is forwarded.
  [[nodiscard]] http::Fields worker_headers(const Job& job, Worker& worker) const;

  /// Adds the ids of a request and the level to the headers of its answer.
  void add_ids(http::Fields& headers, const std::string& id, const std::string& client_id) const {
    headers.emplace_back("x-request-id", client_id.empty() ? id : client_id);
    headers.emplace_back("x-fo-request-id", id);
    headers.emplace_back("x-fo-level", std::to_string(level.level()));
  }

  boost::asio::any_io_executor executor;
  RouterOptions options;
  http::Pool pool;
  Workers workers;
  Metrics metrics;
  Dispatcher dispatcher;
  Admission admission;
  Demand demand;
  ServedMean served;
  Level level;
  ResponseIds response_ids;
  PoisonBodies poison;
  RetryBudget retries;
  /// Requests that are in the router, by id.
  std::map<std::string, Job*> jobs;
};

}  // namespace fo::route
