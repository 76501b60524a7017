#include "route/queue/dispatcher.h"

#include <algorithm>
#include <array>
#include <compare>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/finally.h"
#include "loop/event.h"
#include "os/file/random.h"
#include "os/log.h"
#include "route/request/response_ids.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using fleet::HealthState;
using fleet::Life;
using Clock = Deadline::Clock;

// How long a level of degradation lasts at least, by default.
constexpr base::Duration kLevelTime = std::chrono::seconds(10);
// How long a worker gets no request for a model and an API for which it has answered 401, 403 or
// 404.
constexpr base::Duration kRefusal = std::chrono::minutes(1);
// Interval in which a waiting request looks for another set while its own has no usable worker.
constexpr base::Duration kLook = std::chrono::seconds(1);
// Maximum number of requests beside the queue for which one call of pump() finds no worker.
constexpr std::size_t kMaxSought = 256;
// How many of these are always the first ones of a tier.
constexpr std::size_t kMaxFirst = 64;

// Whether a request begins in the queue, because it is new and any worker may get it. Others wait
// beside the queue, before those of their tier that have left it.
bool is_from_queue(const Job& job) { return !job.is_admitted && job.pinned_to.empty(); }

}  // namespace

struct Dispatcher::State {
  struct Waiting {
    Waiting(Job& its_job, const boost::asio::any_io_executor& executor)
        : job(its_job), place{is_from_queue(its_job), its_job.number}, changed(executor) {}
    Job& job;
    /// Its place among those of its tier that wait beside the queue.
    struct Place {
      bool is_from_queue;
      std::uint64_t number;
      auto operator<=>(const Place&) const = default;
    };
    const Place place;
    bool has_left_queue = false;
    loop::Event changed;
    /// A full queue has removed it for a request of another tier.
    bool is_removed = false;
  };
  struct Set {
    Set(const DispatchOptions& options, std::uint64_t seed)
        : queue(options.queue), choice(options.policy, seed, options.choice) {}
    SetQueue queue;
    std::map<std::uint64_t, Waiting*> queued;
    /// Requests that wait beside the queue, by tier, and answers that wait to be resumed.
    std::array<std::map<Waiting::Place, Waiting*>, plan::kTiers> beside;
    /// Where the next search for their workers goes on, after the first ones. A search that has
    /// failed for kMaxSought requests goes on with the others next time.
    std::array<Waiting::Place, plan::kTiers> search_from{};
    /// Those of `beside` that have left the queue.
    QueueLoad left_queue;
    std::map<std::uint64_t, Waiting*> resuming;
    Choice choice;
    std::map<WorkerNumber, WorkerPtr> workers;
    AnswerLengths lengths;
    ResumeBudget resumes;
    bool is_in_panic = false;
    /// nullopt: it is usable.
    std::optional<TimePoint> unusable_since;
    /// Whether a worker refuses requests for a model: if not, no request needs a look at all
    /// workers.
    bool has_refusals = false;
    /// The workers in probation that may get a request.
    std::vector<WorkerPtr> in_probation;
    /// Its workers are for decode, and have none for prefill.
    bool lacks_prefill = false;
    /// It was logged that it has weight 0.
    bool is_unweighted = false;
    TimePoint pumped_at{};

    [[nodiscard]] std::size_t count_beside() const {
      std::size_t requests = 0;
      for (const auto& of_tier : beside) requests += of_tier.size();
      return requests;
    }
    void notify_beside() const {
      for (const auto& of_tier : beside) {
        for (const auto& [place, waiting] : of_tier) waiting->changed.notify();
      }
    }
  };

  State(boost::asio::any_io_executor on, DispatchOptions with, Workers& its_workers,
        Metrics& its_metrics)
      : executor(std::move(on)),
        options(with),
        workers(its_workers),
        metrics(its_metrics),
        suspects(options.poison),
        sets_changed(executor) {}

  Set& set(const SetKey& key);
  bool is_usable(const SetKey& key) const;
  void refresh(const SetKey& key, Set& set);
  struct Excluded {
    /// Workers that must not get the job.
    std::vector<WorkerNumber> never;
    /// Workers that have failed it: others are asked first.
    std::vector<WorkerNumber> failed;
    /// A worker with a weight is in neither list.
    bool has_others = false;
  };
  Excluded excluded(const Set& set, const Job& job) const;
  bool holds_up_others(const Set& set, const Job& job) const;
  bool take(Set& set, Job& job);
  bool take_without(Set& set, Job& job, const std::vector<WorkerNumber>& excluded);
  WorkerPtr find_probation(const Set& set, Job& job,
                           const std::vector<WorkerNumber>& excluded) const;
  static std::optional<WorkerNumber> choose_preferred(Set& set, const Job& job,
                                                      Candidate candidate);
  static void wait_beside(Set& set, Waiting& waiting);
  void pump(Set& set);
  bool apply_health(Worker& worker, fleet::HealthEvent event, const std::string& reason);
  bool has_usable_weighted(const std::string& model) const;
  TimePoint outage_begin(const std::string& model);
  void end_outages();
  std::optional<SetKey> choose(const Job& job);
  std::optional<SetKey> choose_by_weight(const std::string& model);
  awaitable<bool> wait_without_set(Deadline deadline);
  ApiError refuse_tier(const Set& set, Job& job);
  std::optional<ApiError> enter(Set& set, Waiting& waiting);
  ApiError overload(const Set& set, const Job& job, const char* code, const std::string& reason);

  boost::asio::any_io_executor executor;
  DispatchOptions options;
  Workers& workers;
  Metrics& metrics;
  std::map<SetKey, Set> sets;
  Suspects suspects;
  /// The models of which no set with a weight is usable, as far as there are requests for them.
  struct Outage {
    TimePoint since{};
    /// The set of weight 0 that has taken over.
    std::optional<SetKey> stand_in = {};
  };
  std::map<std::string, Outage> outages;
  /// The requests that wait, apart from all queues, until their model has a set that they may use.
  std::size_t without_set = 0;
  loop::Event sets_changed;
  plan::DegradationSetting level = plan::kDegradationLevels[0].setting;
  /// The workers that are no spares carry less than the demand.
  bool needs_spares = false;
  std::uint64_t ids = 0;
};

Dispatcher::Dispatcher(boost::asio::any_io_executor executor, DispatchOptions options,
                       Workers& workers, Metrics& metrics)
    : state_(std::make_unique<State>(std::move(executor), options, workers, metrics)) {}
Dispatcher::~Dispatcher() = default;

void Dispatcher::set_options(const DispatchOptions& options) {
  state_->options = options;
  for (auto& [key, set] : state_->sets) {
    set.queue.set_limits(options.queue);
    set.choice.set_policy(options.policy, options.choice);
  }
  state_->suspects.set_settings(options.poison);
}

Dispatcher::State::Set& Dispatcher::State::set(const SetKey& key) {
  const auto found = sets.find(key);
  if (found != sets.end()) return found->second;
  Set& added = sets.try_emplace(key, options, os::random_bits()).first->second;
  added.queue.set_level(level);
  refresh(key, added);
  return added;
}

bool Dispatcher::State::is_usable(const SetKey& key) const {
  const Workers::Set& members = workers.set(key);
  return !workers.lacks_prefill(key) &&
         std::any_of(members.begin(), members.end(),
                     [](const WorkerPtr& worker) { return worker->weight > 0; });
}

// Brings the choice up to date with the workers, their health and the level.
void Dispatcher::State::refresh(const SetKey& key, Set& set) {
  const Workers::Set& members = workers.set(key);
  std::vector<WorkerPtr> in;
  std::vector<fleet::SetMember> health;
  // The engines of a failover pair have the same URL.
  const auto has_another = [&](const WorkerPtr& spare, bool drains_itself) {
    return std::any_of(members.begin(), members.end(), [&](const WorkerPtr& other) {
      return other->life != Life::kSpare && other->url == spare->url &&
             other->drains_itself == drains_itself;
    });
  };
  const bool is_unweighted = !members.empty() && workers.weight_of(key) <= 0;
  if (is_unweighted && !set.is_unweighted) {
    os::log(os::LogLevel::kWarning, "model {}: the set with card {} has weight 0",
            base::quoted(key.model), base::quoted(key.card));
  }
  set.is_unweighted = is_unweighted;
  set.lacks_prefill = workers.lacks_prefill(key);
  // If no worker of the set has a pair, all stay in, so that answers that have begun may go on.
  const auto is_out = [&](const Worker& worker) {
    return !set.lacks_prefill && workers.lacks_pair(worker);
  };
  const auto add = [&](const WorkerPtr& worker) {
    if (is_out(*worker)) return;
    in.push_back(worker);
    health.push_back(worker->as_member(time_now()));
  };
  const bool was_usable = is_usable(key);
  bool lacks_one = std::ranges::all_of(
      members, [](const WorkerPtr& worker) { return worker->life == Life::kSpare; });
  for (const WorkerPtr& worker : members) {
    worker->weight = 0;
    worker->is_taking_over = false;
    if (worker->is_available()) add(worker);
    const bool has_weight =
        worker->is_available() && !is_out(*worker) && worker->as_member(time_now()).weight > 0;
    lacks_one |= worker->life != Life::kSpare && !has_weight;
  }
  const auto add_spares = [&](bool are_taking_over) {
    for (const WorkerPtr& worker : members) {
      const bool is_spare =
          worker->life == Life::kSpare && worker->is_reachable && !worker->is_drained;
      const bool is_free =
          !has_another(worker, false) && has_another(worker, true) == are_taking_over;
      if (!is_spare || !is_free) continue;
      worker->is_taking_over = are_taking_over;
      add(worker);
    }
  };
  if (lacks_one || needs_spares) add_spares(false);
  const bool has_one = std::any_of(health.begin(), health.end(),
                                   [](const fleet::SetMember& one) { return one.weight > 0; });
  if (!has_one) add_spares(true);
  const fleet::SetWeights weights = fleet::weights_of_set(health, options.max_out);
  for (std::size_t i = 0; i < in.size(); ++i) in[i]->weight = weights.weights[i];
  // The rate before an outage does not predict the rate after it.
  if (!was_usable && is_usable(key)) set.queue.forget_pace();
  if (is_usable(key)) {
    set.unusable_since.reset();
  } else if (!set.unusable_since) {
    set.unusable_since = Clock::now();
  }
  const bool is_in_panic = weights.kept_in > 0;
  if (is_in_panic && !set.is_in_panic) metrics.panics.add();
  set.is_in_panic = is_in_panic;
  set.has_refusals = false;
  set.in_probation.clear();
  std::ranges::copy_if(in, std::back_inserter(set.in_probation), [](const WorkerPtr& worker) {
    return worker->health.state() == HealthState::kProbation && worker->verdict.weight > 0;
  });
  std::uint64_t slots = 0;
  for (const WorkerPtr& worker : members) {
    slots += worker->slots;
    set.has_refusals |= !worker->refused.empty();
    set.workers[worker->number] = worker;
    set.choice.set_worker(worker->number, {.slots = worker->slots_now(level.concurrency_factor),
                                           .kv_tokens = worker->kv_tokens,
                                           .weight = worker->weight});
  }
  // All members were added above. If there are no more workers than members, all of them are
  // members.
  if (set.workers.size() > members.size()) {
    std::erase_if(set.workers, [&](const auto& entry) {
      const bool has_left =
          std::find(members.begin(), members.end(), entry.second) == members.end();
      if (has_left) set.choice.remove_worker(entry.first);
      return has_left;
    });
  }
  set.resumes.set_slots(slots, options.budget);
}

Dispatcher::State::Excluded Dispatcher::State::excluded(const Set& set, const Job& job) const {
  Excluded excluded;
  const bool is_suspect = suspects.is_suspect(job.number);
  const bool may_get_any = job.model == job.set.model && job.pinned_to.empty() &&
                           job.failed_on.empty() && !job.resume_until && !set.has_refusals &&
                           !is_suspect;
  if (may_get_any) return excluded;
  if (is_suspect) excluded.never = suspects.occupied();
  for (const auto& [number, worker] : set.workers) {
    const bool is_other = !job.pinned_to.empty() && worker->id != job.pinned_to;
    const bool is_refused =
        !worker->serves(job.model) || worker->refused.contains({job.model, job.request.api});
    const auto failure = job.failed_on.find(worker->id);
    const bool has_failed =
        failure != job.failed_on.end() && failure->second.incarnation == worker->incarnation;
    // An answer that has begun waits here and not at a worker, because here its client gets
    // comments.
    const bool must_wait = job.resume_until &&
                           (worker->is_taking_over || (has_failed && failure->second.is_fruitless));
    const TimePoint now = Clock::now();
    const bool is_busy =
        has_failed && (now < failure->second.until || worker->slot_limit.is_overloaded(now));
    const bool is_excluded = must_wait || is_busy;
    const bool can_continue = worker->can_continue(job.exchange.continues_as_text());
    if (is_other || is_refused || is_excluded || (job.resume_until && !can_continue)) {
      excluded.never.push_back(number);
    } else if (has_failed) {
      excluded.failed.push_back(number);
    } else if (worker->weight > 0) {
      excluded.has_others = true;
    }
  }
  return excluded;
}

// A worker in probation gets one request, before all others, unless the verdict forbids it.
WorkerPtr Dispatcher::State::find_probation(const Set& set, Job& job,
                                            const std::vector<WorkerNumber>& excluded) const {
  for (const WorkerPtr& worker : set.in_probation) {
    if (std::ranges::find(excluded, worker->number) != excluded.end()) continue;
    job.lease = worker->health.take_lease(time_now() + options.lease);
    if (job.lease) return worker;
  }
  return nullptr;
}

// The worker that has prepared to continue the job, if it has room.
std::optional<WorkerNumber> Dispatcher::State::choose_preferred(Set& set, const Job& job,
                                                                Candidate candidate) {
  if (job.preferred.empty()) return std::nullopt;
  std::vector<WorkerNumber> excluded(candidate.excluded.begin(), candidate.excluded.end());
  for (const auto& [number, worker] : set.workers) {
    if (worker->id != job.preferred) excluded.push_back(number);
  }
  candidate.excluded = excluded;
  return set.choice.choose(candidate);
}

// Whether others may be served before the job at the head of the queue: a worker has room, but must
// not get the job, or the job is larger than each cache, and needs a worker without requests.
bool Dispatcher::State::holds_up_others(const Set& set, const Job& job) const {
  if (set.lacks_prefill) return false;
  if (set.choice.is_oversized(job.tokens)) return true;
  return set.choice.has_room(job.tokens);
}

// Gives the job to a worker; false if none has room.
bool Dispatcher::State::take(Set& set, Job& job) {
  if (set.lacks_prefill && !job.resume_until) return false;
  const Excluded excluded = this->excluded(set, job);
  std::vector<WorkerNumber> all = excluded.never;
  all.insert(all.end(), excluded.failed.begin(), excluded.failed.end());
  if (take_without(set, job, all)) return true;
  // The client of an answer that has begun waits already, so it does not wait for the others.
  const bool may_fail_again = job.resume_until || !excluded.has_others;
  return may_fail_again && !excluded.failed.empty() && take_without(set, job, excluded.never);
}

bool Dispatcher::State::take_without(Set& set, Job& job,
                                     const std::vector<WorkerNumber>& excluded) {
  const Candidate candidate{.tokens = job.tokens, .prefixes = job.prefixes, .excluded = excluded};
  WorkerPtr worker = find_probation(set, job, excluded);
  if (!worker) {
    std::optional<WorkerNumber> number = choose_preferred(set, job, candidate);
    if (!number) number = set.choice.choose(candidate);
    if (!number) return false;
    worker = set.workers.at(*number);
  }
  set.choice.begin(worker->number, candidate);
  // Other suspects may be placed before this one is sent.
  if (suspects.is_suspect(job.number)) suspects.assign(job.number, worker->number);
  ++worker->requests;
  worker->tokens += job.tokens;
  job.worker = std::move(worker);
  return true;
}

// The job leaves the queue, and waits beside it.
void Dispatcher::State::wait_beside(Set& set, Waiting& waiting) {
  ++set.left_queue.requests;
  set.left_queue.tokens += waiting.job.tokens;
  waiting.has_left_queue = true;
  set.beside[waiting.job.tier].emplace(waiting.place, &waiting);
}

// Gives waiting requests to workers with room. A request that only certain workers may get does not
// hold up the requests that other workers may get.
void Dispatcher::State::pump(Set& set) {
  set.pumped_at = Clock::now();
  const auto resume = [&](std::uint64_t answer) {
    Waiting& waiting = *set.resuming.at(answer);
    if (!take(set, waiting.job)) return false;
    set.resuming.erase(answer);
    waiting.changed.notify();
    return true;
  };
  set.resumes.begin_next(resume, kMaxSought);
  std::array<std::size_t, plan::kTiers> failures{};
  const auto goes_on = [&] { return std::reduce(failures.begin(), failures.end()) < kMaxSought; };
  std::array<std::map<Waiting::Place, Waiting*>::iterator, plan::kTiers> at;
  std::ranges::transform(set.beside, at.begin(), [](auto& of_tier) { return of_tier.begin(); });
  std::array<bool, plan::kTiers> has_beside{};
  const auto next_tier = [&] {
    for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
      has_beside[tier] = at[tier] != set.beside[tier].end() && goes_on();
    }
    return set.queue.next_tier(has_beside);
  };
  // Without a free slot, no search can find a worker; it would only move `search_from`.
  const auto has_slot = [&] { return !set.in_probation.empty() || set.choice.has_room(0); };
  while (const std::optional<std::size_t> tier = has_slot() ? next_tier() : std::nullopt) {
    if (has_beside[*tier]) {
      Waiting& waiting = *at[*tier]->second;
      if (take(set, waiting.job)) {
        set.queue.charge(*tier, waiting.job.tokens);
        at[*tier] = set.beside[*tier].erase(at[*tier]);
        waiting.changed.notify();
      } else {
        ++at[*tier];
        // Beyond the first ones, the search goes on where the last one ended.
        auto& of_tier = set.beside[*tier];
        const bool is_beyond = ++failures[*tier] == kMaxFirst && at[*tier] != of_tier.end() &&
                               at[*tier]->first < set.search_from[*tier];
        if (is_beyond) at[*tier] = of_tier.lower_bound(set.search_from[*tier]);
      }
      continue;
    }
    const std::optional<QueuedRequest> head = set.queue.head();
    Waiting& waiting = *set.queued.at(head->id);
    if (take(set, waiting.job)) {
      set.queue.take(time_now());
      waiting.changed.notify();
    } else if (holds_up_others(set, waiting.job)) {
      set.queue.cancel(head->id, time_now());
      wait_beside(set, waiting);
    } else {
      break;
    }
    set.queued.erase(head->id);
  }
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
    const bool is_at_end = at[tier] == set.beside[tier].end();
    if (is_at_end) set.search_from[tier] = {};
    const bool has_rest = !is_at_end && !goes_on() && failures[tier] >= kMaxFirst;
    if (has_rest) set.search_from[tier] = at[tier]->first;
  }
}

// True if the worker has another state now.
bool Dispatcher::State::apply_health(Worker& worker, fleet::HealthEvent event,
                                     const std::string& reason) {
  const HealthState before = worker.health.state();
  worker.health.apply(event, time_now(), os::random_unit());
  const HealthState after = worker.health.state();
  if (after == before) return false;
  os::log(os::LogLevel::kWarning, "worker {}: {}{}", base::quoted(worker.name),
          fleet::to_string(after), reason.empty() ? "" : ": " + reason);
  if (after == HealthState::kUnhealthy) metrics.ejections.add();
  return true;
}

bool Dispatcher::State::has_usable_weighted(const std::string& model) const {
  const Workers::WeightedSets& of_model = workers.sets_of(model);
  return std::any_of(of_model.begin(), of_model.end(), [this](const auto& entry) {
    return entry.second > 0 && is_usable(entry.first);
  });
}

// Returns when the model's outage began. To be called for the first request that finds it.
TimePoint Dispatcher::State::outage_begin(const std::string& model) {
  std::optional<TimePoint> last;
  for (const auto& [key, weight] : workers.sets_of(model)) {
    if (weight > 0) last = std::max(last, set(key).unusable_since);
  }
  return last.value_or(Clock::now());
}

void Dispatcher::State::end_outages() {
  std::erase_if(outages, [this](const auto& entry) {
    const bool is_over = workers.sets_of(entry.first).empty() || has_usable_weighted(entry.first);
    if (is_over && entry.second.stand_in) {
      os::log(os::LogLevel::kInfo, "model {}: the set of weight 0 gets no more requests",
              base::quoted(entry.first));
    }
    return is_over;
  });
}

// The set for the job; nullopt if each one of its model has weight 0, and none has taken over.
std::optional<SetKey> Dispatcher::State::choose(const Job& job) {
  // Only an equal worker can continue an answer, and only one worker has an earlier response.
  if (job.resume_until) return job.set;
  const WorkerPtr pinned = job.pinned_to.empty() ? nullptr : workers.find(job.pinned_to);
  return pinned ? SetKey{pinned->model, pinned->card} : choose_by_weight(job.model);
}

std::optional<SetKey> Dispatcher::State::choose_by_weight(const std::string& model) {
  const Workers::WeightedSets& of_model = workers.sets_of(model);
  const auto usable = [this](const SetKey& key) { return is_usable(key); };
  const double draw = of_model.size() > 1 ? os::random_unit() : 0;
  std::optional<SetKey> key = choose_set(of_model, usable, false, draw);
  if (key) return key;
  const auto found = outages.find(model);
  Outage& outage =
      found != outages.end() ? found->second : outages[model] = {outage_begin(model), std::nullopt};
  if (options.uses_unweighted_sets && Clock::now() - outage.since > options.takeover) {
    key = choose_set(of_model, usable, true, draw);
    if (key && std::exchange(outage.stand_in, key) != key) {
      os::log(os::LogLevel::kWarning,
              "model {}: no set with a weight above 0 is usable: the set with card {} takes over",
              base::quoted(model), base::quoted(key->card));
    }
    if (key) return key;
  }
  // The request waits for the first worker that comes back to a set with a weight.
  const auto heaviest =
      std::max_element(of_model.begin(), of_model.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool has_weight = heaviest != of_model.end() && heaviest->second > 0;
  return has_weight ? std::optional(heaviest->first) : std::nullopt;
}

// False if too many wait already, or the deadline has passed.
awaitable<bool> Dispatcher::State::wait_without_set(Deadline deadline) {
  if (deadline.expired() || without_set >= options.queue.requests) co_return false;
  ++without_set;
  const base::Finally uncount([this] { --without_set; });
  co_await sets_changed.wait(deadline.sooner(Deadline::after(kLook)));
  co_return true;
}

ApiError Dispatcher::State::overload(const Set& set, const Job& job, const char* code,
                                     const std::string& reason) {
  return {.status = options.overload_status,
          .message = reason,
          .code = code,
          .param = kTierNames.at(job.tier),
          .retry_after = set.queue.retry_after(job.tier, os::random_unit())};
}

ApiError Dispatcher::State::refuse_tier(const Set& set, Job& job) {
  job.refusal_reason = RefusalReason::kLevel;
  ApiError refusal =
      overload(set, job, "capacity_shed", "requests of this tier are refused at present");
  // A level lasts at least that long.
  refusal.retry_after = set.queue.retry_after(kLevelTime, os::random_unit());
  return refusal;
}

// Puts the job into the queue, or beside it.
std::optional<ApiError> Dispatcher::State::enter(Set& set, Waiting& waiting) {
  Job& job = waiting.job;
  if (job.resume_until) {
    set.resumes.add(job.number, job.tier, job.resume_until->at()->time_since_epoch());
    set.resuming[job.number] = &waiting;
    return std::nullopt;
  }
  if (!is_from_queue(job)) {
    if (!std::exchange(job.is_admitted, true)) {
      if (level.admitted_share[job.tier] <= 0) return refuse_tier(set, job);
      if (set.queue.size() + set.count_beside() >= options.queue.requests) {
        return overload(set, job, "queue_full", "the queue is full");
      }
    }
    set.beside[job.tier].emplace(waiting.place, &waiting);
    return std::nullopt;
  }
  QueuedRequest request{.id = job.number, .tier = job.tier, .tokens = job.tokens};
  if (job.deadline.at()) request.deadline = job.deadline.at()->time_since_epoch();
  const SetQueue::Added added = set.queue.add(request, time_now(), set.left_queue);
  switch (added.answer) {
    case SetQueue::Answer::kQueued:
      break;
    case SetQueue::Answer::kTierRefused:
      return refuse_tier(set, job);
    case SetQueue::Answer::kTooLate:
      job.refusal_reason = RefusalReason::kDeadline;
      return overload(set, job, "capacity_shed", "the request would not be served in time");
    case SetQueue::Answer::kFull:
      return overload(set, job, "queue_full", "the queue is full");
  }
  job.is_admitted = true;
  set.queued[job.number] = &waiting;
  for (const std::uint64_t id : added.removed) {
    const auto removed = set.queued.find(id);
    removed->second->is_removed = true;
    removed->second->changed.notify();
    set.queued.erase(removed);
  }
  return std::nullopt;
}

awaitable<std::optional<ApiError>> Dispatcher::place(
    Job& job, const std::function<awaitable<void>()>& while_waiting) {
  State& state = *state_;
  if (job.number == 0) job.number = ++state.ids;
  const Deadline deadline =
      job.resume_until.value_or(Deadline::after(job.waiting_since() + timeout() - Clock::now()))
          .sooner(job.deadline);
  // Leaves the queue, and releases what it got, if the coroutine is cancelled meanwhile.
  struct Stay {
    Dispatcher& dispatcher;
    State::Set& set;
    State::Waiting& waiting;
    bool is_kept = false;
    ~Stay() {
      set.beside[waiting.job.tier].erase(waiting.place);
      if (waiting.has_left_queue) {
        --set.left_queue.requests;
        set.left_queue.tokens -= waiting.job.tokens;
      }
      set.resuming.erase(waiting.job.number);
      if (set.queued.erase(waiting.job.number) > 0)
        set.queue.cancel(waiting.job.number, time_now());
      if (!is_kept) {
        set.resumes.remove(waiting.job.number);
        dispatcher.release(waiting.job);
      }
    }
  };
  const auto has_lost_its_worker = [&] {
    return !job.pinned_to.empty() && !state.workers.find(job.pinned_to);
  };
  while (!job.is_killed) {
    if (has_lost_its_worker()) {
      job.refusal_reason = RefusalReason::kModel;
      co_return unknown_response(job.request.previous_response);
    }
    const std::optional<SetKey> key = state.choose(job);
    if (!key) {
      if (state.workers.sets_of(job.model).empty()) break;
      const bool has_waited = co_await state.wait_without_set(deadline);
      if (has_waited) continue;
      if (job.deadline.expired()) co_return deadline_passed();
      co_return ApiError{
          .status = 503,
          .message = "model " + base::quoted(job.model) + ": each set of its workers has weight 0",
          .code = "no_worker",
          .retry_after = std::clamp<base::Duration>(state.options.takeover, std::chrono::seconds(1),
                                                    state.options.queue.max_retry_after)};
    }
    job.set = *key;
    State::Set& set = state.set(*key);
    const bool is_refused =
        set.has_refusals && state.is_usable(*key) &&
        std::all_of(set.workers.begin(), set.workers.end(), [&](const auto& entry) {
          return entry.second->refused.contains({job.model, job.request.api});
        });
    if (is_refused) {
      co_return ApiError{.status = 502,
                         .message = "no worker accepts this router's requests for model " +
                                    base::quoted(job.model),
                         .code = "worker_misconfigured",
                         .should_retry = false};
    }
    const std::uint64_t p95 = set.lengths.p95(state.options.first_answer);
    job.tokens = job.prompt_tokens + std::min(job.request.max_tokens.value_or(p95), p95);
    State::Waiting waiting(job, state.executor);
    Stay stay{*this, set, waiting};
    std::optional<ApiError> refusal = state.enter(set, waiting);
    if (refusal) co_return refusal;
    state.pump(set);
    const auto is_over = [&] {
      return job.worker || job.is_killed || waiting.is_removed || deadline.expired() ||
             has_lost_its_worker();
    };
    bool is_stuck = false;
    // Changes may be frequent, and do not postpone this.
    Deadline look = deadline.sooner(Deadline::after(kLook));
    while (!is_over() && !is_stuck) {
      co_await waiting.changed.wait(look);
      if (!look.expired()) continue;
      look = deadline.sooner(Deadline::after(kLook));
      // The pause of an overloaded worker may be over.
      if (Clock::now() - set.pumped_at >= kLook / 2) state.pump(set);
      is_stuck = !job.resume_until && !state.is_usable(*key) && state.choose(job) != key;
      if (while_waiting && !is_over()) co_await while_waiting();
    }
    if (job.worker) {
      stay.is_kept = true;
      if (!job.had_worker) state.metrics.queue_time.observe(Clock::now() - job.received);
      job.had_worker = true;
      co_return std::nullopt;
    }
    if (!job.is_killed && job.deadline.expired()) {
      co_return deadline_passed();
    }
    if (!job.is_killed && set.lacks_prefill && deadline.expired()) {
      co_return ApiError{.status = 503,
                         .message = "model " + base::quoted(job.model) +
                                    ": no worker for prefill matches those for decode",
                         .code = "no_pair",
                         .retry_after = std::chrono::seconds(1)};
    }
    if (!job.is_killed && (waiting.is_removed || deadline.expired())) {
      const char* const reason =
          waiting.is_removed ? "the queue is full" : "no worker had room in time";
      co_return state.overload(set, job, "overloaded", reason);
    }
  }
  if (job.is_killed) co_return ApiError{.status = 503, .message = {}};
  co_return ApiError{.status = 503,
                     .message = "model " + base::quoted(job.model) + ": no worker is left",
                     .code = "no_worker",
                     .retry_after = std::chrono::seconds(1)};
}

void Dispatcher::release(Job& job, std::uint64_t answer_tokens) {
  if (!job.worker) return;
  const WorkerPtr worker = std::exchange(job.worker, nullptr);
  state_->set(job.set).resumes.remove(job.number);
  --worker->requests;
  worker->tokens -= job.tokens;
  if (job.lease) worker->health.end_lease(*std::exchange(job.lease, std::nullopt));
  state_->suspects.end_attempt(job.number);
  State::Set& set = state_->set(job.set);
  set.choice.end(worker->number, job.tokens);
  if (answer_tokens > 0) set.lengths.add(answer_tokens);
  state_->pump(set);
}

void Dispatcher::set_prompt_tokens(Job& job, std::uint64_t tokens) {
  if (!job.worker || tokens == job.prompt_tokens) return;
  const std::uint64_t before = job.tokens;
  job.tokens += tokens - job.prompt_tokens;
  job.prompt_tokens = tokens;
  job.worker->tokens += job.tokens - before;
  State::Set& set = state_->set(job.set);
  set.choice.resize(job.worker->number, before, job.tokens);
  if (job.tokens < before) state_->pump(set);
}

void Dispatcher::end_resume(Job& job) {
  State::Set& set = state_->set(job.set);
  set.resumes.remove(job.number);
  state_->pump(set);
}

base::Duration Dispatcher::timeout() const {
  return std::chrono::duration_cast<base::Duration>(state_->options.queue.timeout *
                                                    state_->level.deadline_factor);
}

Suspects& Dispatcher::suspects() { return state_->suspects; }

void Dispatcher::on_change() {
  for (const auto& [key, members] : state_->workers.sets()) static_cast<void>(state_->set(key));
  for (auto& [key, set] : state_->sets) {
    state_->refresh(key, set);
    state_->pump(set);
    set.notify_beside();
    for (const auto& [number, waiting] : set.resuming) waiting->changed.notify();
  }
  state_->end_outages();
  state_->sets_changed.notify();
}

void Dispatcher::add_health(const WorkerPtr& worker, fleet::HealthEvent event,
                            const std::string& reason) {
  if (state_->apply_health(*worker, event, reason)) on_change();
}

void Dispatcher::kill(Job& job) {
  job.is_killed = true;
  const auto wake = [&job](const std::map<std::uint64_t, State::Waiting*>& waiting) {
    const auto found = waiting.find(job.number);
    if (found != waiting.end()) found->second->changed.notify();
  };
  for (const auto& [key, set] : state_->sets) {
    wake(set.queued);
    wake(set.resuming);
    set.notify_beside();
  }
  state_->sets_changed.notify();
}

void Dispatcher::on_tick() {
  bool has_changed = false;
  for (const auto& [id, worker] : state_->workers.all()) {
    has_changed |= std::erase_if(worker->refused, [](const auto& refusal) {
                     return Clock::now() - refusal.second >= kRefusal;
                   }) > 0;
    // The weight of a healthy worker rises after a probation.
    const bool is_settled =
        worker->weight == 0 || worker->weight == worker->as_member(time_now()).weight;
    if (worker->health.state() == HealthState::kHealthy && is_settled) continue;
    state_->apply_health(*worker, fleet::HealthEvent::kTime, {});
    has_changed = true;
  }
  if (has_changed) on_change();
}

void Dispatcher::set_ratio(double ratio) {
  const bool needs_spares = ratio < 1;
  if (std::exchange(state_->needs_spares, needs_spares) != needs_spares) on_change();
}

void Dispatcher::set_level(const plan::DegradationSetting& setting) {
  state_->level = setting;
  for (auto& [key, set] : state_->sets) set.queue.set_level(setting);
  on_change();
}

std::set<SetKey> Dispatcher::used_sets() const {
  const State& state = *state_;
  std::set<SetKey> used;
  for (const std::string& model : state.workers.models()) {
    const Workers::WeightedSets& of_model = state.workers.sets_of(model);
    for (const auto& [key, weight] : of_model) {
      if (weight > 0 && !state.workers.lacks_prefill(key)) used.insert(key);
    }
    // The set that is about to take over counts, too. Otherwise the requests that wait for it would
    // be refused, because no capacity is left.
    if (!state.options.uses_unweighted_sets || state.has_usable_weighted(model)) continue;
    const auto is_usable = [&](const SetKey& key) { return state.is_usable(key); };
    if (const std::optional<SetKey> key = choose_set(of_model, is_usable, true, 0)) {
      used.insert(*key);
    }
  }
  return used;
}

QueueGauge Dispatcher::queued(const SetKey& key) const {
  const auto found = state_->sets.find(key);
  if (found == state_->sets.end()) return {};
  const State::Set& set = found->second;
  QueueGauge queued;
  queued.requests = set.queue.size() + set.count_beside() + set.resuming.size();
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) queued.tokens += set.queue.tokens(tier);
  if (const auto since = set.queue.oldest_arrival()) queued.oldest_age = time_now() - *since;
  for (const auto& of_tier : set.beside) {
    for (const auto& [place, waiting] : of_tier) {
      queued.tokens += waiting->job.tokens;
      const base::Duration age = Clock::now() - waiting->job.received;
      queued.oldest_age = std::max(queued.oldest_age.value_or(age), age);
    }
  }
  for (const auto& [number, waiting] : set.resuming) queued.tokens += waiting->job.tokens;
  return queued;
}

}  // namespace fo::route
