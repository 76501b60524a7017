// One OpenAI-compatible address for many engines: accepts requests, queues them by sets of equal
// workers, sends each to a worker, and to another one if that fails before the client has received
// anything. Coroutines of one loop.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/pages.h"
#include "http/server.h"
#include "plan/degradation.h"
#include "route/answer/exchange.h"
#include "route/answer/outcome.h"
#include "route/answer/upstream_call.h"
#include "route/queue/demand.h"
#include "route/queue/dispatcher.h"
#include "route/request/admission.h"
#include "route/request/client_request.h"
#include "route/request/response_ids.h"
#include "route/resume/kv_move.h"
#include "route/resume/poison_guard.h"
#include "route/worker/workers.h"

namespace fo::route {

/// Whether and when an answer continues on another worker after its first byte.
struct ResumeSettings {
  bool enabled = true;
  /// Time for which a started answer waits for a worker that can continue it.
  base::Duration wait = std::chrono::seconds(30);
  /// Time for the requests of a drained worker to end there, or to move.
  base::Duration drain = std::chrono::seconds(30);
  /// Interval of the comments to a client that waits for the rest of its answer.
  base::Duration comments = std::chrono::seconds(2);
  /// A request that limits its answer in one piece to fewer tokens goes to the worker unchanged,
  /// not as one for a stream: to compute such an answer again takes no longer than to continue it.
  std::uint64_t min_tokens = 16;
  KvMoveSettings moves;

  [[nodiscard]] bool is_short(const ClientRequest& request) const {
    return request.resume && !request.is_streamed &&
           request.max_tokens.value_or(min_tokens) < min_tokens;
  }
};

struct RouterOptions {
  RequestRules rules;
  Exchange::Limits exchange;
  CallTimes times;
  std::vector<std::string> allowed_paths;
  /// Sent to the workers, such as their key.
  http::Fields worker_headers;
  ResumeSettings resume;
  DispatchOptions dispatch;
  OverloadTimes overload;
  plan::DegradationRules degradation;
  DemandSettings demand;
  /// nullopt: no keys are needed, and every client is premium.
  std::optional<KeyRules> keys;
  /// The requests per second to plan for; nullopt: those that were measured.
  std::optional<double> slo_rate;
  http::PoolLimits pool;
  /// Count moves by the groups of the workers.
  bool metrics_groups = false;
  /// Called when a worker refuses a connection, or has answered 503 alone for 10 s; then it is out
  /// until it accepts one and is healthy. `reason` is for the log.
  std::function<void(const WorkerPtr&, const std::string& reason)> on_refused;
  /// Called when a worker fails in another way: it may have ended.
  std::function<void(const WorkerPtr&)> on_fault = [](const WorkerPtr&) {};
};

class Router {
 public:
  Router(boost::asio::any_io_executor executor, RouterOptions options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  /// A handler for http::Server.
  boost::asio::awaitable<void> handle(const http::Request& from, http::Reply& reply);

  /// Makes and counts the answer to a request that handle() cannot get: for http::Server.
  http::Response answer_early(const http::EarlyError& error);

  /// Checks the path and the key of a request whose body was not read. Makes and counts the answer
  /// if one of them is refused: for http::Server.
  std::optional<http::Response> check_head(const http::Request& from);

  Workers& workers();
  ResponseIds& response_ids();
  PoisonBodies& poison();
  /// Functions of the admin socket: the requests in flight (requests_json), and ending one of them;
  /// false if it is unknown.
  [[nodiscard]] std::string requests() const;
  bool kill(const std::string& request_id);
  /// The weights that a model's sets have if that of `card` becomes `weight`; nullopt if there is
  /// no such set.
  [[nodiscard]] std::optional<CardWeights> weights_with(const std::string& model,
                                                        const std::string& card,
                                                        double weight) const;
  /// Applies the time to the workers' health, and to the level of degradation, until it is
  /// cancelled.
  boost::asio::awaitable<void> run_periodic_tasks();
  /// nullopt: automatic. Throws Error(kUsage) for a level that does not exist.
  void pin_level(std::optional<std::size_t> level);
  /// Replaces the options, apart from `pool` and `metrics_groups`. A request in flight goes on as
  /// it began, and what happens to it next follows the new ones. Afterwards, on_change().
  void set_options(RouterOptions options);
  /// Returns the page /metrics in Prometheus' format.
  [[nodiscard]] std::string metrics_text() const;
  /// Returns the state for the admin socket; see state_json().
  [[nodiscard]] std::string state() const;
  /// To be called after a change of workers: gives waiting requests to those that can take them
  /// now.
  void on_change();

 private:
  struct State;
  /// Requests share it: those that are in the router at its end are destroyed with the loop.
  std::shared_ptr<State> state_;
};

}  // namespace fo::route
