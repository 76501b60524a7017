// Assigns requests to workers. Each request waits in the queue of its set until a worker of the set
// has a slot and room for its tokens. A request that a worker had before, that only one worker can
// answer, that a worker with room must not get, or that is larger than every cache, waits beside
// the queue, and is served before the requests of its tier there. All calls are made on one event
// loop.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "fleet/health.h"
#include "plan/degradation.h"
#include "route/metrics.h"
#include "route/queue/choice.h"
#include "route/queue/job.h"
#include "route/queue/set_queue.h"
#include "route/request/api_error.h"
#include "route/resume/budget.h"
#include "route/resume/poison_guard.h"
#include "route/worker/workers.h"

namespace fo::route {

struct DispatchOptions {
  QueueLimits queue;
  Policy policy = Policy::kPrefix;
  ChoiceSettings choice;
  /// The expected tokens of an answer, until a set has given enough answers to measure them.
  std::uint64_t first_answer = AnswerLengths::kFirst;
  PoisonSettings poison;
  BudgetSettings budget;
  /// Status of a response that refuses a request because capacity is missing.
  int overload_status = 503;
  /// A set of weight 0 takes over when no set with a weight has been usable for `takeover`.
  /// Otherwise it gets no request, except those that only its workers can answer.
  bool uses_unweighted_sets = true;
  base::Duration takeover = std::chrono::seconds(10);
  /// Time limit for the one request of a worker in probation.
  base::Duration lease = std::chrono::minutes(10);
  /// The part of a set that may be out by suspicion (fleet::weights_of_set).
  double max_out = fleet::kMaxOut;
};

class Dispatcher {
 public:
  Dispatcher(boost::asio::any_io_executor executor, DispatchOptions options, Workers& workers,
             Metrics& metrics);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// Sets the options for requests that arrive from now on. Waiting requests keep their deadlines
  /// and places in the queue; their workers are chosen by the new options. Call on_change()
  /// afterwards.
  void set_options(const DispatchOptions& options);

  /// Waits for a worker, which is then in `job.worker`, and takes a slot and tokens there, which
  /// release() frees. Returns the refusal if no worker has room in time, the queue is full, or the
  /// job was killed.
  /// `while_waiting`, unless it is empty, is called about once a second.
  boost::asio::awaitable<std::optional<ApiError>> place(
      Job& job, const std::function<boost::asio::awaitable<void>()>& while_waiting = {});
  /// Frees what the job has on its worker, if it has one. `answer_tokens`, unless 0, is the length
  /// of its complete answer.
  void release(Job& job, std::uint64_t answer_tokens = 0);
  /// The prompt of the job, which has a worker, has so many tokens.
  void set_prompt_tokens(Job& job, std::uint64_t tokens);

  /// To be called when the answer that `job` resumes has brought a token: another answer may be
  /// resumed now.
  void end_resume(Job& job);
  /// The requests that may kill engines. Call on_change() after a change.
  [[nodiscard]] Suspects& suspects();

  /// Applies the event to the worker's health. A new state is logged, with `reason` unless it is
  /// empty.
  void add_health(const WorkerPtr& worker, fleet::HealthEvent event, const std::string& reason);
  /// To be called after a change of workers or their health: gives waiting requests to the workers
  /// that have room now.
  void on_change();
  /// Marks a job as killed, and ends its wait.
  void kill(Job& job);
  /// How long a request waits at most, at the present level.
  [[nodiscard]] base::Duration timeout() const;
  /// To be called about twice a second: the workers' health depends on the time.
  void on_tick();
  /// Sets the ratio of the workers' capacity, without spares, to the demand: below 1, spares take
  /// requests.
  void set_ratio(double ratio);
  /// Sets the level of requests that arrive from now on, and of the workers' slots at once.
  void set_level(const plan::DegradationSetting& setting);

  [[nodiscard]] QueueGauge queued(const SetKey& set) const;
  /// The sets that get requests: those with a weight, and those of weight 0 that take over. Their
  /// workers may be out.
  [[nodiscard]] std::set<SetKey> used_sets() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fo::route
