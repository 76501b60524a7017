#include "canary/daemon/workers.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/error.h"
#include "canary/judge/acquittal.h"
#include "canary/xid/xid.h"
#include "fleet/registry/key.h"
#include "os/file/random.h"
#include "os/log.h"

namespace fo::canary {
namespace {

using fleet::HealthState;
using fleet::RegistryChange;

constexpr std::string_view kInstancePrefix = "instances/";

bool is_worker(const fleet::EndpointId& id) {
  return id.endpoint == "generate" &&
         (id.component == "worker" || id.component.starts_with("worker-"));
}

// Identifies the engine that the worker's URL names.
std::string engine_of(const Worker& worker) {
  return worker.engine.origin.host() + worker.engine.base_path;
}

SavedWorker saved_of(const Worker& worker, const Now& at) {
  return {.health = worker.health.save(at),
          .baselines = worker.baselines,
          .owes_answer = worker.owes_answer,
          .owes_sampler = worker.owes_sampler};
}

}  // namespace

Workers::Workers(WorkersOptions options, std::vector<CanaryFile> files, Events events)
    : options_(std::move(options)), events_(std::move(events)) {
  std::set<std::pair<std::string, std::string>> known;
  for (CanaryFile& file : files) {
    if (!known.emplace(file.card, file.card.empty() ? file.model : "").second) {
      throw base::Error(base::ExitStatus::kUsage,
                        "canaries for " +
                            (file.card.empty() ? "model " + base::quoted(file.model)
                                               : "card " + base::quoted(file.card)) +
                            ": two files apply to the same workers");
    }
    files_.push_back(std::make_unique<Canaries>(Canaries{.file = std::move(file)}));
  }
}

void Workers::apply(const RegistryChange& change, const Now& at) {
  const fleet::Record& record = change.record;
  try {
    switch (change.kind) {
      case RegistryChange::Kind::kPut:
        if (record.key.starts_with(kInstancePrefix)) put_instance(record, at);
        if (fleet::is_verdict_key(record.key)) {
          verdicts_.put(record);
          put_verdict(record, at);
        }
        break;
      case RegistryChange::Kind::kGone:
        if (record.key.starts_with(kInstancePrefix)) end_instance(record.key, at);
        if (fleet::is_verdict_key(record.key)) verdicts_.remove(record.key);
        // A conviction ends with an acquittal only, so it is written again.
        if (fleet::is_verdict_key(record.key) &&
            record.key ==
                fleet::verdict_key(std::string(fleet::id_of(record.key)), options_.writer)) {
          const std::string id(fleet::id_of(record.key));
          if (is_convicted(id)) events_.on_verdict(id);
        }
        break;
      case RegistryChange::Kind::kStale:
        if (record.key.starts_with(kInstancePrefix)) set_stale(record.key, at);
        break;
      case RegistryChange::Kind::kListed:
        break;
    }
  } catch (const base::Error& error) {
    os::log(os::LogLevel::kWarning, "{}", error.what());
  }
}

Canaries* Workers::canaries_for(const fleet::Instance& instance, std::string& reason) const {
  const bool is_named = !instance.card.empty() || !instance.model.empty();
  Canaries* found = nullptr;
  for (const auto& canaries : files_) {
    const CanaryFile& file = canaries->file;
    const bool is_its = file.card == instance.card &&
                        (!file.card.empty() || !is_named || file.model == instance.model);
    if (!is_its) continue;
    if (found != nullptr) {
      reason = "it names neither a card nor a model, and several files are without a card";
      return nullptr;
    }
    found = canaries.get();
  }
  if (found != nullptr) return found;
  reason = !instance.card.empty() ? "no canaries for its card " + base::quoted(instance.card)
           : is_named             ? "no canaries for its model " + base::quoted(instance.model)
                                  : "it names neither a card nor a model";
  return nullptr;
}

void Workers::put_instance(const fleet::Record& record, const Now& at) {
  const auto endpoint = fleet::endpoint_of(record.key);
  if (!endpoint || !is_worker(*endpoint)) return;
  const auto& patterns = options_.namespaces;
  const bool is_ours =
      patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& one) {
        return one.matches(endpoint->name_space);
      });
  if (!is_ours) return;
  const fleet::Instance instance = fleet::decode_instance(record);
  if (instance.life == fleet::Life::kGone) return end_instance(record.key, at);
  static_cast<void>(options_.allowed.check(instance.url));
  EngineAddress engine =
      make_engine_address(instance.url, options_.tls, options_.headers, instance.model);
  engine.origin.networks = options_.allowed.networks();
  WorkerPtr& worker = workers_[instance.id];
  const bool is_new = worker == nullptr;
  if (is_new) {
    worker = std::make_shared<Worker>(Schedule(options_.intervals, at.steady, os::random_unit()));
    worker->id = instance.id;
    if (const auto found = saved_.find(instance.id); found != saved_.end()) {
      worker->health.restore(found->second.health, at);
      worker->owes_answer = found->second.owes_answer;
      worker->owes_sampler = found->second.owes_sampler;
      worker->baselines = found->second.baselines;
      saved_.erase(found);
    }
  }
  worker->records[record.key] = {.text = record.text};
  worker->stale_since.reset();
  if (worker->url != instance.url) worker->progress.reset();
  worker->url = instance.url;
  worker->model = instance.model;
  worker->card = instance.card;
  worker->life = instance.life;
  worker->host = instance.host;
  worker->gpus.clear();
  for (const std::string& gpu : instance.gpus) worker->gpus.push_back(canonical_bus_id(gpu));
  worker->engine = std::move(engine);
  std::string unchecked;
  worker->canaries = canaries_for(instance, unchecked);
  if (std::exchange(worker->unchecked, unchecked) != unchecked && !unchecked.empty()) {
    os::log(os::LogLevel::kWarning, "worker {}: {}; its answers are not checked",
            base::quoted(worker->id), unchecked);
  }
  if (worker->engine.model.empty() && worker->canaries != nullptr) {
    worker->engine.model = worker->canaries->file.model;
  }
  weigh_sets(at);
  if (!is_new) return;
  events_.on_new(worker);
  if (worker->health.is_convicted()) events_.on_verdict(worker->id);
}

void Workers::end_instance(const std::string& key, const Now& at) {
  const std::string id = fleet::last_segment(key);
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second->records.erase(key) == 0) return;
  const auto& others = found->second->records;
  if (others.empty()) return remove(id);
  const auto present =
      std::ranges::find_if_not(others, [](const auto& entry) { return entry.second.is_stale; });
  const auto& [other, its] = present == others.end() ? *others.begin() : *present;
  const fleet::Record record{other, its.text};
  const bool is_stale = its.is_stale;
  put_instance(record, at);
  if (is_stale) set_stale(record.key, at);
}

void Workers::set_stale(const std::string& key, const Now& at) {
  const auto found = workers_.find(fleet::last_segment(key));
  if (found == workers_.end()) return;
  Worker& worker = *found->second;
  const auto record = worker.records.find(key);
  if (record == worker.records.end()) return;
  record->second.is_stale = true;
  const bool is_stale =
      std::ranges::all_of(worker.records, [](const auto& entry) { return entry.second.is_stale; });
  if (is_stale && !worker.stale_since) worker.stale_since = at.steady;
}

void Workers::remove_ended(const Worker& worker, const Now& at) {
  if (!worker.stale_since) return;
  const bool has_ended =
      worker.refused_since && at.steady - *worker.refused_since >= options_.takeover;
  const bool is_over = at.steady - *worker.stale_since >= options_.stale;
  if (!has_ended && !is_over) return;
  os::log(os::LogLevel::kWarning, "worker {}: not checked any more, because it is stale and {}",
          base::quoted(worker.id), has_ended ? "refuses connections" : "has not registered again");
  const std::string id = worker.id;
  remove(id);
}

void Workers::remove(const std::string& id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  const WorkerPtr worker = found->second;
  workers_.erase(found);
  worker->is_removed = true;
  const Now at = now();
  if (worker->health.is_convicted()) {
    remember(id, saved_of(*worker, at), at);
  }
  weigh_sets(at);
  events_.on_removed(worker);
}

void Workers::remember(const std::string& id, SavedWorker saved, const Now& at) {
  saved.gone_since = at.wall;
  saved_[id] = std::move(saved);
  // forget_gone() sorts all of them, so it is not called for each one above the limit.
  if (saved_.size() > kMaxGone + kMaxGone / 10) forget_gone(saved_, at.wall);
}

void Workers::put_verdict(const fleet::Record& record, const Now& at) {
  const std::string id(fleet::id_of(record.key));
  if (record.key != fleet::verdict_key(id, options_.writer)) return;
  const auto found = workers_.find(id);
  const auto saved = saved_.find(id);
  if (const auto since = acquits_since(record.text)) {
    const auto is_meant = [&](text::WallTime own) {
      return text::format_time(own) == text::format_time(*since);
    };
    if (found != workers_.end()) {
      Worker& worker = *found->second;
      if (!worker.health.is_convicted() || !is_meant(worker.health.since())) return;
      change(worker, at, [&] { worker.health.acquit(at, os::random_unit()); });
      os::log(os::LogLevel::kInfo, "worker {}: acquitted by an operator", base::quoted(id));
    } else if (saved != saved_.end() && saved->second.health.state == HealthState::kConvicted &&
               is_meant(saved->second.health.since)) {
      saved_.erase(saved);
    }
    return;
  }
  const fleet::Verdict verdict = fleet::decode_verdict(record);
  // Once all verdicts are listed, the state here is newer than a record of this canary.
  if (!verdict.is_conviction() || are_verdicts_listed_) return;
  // An error of its GPU convicts a worker without a question, so that it owes no answer.
  const bool is_by_answer = verdict.evidence.has_value();
  // This is a conviction of an earlier run, whose state was lost, or was saved before the
  // conviction.
  WorkerHealth::Saved health{.state = HealthState::kConvicted,
                             .since = verdict.since,
                             .cause = {.reason = verdict.reason, .evidence = verdict.evidence}};
  if (found != workers_.end()) {
    Worker& worker = *found->second;
    if (worker.health.is_convicted()) return;
    worker.owes_answer = worker.owes_answer || is_by_answer;
    change(worker, at, [&] { worker.health.restore(std::move(health), at); });
  } else if (saved == saved_.end()) {
    remember(id, {.health = std::move(health), .owes_answer = is_by_answer}, at);
  } else if (saved->second.health.state != HealthState::kConvicted) {
    saved->second.health = std::move(health);
    saved->second.owes_answer = saved->second.owes_answer || is_by_answer;
  }
}

void Workers::note(Worker& worker, Step step, const Attempt& attempt, const Now& at) {
  worker.durations.at(static_cast<std::size_t>(step)).observe(attempt.took);
  ++counts_[{step, attempt.outcome}];
  if (attempt.outcome == Outcome::kMismatch) worker.mismatches.add();
  // Cheap checks are listed only if they failed.
  const bool is_kept = step == Step::kContent || attempt.outcome != Outcome::kPass;
  if (!is_kept) return;
  worker.checks.push_back({at.wall, step, attempt});
  if (worker.checks.size() > kKeptChecks) worker.checks.pop_front();
}

template <typename Change>
void Workers::change(Worker& worker, const Now& at, const Change& change) {
  const HealthState before = worker.health.state();
  change();
  const HealthState after = worker.health.state();
  // After a probation the weight rises without a change of state.
  const double weight = worker.health.weight(at.steady);
  const bool has_risen = std::exchange(worker.own_weight, weight) != weight;
  if (after == before) {
    if (has_risen) weigh_sets(at);
    return;
  }
  const auto level = after == HealthState::kConvicted ? os::LogLevel::kError
                     : after == HealthState::kHealthy ? os::LogLevel::kInfo
                                                      : os::LogLevel::kWarning;
  const std::string& reason = worker.health.cause().reason;
  os::log(level, "worker {}: {}{}", base::quoted(worker.id), fleet::to_string(after),
          reason.empty() ? "" : ": " + reason);
  weigh_sets(at);
  events_.on_verdict(worker.id);
}

bool Canaries::set_stale(bool value) {
  if (std::exchange(is_stale, value) == value) return false;
  ++stale_changes;
  return true;
}

void Workers::find(Worker& worker, Finding finding, Cause cause, const Now& at) {
  if (finding == Finding::kPass) worker.slow_at.reset();
  if (finding == Finding::kConviction && !worker.health.is_convicted()) worker.convictions.add();
  change(worker, at,
         [&] { worker.health.apply(finding, std::move(cause), at, os::random_unit()); });
}

void Workers::find_answer(Worker& worker, const Conclusion& conclusion, const Now& at) {
  const bool is_pass = conclusion.finding == Finding::kPass;
  if (conclusion.finding != Finding::kNeutral) {
    worker.owes_answer = !is_pass;
    worker.owes_sampler = !is_pass && (worker.owes_sampler || conclusion.attempt.uses_sampler);
  }
  if (is_pass && worker.canaries->set_stale(false)) {
    os::log(os::LogLevel::kInfo, "canaries of model {}: answered as expected again",
            base::quoted(worker.canaries->file.model));
  }
  find(worker, conclusion.finding, conclusion.cause, at);
}

bool Worker::runs_sampler(double part, double random) const {
  return canaries->file.has_sampler && (owes_sampler || random < part);
}

void Workers::find_tokens(Worker& worker, const Now& at) {
  const bool is_asked = worker.canaries != nullptr && !worker.canaries->is_stale;
  find(worker, is_asked && worker.owes_answer ? Finding::kNeutral : Finding::kPass, {}, at);
}

void Workers::advance(Worker& worker, const Now& at) {
  change(worker, at, [&] { worker.health.advance(at, os::random_unit()); });
}

void Workers::weigh_sets(const Now& at) {
  std::map<std::pair<std::string, std::string>, std::vector<Worker*>> sets;
  kept_in_ = 0;
  std::vector<std::string> changed;
  const auto set_weight = [&](Worker& worker, double weight) {
    if (std::exchange(worker.weight, weight) != weight) changed.push_back(worker.id);
  };
  for (const auto& [id, worker] : workers_) {
    if (worker->is_checked()) {
      sets[{worker->model, worker->card}].push_back(worker.get());
    } else {
      set_weight(*worker, worker->health.weight(at.steady));
    }
  }
  for (const auto& [key, members] : sets) {
    std::vector<fleet::SetMember> states;
    for (const Worker* const member : members) {
      states.push_back({.state = member->health.state(),
                        .weight = member->health.weight(at.steady),
                        .failed_probations = member->health.failed_probations()});
    }
    const fleet::SetWeights weights = fleet::weights_of_set(states);
    kept_in_ += weights.kept_in;
    for (std::size_t i = 0; i < members.size(); ++i) set_weight(*members[i], weights.weights[i]);
  }
  for (const std::string& id : changed) events_.on_verdict(id);
}

std::vector<WorkerPtr> Workers::jurors_of(const Worker& worker, std::size_t count,
                                          const Now& at) const {
  std::vector<std::pair<std::uint64_t, WorkerPtr>> drawn;
  for (const auto& [id, other] : workers_) {
    const bool may_judge = other.get() != &worker && other->canaries == worker.canaries &&
                           other->model == worker.model && other->is_checked() && !other->is_down &&
                           !other->health.is_convicted() &&
                           !verdicts_.on(id, at.wall).is_conviction();
    if (may_judge) drawn.emplace_back(os::random_bits(), other);
  }
  std::sort(drawn.begin(), drawn.end());
  std::vector<WorkerPtr> jurors;
  // Two ids may stand for one engine, which has one vote.
  std::set<std::string> engines{engine_of(worker)};
  for (const auto& [order, other] : drawn) {
    if (jurors.size() < count && engines.insert(engine_of(*other)).second) jurors.push_back(other);
  }
  return jurors;
}

std::optional<fleet::Record> Workers::verdict_of(const std::string& id, const Now& at) const {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return std::nullopt;
  const Worker& worker = *found->second;
  fleet::Verdict verdict;
  verdict.id = id;
  verdict.health = worker.health.state();
  verdict.weight = worker.weight;
  verdict.reason = worker.health.cause().reason;
  verdict.evidence = worker.health.cause().evidence;
  verdict.since = worker.health.since() == text::WallTime() ? at.wall : worker.health.since();
  if (worker.health.is_convicted()) {
    verdict.weight = 0;
  } else {
    verdict.expires =
        at.wall + std::chrono::duration_cast<text::WallTime::duration>(options_.lifetime);
  }
  return fleet::Record{fleet::verdict_key(id, options_.writer), fleet::encode(verdict)};
}

bool Workers::is_convicted(const std::string& id) const {
  const auto found = workers_.find(id);
  return found != workers_.end() && found->second->health.is_convicted();
}

void Workers::load(SavedWorkers saved, const Now& at) {
  saved_ = std::move(saved);
  forget_gone(saved_, at.wall);
}

SavedWorkers Workers::save(const Now& at) {
  forget_gone(saved_, at.wall);
  SavedWorkers saved = saved_;
  for (const auto& [id, worker] : workers_) {
    saved[id] = saved_of(*worker, at);
  }
  return saved;
}

std::uint64_t Workers::decisions(Decision decision) const {
  const auto found = decisions_.find(decision);
  return found == decisions_.end() ? 0 : found->second;
}

}  // namespace fo::canary
