#include "canary/daemon/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "fleet/record/listing.h"
#include "json/object.h"
#include "metrics/prometheus_text.h"

namespace fo::canary {
namespace {

using metrics::PrometheusText;
using nlohmann::json;

constexpr int kStateVersionOfPage = 1;
constexpr base::ByteCount kMaxStatePage = 64 * base::kMiB;
constexpr std::array<fleet::Column, 7> kWorkerColumns{
    {{"id"}, {"model"}, {"life"}, {"health"}, {"weight"}, {"url"}, {"reason"}}};
constexpr std::array<fleet::Column, 6> kCheckColumns{
    {{"at"}, {"check"}, {"outcome"}, {"canary"}, {"seconds"}, {"reason"}}};

json to_json(const CheckRecord& check) {
  json object = to_json(check.attempt);
  object["at"] = text::format_time(check.at);
  object["check"] = to_string(check.step);
  return object;
}

json worker_json(const Worker& worker) {
  json checks = json::array();
  for (const CheckRecord& check : worker.checks) checks.push_back(to_json(check));
  const std::string& reason = worker.health.cause().reason;
  return {{"id", worker.id},
          {"url", worker.url},
          {"model", worker.model},
          {"card", worker.card},
          {"life", fleet::to_string(worker.life)},
          {"has_canaries", worker.canaries != nullptr},
          {"canary_stale", worker.canaries != nullptr && worker.canaries->is_stale},
          {"health", fleet::to_string(worker.health.state())},
          {"weight", worker.weight},
          {"reason", reason.empty() ? worker.unchecked : reason},
          {"baseline",
           {{"answer", to_json(worker.baselines.answer)},
            {"first_token_seconds", to_json(worker.baselines.first_token)}}},
          {"checks", std::move(checks)}};
}

void add_worker_series(PrometheusText& text, const Workers& workers) {
  text.begin("fo_canary_worker_health", "gauge", "1 for the worker's present state, else 0.");
  for (const auto& [id, worker] : workers.all()) {
    for (const fleet::HealthState state : fleet::kHealthStates) {
      text.add({{"worker_id", id}, {"model", worker->model}, {"state", fleet::to_string(state)}},
               worker->health.state() == state ? 1 : 0);
    }
  }
  text.begin("fo_canary_worker_weight", "gauge", "The weight in the worker's verdict, 0 to 1.");
  for (const auto& [id, worker] : workers.all()) {
    text.add({{"worker_id", id}, {"model", worker->model}}, worker->weight);
  }
  const auto add = [&](const char* family, const char* help, metrics::Counter Worker::*counter) {
    text.begin(family, "counter", help);
    for (const auto& [id, worker] : workers.all()) {
      text.add({{"worker_id", id}, {"model", worker->model}}, ((*worker).*counter).get());
    }
  };
  add("fo_canary_mismatches_total", "Answers with a wrong token.", &Worker::mismatches);
  add("fo_canary_convictions_total", "Times that the worker was convicted.", &Worker::convictions);
  text.begin("dynamo_health_check_duration_seconds", "histogram", "How long checks took.");
  for (const auto& [id, worker] : workers.all()) {
    for (const Step step : kSteps) {
      text.add({{"worker_id", id}, {"check_type", to_string(step)}},
               worker->durations.at(static_cast<std::size_t>(step)));
    }
  }
}

}  // namespace

std::string to_text(const Workers& workers, const DaemonCounts& counts) {
  PrometheusText text;
  text.begin("fo_canary_checks_total", "counter", "Checks by their kind and their outcome.");
  for (const Step step : kSteps) {
    for (const Outcome outcome : kOutcomes) {
      const auto found = workers.check_counts().find({step, outcome});
      text.add({{"check_type", to_string(step)}, {"outcome", to_string(outcome)}},
               found == workers.check_counts().end() ? 0 : found->second);
    }
  }
  text.begin("fo_canary_votes_total", "counter", "Votes on wrong tokens, by their decision.");
  for (const Decision decision : kDecisions) {
    text.add({{"decision", to_string(decision)}}, workers.decisions(decision));
  }
  text.begin("fo_canary_stale", "gauge",
             "1 while a whole set differs from its file of canaries in the same way.");
  for (const auto& canaries : workers.files()) {
    text.add({{"model", canaries->file.model}, {"card", canaries->file.card}},
             canaries->is_stale ? 1 : 0);
  }
  std::size_t unchecked = 0;
  for (const auto& [id, worker] : workers.all()) unchecked += worker->canaries == nullptr ? 1U : 0U;
  text.add("fo_canary_workers", "gauge", "Workers that are watched.", workers.all().size());
  text.add("fo_canary_workers_without_canaries", "gauge",
           "Workers whose answers are not checked, because no file of canaries applies.",
           unchecked);
  text.add("fo_canary_kept_in", "gauge",
           "Suspected workers that stay in use because over half of their set is suspected.",
           workers.kept_in());
  text.begin("fo_canary_verdicts_total", "counter",
             "Verdicts by whether the registry accepted them.");
  text.add({{"result", "written"}}, counts.verdicts_written.get());
  text.add({{"result", "failed"}}, counts.verdicts_failed.get());
  text.add("fo_canary_registry_up", "gauge", "Whether the registry accepted the last verdict.",
           counts.registry_is_up ? 1 : 0);
  text.add("fo_canary_state_failures_total", "counter",
           "Times that the state file was not written.", counts.state_failures.get());
  if (counts.xids) {
    text.begin("fo_canary_xids_total", "counter", "Errors of GPUs in the kernel's log, by class.");
    for (const XidClass each : kXidClasses) {
      const auto found = counts.xids->find(each);
      text.add({{"class", to_string(each)}}, found == counts.xids->end() ? 0 : found->second);
    }
  }
  add_worker_series(text, workers);
  return text.take();
}

std::string state_json(const Workers& workers, const std::string& id) {
  json list = json::array();
  for (const auto& [key, worker] : workers.all()) {
    if (id.empty() || id == key) list.push_back(worker_json(*worker));
  }
  if (!id.empty() && list.empty()) return {};
  return fo::json::dump({{"version", kStateVersionOfPage}, {"workers", std::move(list)}});
}

std::string state_table(const std::string& answer, bool has_checks) {
  const auto what = [] { return "the answer of the canary"; };
  return fo::json::read_object(answer, kMaxStatePage, what, [&](const json& object) {
    std::string text = fleet::table_of(object.at("workers"), kWorkerColumns);
    if (!has_checks) return text;
    for (const json& worker : object.at("workers")) {
      text += "\n" + fleet::table_of(worker.at("checks"), kCheckColumns);
    }
    return text;
  });
}

}  // namespace fo::canary
