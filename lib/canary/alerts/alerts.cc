#include "canary/alerts/alerts.h"

namespace fo::canary {
namespace {

// Returns an expression for an increase of an event's counter in the last minutes. increase() shows
// the first event of a counter that exists from the start, but not that of a process that starts
// with the event.
std::string happened(const std::string& counter, const std::string& window) {
  return "increase(" + counter + "[" + window + "]) > 0 or (" + counter + " unless " + counter +
         " offset " + window + ") > 0";
}

// Returns an expression for models of which more than the part `above` of the workers is out. A
// drained worker is not out.
std::string part_out(const std::string& above) {
  return "sum by (model) (fo_route_worker_reachable ^ 0 * on (job, instance, worker_id) group_left "
         "() "
         "((dynamo_worker_status > bool 1) - (dynamo_worker_status == bool 3))) "
         "/ count by (model) (fo_route_worker_reachable) > " +
         above;
}

// The series of `count` workers, `out` of which have this status.
Samples workers(int count, int out, const std::string& status) {
  Samples samples;
  for (int i = 0; i < count; ++i) {
    const std::string id =
        "job=\"fo-route\",instance=\"r\",worker_id=\"w" + std::to_string(i) + "\"";
    samples.emplace_back("fo_route_worker_reachable{" + id + ",model=\"llama\"}", "1x400");
    samples.emplace_back("dynamo_worker_status{" + id + ",tp_group=\"\"}",
                         (i < out ? status : "0") + "x400");
  }
  return samples;
}

std::string engine_states(const std::string& state) {
  return "sum by (namespace, pod) (fo_engine_state{state='" + state + "'})";
}

// The states of a pair's two engines.
Samples pair(const std::string& first, const std::string& second) {
  Samples samples;
  int id = 0;
  for (const std::string& present : {first, second}) {
    for (const char* const state : {"init", "standby", "waking", "active", "dead"}) {
      samples.emplace_back("fo_engine_state{namespace=\"ns\",pod=\"p\",engine_id=\"" +
                               std::to_string(id) + "\",state=\"" + state + "\"}",
                           present == state ? "1x400" : "0x400");
    }
    ++id;
  }
  return samples;
}

Samples resumes(const std::string& resumed, const std::string& refused) {
  return {{"fo_route_resumes_total{outcome=\"resumed\",reason=\"broken\"}", resumed},
          {"fo_route_resumes_total{outcome=\"refused\",reason=\"broken\"}", refused},
          {"fo_route_resumes_total{outcome=\"no_worker\",reason=\"broken\"}", "0x400"},
          {"fo_route_resumes_total{outcome=\"finished\",reason=\"broken\"}", "0x400"}};
}

// Time of the event in promtool's tests: after five minutes.
constexpr std::uint64_t kEvent = 315;
// An event after a time that is longer than every window, and one at the first sample.
const std::string kLateEvent = "0x80 1x400";
constexpr std::uint64_t kLate = 1215;
const std::string kFirstEvent = "1x400";

void add_worker_alerts(std::vector<Alert>& to) {
  const std::string out =
      "{{ $value | humanizePercentage }} of the workers of {{ $labels.model }} are out";
  const std::string list = "fo-route ctl state; fo-canary state ID, for each that is out";
  to.push_back({.name = "DynamoHighWorkerFailureRate",
                .severity = "warning",
                .expression = part_out("0.05"),
                .for_seconds = 120,
                .summary = out,
                .runbook = list,
                .firing = workers(16, 1, "2"),
                .labels = {{"model", "llama"}},
                .value = "6.25%",
                .quiet = workers(20, 1, "4")});
  to.push_back({.name = "FoManyWorkersOut",
                .severity = "critical",
                .expression = part_out("0.2"),
                .for_seconds = 60,
                .summary = out,
                .runbook = list,
                .firing = workers(4, 1, "4"),
                .labels = {{"model", "llama"}},
                .value = "25%",
                .quiet = workers(4, 1, "3")});
  const auto breaker = [](const std::string& values) -> Samples {
    return {{"dynamo_circuit_breaker_state{worker_id=\"w\"}", values}};
  };
  to.push_back({.name = "FoBreakerOpen",
                .severity = "warning",
                // Probation is part of the outage.
                .expression = "max by (worker_id) (dynamo_circuit_breaker_state) > 0",
                .for_seconds = 900,
                .summary = "worker {{ $labels.worker_id }} does not recover",
                .runbook =
                    "fo-canary once --worker URL --canaries FILE; read the log of the worker; "
                    "fo-reg drain ID",
                .firing = breaker("1x20 2x1 1x400"),
                .labels = {{"worker_id", "w"}},
                .quiet = breaker("0x400")});
}

void add_router_alerts(std::vector<Alert>& to) {
  const auto level = [](const std::string& value) -> Samples {
    return {{"dynamo_degradation_level", value + "x400"}};
  };
  to.push_back({.name = "DynamoCapacityDegraded",
                .severity = "warning",
                .expression = "max(dynamo_degradation_level) > 0",
                .for_seconds = 300,
                .summary = "routers have reduced the service",
                .runbook = "fo-route ctl state; fo-plan capacity, for how many are missing",
                .firing = level("1"),
                .quiet = level("0")});
  to.push_back({.name = "FoCapacityCritical",
                .severity = "critical",
                .expression = "max(dynamo_degradation_level) >= 3",
                .for_seconds = 60,
                .summary = "routers refuse requests and serve the rest late",
                .runbook = "fo-route ctl state; add workers, or undrain some: fo-reg undrain ID",
                .firing = level("3"),
                .quiet = level("2")});
  to.push_back({.name = "FoPanic",
                .severity = "critical",
                .expression = happened("fo_route_panics_total", "10m"),
                .summary = "over half of a set of workers is suspected",
                .runbook = "fo-route ctl state; find out what the suspected workers have in common",
                .firing = {{"fo_route_panics_total", kLateEvent}},
                .begins = kLate,
                .first = {{"fo_route_panics_total", kFirstEvent}},
                .quiet = {{"fo_route_panics_total", "0x400"}}});
  to.push_back({.name = "FoPoisonRequest",
                .severity = "warning",
                .expression = happened("fo_route_poison_total", "10m"),
                .summary = "a request is refused because engines died while they served it",
                .runbook = "read the router's log for its id, and the engines' logs for the crash",
                .firing = {{"fo_route_poison_total", kLateEvent}},
                .begins = kLate,
                .first = {{"fo_route_poison_total", kFirstEvent}},
                .quiet = {{"fo_route_poison_total", "0x400"}}});
  to.push_back({.name = "FoResumeFailures",
                .severity = "warning",
                .expression = "sum(increase(fo_route_resumes_total{outcome=~'refused|no_worker'}"
                              "[15m])) / sum(increase(fo_route_resumes_total[15m])) > 0.01",
                .summary = "{{ $value | humanizePercentage }} of the answers whose worker failed "
                           "could not continue",
                .runbook = "read the router's log: it has the reason of each",
                // 49 of 50 continue, then 196 of 198.
                .firing = resumes("0x20 49x400", "0x20 1x400"),
                .begins = kEvent,
                .value = "2%",
                .quiet = resumes("0x20 199x400", "0x20 1x400")});
  const auto stale = [](const std::string& second) -> Samples {
    const std::string worker =
        "fo_route_worker_stale{job=\"fo-route\",instance=\"r\",model=\"llama\",worker_id=\"";
    return {{worker + "a\"}", "1x400"}, {worker + "b\"}", second}};
  };
  to.push_back(
      {.name = "FoRegistryUnreachable",
       .severity = "warning",
       .expression = "avg by (job, instance) (fo_route_worker_stale) > 0.5",
       .for_seconds = 300,
       .summary = "router {{ $labels.instance }} does not find its workers in the registry",
       .runbook = "fo-reg check --registry URI; routers still use workers that answer",
       .firing = stale("1x400"),
       .labels = {{"instance", "r"}, {"job", "fo-route"}},
       .quiet = stale("0x400")});
}

void add_canary_alerts(std::vector<Alert>& to) {
  const auto verdict = [](const std::string& values) -> Samples {
    return {
        {"fo_route_worker_verdict{instance=\"r\",worker_id=\"w\",state=\"convicted\"}", values},
        {"fo_route_worker_verdict{instance=\"r\",worker_id=\"w\",state=\"unhealthy\"}", "1x400"}};
  };
  to.push_back(
      {.name = "DynamoSilentCorruption",
       .severity = "critical",
       .expression = "max by (worker_id) (fo_route_worker_verdict{state='convicted'}) > 0",
       .summary = "worker {{ $labels.worker_id }} is convicted: its answers or its GPU are wrong",
       .runbook = "fo-canary state ID; fo-canary xid, on its host; after a repair, "
                  "fo-canary acquit ID",
       .firing = verdict("0x20 1x400"),
       .begins = kEvent,
       .labels = {{"worker_id", "w"}},
       .quiet = verdict("0x400")});
  to.push_back({.name = "FoCanaryUndecided",
                .severity = "critical",
                .expression = happened("fo_canary_votes_total{decision='undecided'}", "5m"),
                .summary = "a worker gave wrong tokens, and its set has no majority",
                .runbook = "fo-canary state; fo-canary once --worker URL --canaries FILE, for each "
                           "worker of the set",
                .firing = {{"fo_canary_votes_total{decision=\"undecided\"}", kLateEvent}},
                .begins = kLate,
                .labels = {{"decision", "undecided"}},
                .first = {{"fo_canary_votes_total{decision=\"undecided\"}", kFirstEvent}},
                .quiet = {{"fo_canary_votes_total{decision=\"conviction\"}", kLateEvent},
                          {"fo_canary_votes_total{decision=\"undecided\"}", "0x400"}}});
  const auto differs = [](const std::string& values) -> Samples {
    return {{"fo_canary_stale{model=\"llama\",card=\"c\"}", values}};
  };
  to.push_back({.name = "FoCanaryStale",
                .severity = "warning",
                .expression = "max by (model) (fo_canary_stale) > 0",
                .summary = "all workers of {{ $labels.model }} differ from their canaries",
                .runbook = "if the model was changed: fo-canary learn, and restart fo-canary run",
                .firing = differs("0x20 1x400"),
                .begins = kEvent,
                .labels = {{"model", "llama"}},
                .quiet = differs("0x400")});
  const std::string count = "dynamo_health_check_duration_seconds_count";
  const std::string contents = count + "{check_type='content'}";
  const auto checks = [&](const std::string& type, const std::string& values) {
    return std::pair(count + "{worker_id=\"w\",check_type=\"" + type + "\"}", values);
  };
  to.push_back(
      {.name = "FoCanaryStopped",
       .severity = "warning",
       .expression = "sum(increase(" + contents + "[5m])) == 0 or absent(" + contents + ")",
       .for_seconds = 300,
       .summary = "no answers are checked",
       .runbook = "start fo-canary run, or read its log",
       .firing = {checks("content", "7x400"), checks("connect", "0+1x400")},
       .begins = 15,
       .quiet = {checks("content", "0+1x400"), checks("connect", "7x400")}});
}

void add_failover_alerts(std::vector<Alert>& to) {
  const Samples sound = pair("active", "standby");
  to.push_back({.name = "FoPairWithoutStandby",
                .severity = "warning",
                .expression = engine_states("active") + " > " + engine_states("standby"),
                .for_seconds = 600,
                .summary = "pair {{ $labels.namespace }}/{{ $labels.pod }} has no standby",
                .runbook = "fo-shadow status; read the log of the engine that is not in standby",
                .firing = pair("active", "init"),
                .labels = {{"namespace", "ns"}, {"pod", "p"}},
                .quiet = sound});
  to.push_back(
      {.name = "FoPairWithoutActive",
       .severity = "critical",
       .expression = engine_states("active") + " == 0 and " +
                     "sum by (namespace, pod) (fo_engine_state{state=~'standby|waking'}) > 0",
       .for_seconds = 120,
       .summary = "no engine of {{ $labels.namespace }}/{{ $labels.pod }} is active",
       .runbook = "gms-lock status; then see failover(7)",
       .firing = pair("waking", "init"),
       .labels = {{"namespace", "ns"}, {"pod", "p"}},
       // Both start for the first time.
       .quiet = pair("init", "init")});
  const auto gate = [](const std::string& values) -> Samples {
    return {{"fo_failover_duration_seconds_sum{namespace=\"ns\",pod=\"p\",phase=\"gate\"}", values},
            {"fo_failover_duration_seconds_sum{namespace=\"ns\",pod=\"p\",phase=\"wake\"}",
             "0x20 60x400"}};
  };
  to.push_back(
      {.name = "FoGateWaits",
       .severity = "warning",
       .expression = "sum by (namespace, pod) "
                     "(increase(fo_failover_duration_seconds_sum{phase='gate'}[15m])) > 10",
       .summary = "an engine of {{ $labels.namespace }}/{{ $labels.pod }} waited for GPU memory",
       .runbook = "gms-stat --holders, for the processes that had the memory",
       .firing = gate("0x20 11x400"),
       .begins = kEvent,
       .labels = {{"namespace", "ns"}, {"pod", "p"}},
       .quiet = gate("0x20 9x400")});
  const std::string restarts = "gms_restarts_total{device=\"0\",tag=\"weights\",uuid=\"GPU-1\"}";
  to.push_back({.name = "FoGmsRestarts",
                .severity = "warning",
                .expression = happened("gms_restarts_total", "15m"),
                .summary = "the memory server of device {{ $labels.device }} ({{ $labels.tag }}) "
                           "crashed and was started again",
                .runbook = "gms-stat --all; fo-canary xid; keep the core dump",
                .firing = {{restarts, kLateEvent}},
                .begins = kLate,
                .labels = {{"device", "0"}, {"tag", "weights"}, {"uuid", "GPU-1"}},
                .first = {{restarts, kFirstEvent}},
                .quiet = {{restarts, "0x400"}}});
}

}  // namespace

const std::vector<Alert>& alerts() {
  static const std::vector<Alert> kAll = [] {
    std::vector<Alert> all;
    const auto add = [&all](const char* group, void (*add_alerts)(std::vector<Alert>&)) {
      const std::size_t before = all.size();
      add_alerts(all);
      for (std::size_t i = before; i < all.size(); ++i) all[i].group = group;
    };
    add("fo-workers", add_worker_alerts);
    add("fo-router", add_router_alerts);
    add("fo-canary", add_canary_alerts);
    add("fo-failover", add_failover_alerts);
    return all;
  }();
  return kAll;
}

}  // namespace fo::canary
