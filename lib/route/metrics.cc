#include "route/metrics.h"

#include <algorithm>
#include <string_view>

#include "fleet/health.h"
#include "fleet/record/instance.h"
#include "metrics/prometheus_text.h"

namespace fo::route {
namespace {

using fleet::HealthState;
using metrics::PrometheusText;

// The statuses that have a series before they occur: for a model, without one, and without a tier.
constexpr std::array kStatuses{200, 400, 404, 413, 422, 429, 499, 500, 502, 503, 504, 529};
constexpr std::array kStatusesOfNoModel{200, 400, 404, 503};
constexpr std::array kStatusesOfNoTier{400, 401, 404, 405, 413, 431, 503};
// The classes of attempts that have a series.
constexpr std::array kRetried{OutcomeClass::kFault, OutcomeClass::kSuspected,
                              OutcomeClass::kBackpressure, OutcomeClass::kMisconfigured,
                              OutcomeClass::kNeutral};

int dynamo_status(HealthState state) {
  switch (state) {
    case HealthState::kHealthy:
      return 0;
    case HealthState::kSuspicious:
    case HealthState::kProbation:
      return 1;
    case HealthState::kUnhealthy:
    case HealthState::kConvicted:
      return 2;
  }
  return 2;
}

int dynamo_status(const Worker& worker) {
  if (worker.is_removed || !worker.is_reachable) return 4;
  if (worker.is_leaving()) return 3;
  return std::max(dynamo_status(worker.health.state()),
                  dynamo_status(worker.verdict.health.value_or(HealthState::kHealthy)));
}

int breaker_state(const Worker& worker) {
  const HealthState state = worker.health.state();
  if (state == HealthState::kProbation) return 2;
  return state == HealthState::kUnhealthy || state == HealthState::kConvicted ? 1 : 0;
}

void add_requests(PrometheusText& text, const Metrics& metrics, const Workers& workers) {
  auto requests = metrics.requests;
  for (const char* tier : kTierNames) {
    for (const std::string& model : workers.models()) {
      for (const int status : kStatuses) requests.try_emplace({model, status, tier}, 0);
    }
    for (const int status : kStatusesOfNoModel) requests.try_emplace({"", status, tier}, 0);
  }
  for (const int status : kStatusesOfNoTier) requests.try_emplace({"", status, ""}, 0);
  text.begin("fo_route_requests_total", "counter",
             "Requests, by the status of their answer; 499: the client disconnected.");
  for (const auto& [labels, count] : requests) {
    const auto& [model, status, tier] = labels;
    text.add({{"model", model}, {"code", std::to_string(status)}, {"tier", tier}}, count);
  }
}

void add_counters(PrometheusText& text, const Metrics& metrics) {
  text.begin("fo_route_refused_total", "counter", "Requests that no worker got, by the reason.");
  for (std::size_t i = 0; i < kRefusedNames.size(); ++i) {
    text.add({{"reason", kRefusedNames[i]}}, metrics.refused[i].get());
  }
  text.begin("fo_route_retries_total", "counter",
             "Attempts that failed before the client had received anything, by the reason.");
  for (const OutcomeClass reason : kRetried) {
    const auto found = metrics.retries.find(reason);
    const std::uint64_t count = found == metrics.retries.end() ? 0 : found->second;
    text.add({{"reason", to_string(reason)}}, count);
  }
  text.begin("fo_route_resumes_total", "counter",
             "Answers that lost their worker after their first byte, by outcome.");
  for (std::size_t end = 0; end < kResumeEndNames.size(); ++end) {
    for (std::size_t reason = 0; reason < kLossReasonNames.size(); ++reason) {
      text.add({{"outcome", kResumeEndNames[end]}, {"reason", kLossReasonNames[reason]}},
               metrics.resumes[end][reason].get());
    }
  }
  text.add("fo_route_lost_total", "counter",
           "Answers that ended with an error after their first byte.", metrics.lost.get());
  text.add("fo_route_poison_total", "counter",
           "Requests that are refused because engines died of them.", metrics.poison.get());
  text.add("fo_route_ejections_total", "counter", "Times that a worker became unhealthy.",
           metrics.ejections.get());
  text.add("fo_route_panics_total", "counter",
           "Times that over half of a set was suspected, and a part stayed in use.",
           metrics.panics.get());
  text.add("fo_route_first_token_seconds", "histogram",
           "Time from sending a streamed request to its first token.", metrics.first_token);
  text.add("fo_route_token_gap_seconds", "histogram",
           "Time between two events of a stream with tokens.", metrics.gap);
  text.add("fo_route_resume_gap_seconds", "histogram",
           "From the loss of a stream's worker to the first token of the next one.",
           metrics.resume_gap);
  text.begin("dynamo_migration_total", "counter",
             "Answers that continued on another worker, by transfer or reprefill.");
  if (metrics.has_groups) {
    for (const auto& [key, count] : metrics.moves) {
      const auto& [source, target, method] = key;
      text.add({{"source_group", source},
                {"target_group", target},
                {"method", kMoveMethodNames[static_cast<std::size_t>(method)]}},
               count);
    }
  } else {
    for (std::size_t i = 0; i < kMoveMethodNames.size(); ++i) {
      const auto found = metrics.moves.find({"", "", static_cast<MoveMethod>(i)});
      text.add({{"method", kMoveMethodNames[i]}}, found == metrics.moves.end() ? 0 : found->second);
    }
  }
  text.begin(
      "dynamo_migration_duration_seconds", "histogram",
      "From the loss of the worker, or the beginning of a move, to the next worker's token.");
  for (std::size_t i = 0; i < kMoveMethodNames.size(); ++i) {
    text.add({{"method", kMoveMethodNames[i]}}, metrics.move_times[i]);
  }
  text.add("fo_route_queue_seconds", "histogram",
           "Time from receiving a request to sending it to a worker.", metrics.queue_time);
}

void add_workers(PrometheusText& text, const Workers& workers) {
  const auto each = [&](const char* family, const char* help, auto value) {
    text.begin(family, "gauge", help);
    for (const auto& [id, worker] : workers.all()) {
      text.add({{"worker_id", worker->name}, {"model", worker->model}}, value(*worker));
    }
  };
  text.begin("fo_route_worker_health", "gauge", "1 for the worker's present state, else 0.");
  for (const auto& [id, worker] : workers.all()) {
    for (const HealthState state : fleet::kHealthStates) {
      text.add({{"worker_id", worker->name}, {"state", fleet::to_string(state)}},
               worker->health.state() == state ? 1 : 0);
    }
  }
  text.begin("fo_route_worker_verdict", "gauge",
             "1 for the canaries' combined verdict on the worker, else 0.");
  for (const auto& [id, worker] : workers.all()) {
    const auto add = [&, &worker = worker](std::string_view state) {
      text.add({{"worker_id", worker->name}, {"state", state}},
               fleet::to_string(worker->verdict) == state ? 1 : 0);
    };
    add("unknown");
    for (const HealthState state : fleet::kHealthStates) add(fleet::to_string(state));
  }
  each("fo_route_worker_reachable", "Whether the worker accepts connections.",
       [](const Worker& worker) { return worker.is_reachable ? 1 : 0; });
  each("fo_route_worker_stale",
       "Whether the registry lost the worker's record while it may still run.",
       [](const Worker& worker) { return worker.is_stale ? 1 : 0; });
  each("fo_route_worker_weight", "The worker's part of the requests of its set.",
       [](const Worker& worker) { return worker.weight; });
  each("fo_route_worker_requests", "Requests in flight.",
       [](const Worker& worker) { return worker.requests; });
  each("fo_route_worker_tokens", "Tokens of the requests in flight, as estimated.",
       [](const Worker& worker) { return worker.tokens; });
  text.begin("dynamo_worker_status", "gauge",
             "0 healthy, 1 suspicious, 2 unhealthy, 3 draining, 4 gone.");
  for (const auto& [id, worker] : workers.all()) {
    text.add({{"worker_id", worker->name}, {"tp_group", worker->group}}, dynamo_status(*worker));
  }
  text.begin("dynamo_circuit_breaker_state", "gauge", "0 closed, 1 open, 2 half open.");
  for (const auto& [id, worker] : workers.all()) {
    text.add({{"worker_id", worker->name}}, breaker_state(*worker));
  }
}

}  // namespace

std::string to_text(const Metrics& metrics, const Workers& workers,
                    const std::map<SetKey, QueueGauge>& queues, std::size_t level) {
  PrometheusText text;
  add_requests(text, metrics, workers);
  add_counters(text, metrics);
  const auto each = [&](const char* family, const char* help, auto value) {
    text.begin(family, "gauge", help);
    for (const auto& [key, queue] : queues) {
      text.add({{"model", key.model}, {"card", key.card}}, value(queue));
    }
  };
  each("fo_route_queue_requests", "Requests that wait for a worker.",
       [](const QueueGauge& queue) { return queue.requests; });
  each("fo_route_queue_tokens", "Tokens of the requests that wait, as estimated.",
       [](const QueueGauge& queue) { return queue.tokens; });
  each("fo_route_queue_oldest_seconds", "How long the oldest request has waited in the queue.",
       [](const QueueGauge& queue) {
         return base::seconds_of(queue.oldest_age.value_or(base::Duration(0)));
       });
  text.begin("fo_route_set_weight", "gauge", "The weight of a set; 0: it gets no requests.");
  for (const auto& [key, members] : workers.sets()) {
    text.add({{"model", key.model}, {"card", key.card}}, workers.weight_of(key));
  }
  add_workers(text, workers);
  for (const char* family : {"fo_route_level", "dynamo_degradation_level"}) {
    text.add(family, "gauge", "The level of degradation, 0 to 4.", level);
  }
  return text.take();
}

}  // namespace fo::route
