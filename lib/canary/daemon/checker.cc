#include "canary/daemon/checker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "canary/daemon/gpu_errors.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/file/random.h"
#include "os/log.h"

namespace fo::canary {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

constexpr double kFirstTokenFactor = 5;

Deadline at_steady(base::Duration time) { return Deadline::after(time - now().steady); }

bool is_suspect(const Worker& worker) {
  const fleet::HealthState state = worker.health.state();
  return state == fleet::HealthState::kSuspicious || state == fleet::HealthState::kProbation;
}

bool includes(const std::vector<Step>& steps, Step step) {
  return std::ranges::find(steps, step) != steps.end();
}

// The ballots of one vote, as they arrive.
struct Poll {
  explicit Poll(const boost::asio::any_io_executor& executor) : changed(executor) {}
  std::vector<Ballot> ballots;
  std::size_t missing = 0;
  loop::Event changed;
};

awaitable<void> ask_juror(std::shared_ptr<Poll> poll, WorkerPtr juror, Canary canary,
                          std::vector<TokenId> suspect, bool uses_sampler, AttemptRules rules) {
  std::optional<std::vector<TokenId>> answer;
  Question question{.prompt = canary.prompt, .max_tokens = canary.max_tokens};
  question.has_logprobs = !uses_sampler;
  question.uses_sampler = uses_sampler;
  const Deadline deadline = Deadline::after(rules.timeout);
  const EngineAddress engine = juror->engine;
  const Reply reply = co_await ask(engine, std::move(question), rules.timeout, deadline);
  // The juror may have been convicted meanwhile.
  const bool may_judge = !juror->health.is_convicted();
  if (reply.error == AskError::kNone && may_judge) answer = reply.answer.ids();
  poll->ballots.push_back(ballot_of(canary, suspect, answer));
  --poll->missing;
  poll->changed.notify();
}

}  // namespace

Checker::Checker(boost::asio::any_io_executor executor, CheckerOptions options, Workers& workers,
                 std::function<void(const std::string& id)> on_checked)
    : executor_(std::move(executor)),
      options_(options),
      workers_(workers),
      on_checked_(std::move(on_checked)) {}

void Checker::watch(const WorkerPtr& worker) {
  const auto event = std::make_shared<loop::Event>(executor_);
  events_[worker->id] = event;
  loop::spawn(executor_, run(worker, event));
}

void Checker::on_removed(const WorkerPtr& worker) {
  const auto found = events_.find(worker->id);
  if (found == events_.end()) return;
  found->second->notify();
  events_.erase(found);
}

void Checker::fail(const WorkerPtr& worker, Step step, Attempt attempt) {
  const Now at = now();
  workers_.note(*worker, step, attempt, at);
  const bool is_neutral = attempt.outcome == Outcome::kNeutral;
  const std::string reason = std::string(to_string(attempt.outcome)) + ": " + attempt.reason;
  workers_.find(*worker, is_neutral ? Finding::kNeutral : Finding::kFault, {.reason = reason}, at);
}

awaitable<void> Checker::run(WorkerPtr worker, std::shared_ptr<loop::Event> event) {
  while (!worker->is_removed) {
    co_await event->wait(at_steady(worker->schedule.next()));
    if (worker->is_removed) break;
    Now at = now();
    const std::vector<Step> due = worker->schedule.due(at.steady);
    if (due.empty()) continue;
    workers_.advance(*worker, at);
    const bool content_is_due = includes(due, Step::kContent);
    if (worker->is_checked()) {
      const bool is_reachable = co_await check_reachable(worker, due);
      if (is_reachable && content_is_due && worker->canaries != nullptr) {
        co_await check_content(worker);
      } else if (is_reachable && includes(due, Step::kToken) &&
                 !(worker->load && worker->load->is_busy())) {
        co_await check_token(worker);
      }
    }
    if (worker->is_removed) break;
    at = now();
    workers_.remove_ended(*worker, at);
    if (worker->is_removed) break;
    worker->schedule.done(due, at.steady);
    if (is_suspect(*worker)) worker->schedule.hurry(at.steady);
    if (content_is_due && worker->is_checked()) on_checked_(worker->id);
  }
}

// Connects, and queries what is due. Returns false if the check must end with that.
awaitable<bool> Checker::check_reachable(WorkerPtr worker, const std::vector<Step>& due) {
  const Clock::time_point begin = Clock::now();
  const bool asks_health = includes(due, Step::kHealth);
  const bool asks_load = includes(due, Step::kProgress) || includes(due, Step::kToken);
  const EngineAddress engine = worker->engine;
  const Deadline deadline = Deadline::after(options_.rules.probe_timeout);
  const Probe result = co_await probe(engine, asks_health, deadline);
  std::optional<EngineLoad> load;
  if (asks_load && result.error == AskError::kNone) {
    // A loaded engine may be slow to count its requests.
    const Deadline load_by = Deadline::after(options_.rules.probe_timeout);
    load = co_await ask_load(engine, load_by);
  }
  if (worker->is_removed) co_return false;
  const Now at = now();
  Attempt attempt{.took = Clock::now() - begin};
  worker->is_down = result.error == AskError::kDown;
  if (!result.is_connection_refused) {
    worker->refused_since.reset();
  } else if (!worker->refused_since) {
    worker->refused_since = at.steady;
  }
  if (worker->is_down) {
    worker->progress.reset();
    worker->load.reset();
    attempt.outcome = Outcome::kDown;
    attempt.reason = result.reason;
    fail(worker, Step::kConnect, std::move(attempt));
    co_return false;
  }
  if (result.error == AskError::kRefused) {
    attempt.outcome = Outcome::kNeutral;
    attempt.reason = result.reason;
    fail(worker, Step::kConnect, std::move(attempt));
    co_return false;
  }
  workers_.note(*worker, Step::kConnect, attempt, at);
  // The engine did not confirm its health.
  if (result.error != AskError::kNone && asks_health) {
    attempt.outcome = outcome_of(result.error);
    attempt.reason = result.reason;
    fail(worker, Step::kHealth, std::move(attempt));
    co_return false;
  }
  if (asks_health) workers_.note(*worker, Step::kHealth, attempt, at);
  if (!asks_load) co_return true;
  worker->load = load;
  if (!load) {
    worker->progress.reset();
    co_return true;
  }
  const Progress progress = worker->progress.update(*load, at.steady);
  if (progress.is_hung(options_.hung_after)) {
    attempt.outcome = Outcome::kHung;
    attempt.reason = progress.reason();
    fail(worker, Step::kProgress, std::move(attempt));
    co_return false;
  }
  workers_.note(*worker, Step::kProgress, attempt, at);
  if (progress.has_moved) workers_.find_tokens(*worker, at);
  co_return true;
}

awaitable<void> Checker::check_token(WorkerPtr worker) {
  Baseline& baseline = worker->baselines.first_token;
  base::Duration limit = options_.first_token;
  if (baseline.count > 0) {
    limit =
        std::max(limit, std::chrono::duration_cast<base::Duration>(
                            std::chrono::duration<double>(kFirstTokenFactor * baseline.average)));
  }
  const EngineAddress engine = worker->engine;
  const Attempt attempt = co_await ask_token(engine, limit, options_.rules, baseline);
  if (worker->is_removed) co_return;
  if (attempt.outcome != Outcome::kPass) {
    fail(worker, Step::kToken, attempt);
    co_return;
  }
  workers_.note(*worker, Step::kToken, attempt, now());
  workers_.find_tokens(*worker, now());
}

void Checker::on_vote(Worker& worker, const std::string& canary, Decision decision) {
  workers_.decided(decision);
  if (decision == Decision::kStale) {
    worker.canaries->set_stale(true);
    os::log(
        os::LogLevel::kError,
        "canary_stale: all workers of model {} answer canary {} in the same way, and not as the "
        "file: the model has changed, or the file belongs to another model",
        base::quoted(worker.canaries->file.model), base::quoted(canary));
  } else if (decision == Decision::kUndecided) {
    os::log(os::LogLevel::kError,
            "worker {}: wrong tokens at canary {}, and its set has no majority",
            base::quoted(worker.id), base::quoted(canary));
  }
}

awaitable<void> Checker::check_content(WorkerPtr worker) {
  const bool runs_sampler = worker->runs_sampler(options_.sampler_part, os::random_unit());
  std::optional<Conclusion> conclusion = co_await question(worker, false);
  if (runs_sampler && conclusion && conclusion->finding == Finding::kPass) {
    conclusion = co_await question(worker, true);
  }
  if (conclusion) workers_.find_answer(*worker, *conclusion, now());
}

// Asks a question, with its repetitions. nullopt if the worker or its file has changed meanwhile.
awaitable<std::optional<Conclusion>> Checker::question(WorkerPtr worker, bool uses_sampler) {
  using Next = Repetitions::Next;
  Canaries* const canaries = worker->canaries;
  const CanaryFile& file = canaries->file;
  const Canary* canary = &draw_canary(file, "", os::random_unit());
  const auto is_over = [&] { return worker->is_removed || worker->canaries != canaries; };
  // When the model of a whole set changes, and back, the suspect and its jurors may have answered
  // with different models.
  const std::uint64_t stale_changes = canaries->stale_changes;
  const auto mismatch_says_nothing = [&] {
    return canaries->is_stale || canaries->stale_changes != stale_changes;
  };
  const Conclusion neutral;
  Repetitions repetitions(options_.retries);
  for (;;) {
    const EngineAddress engine = worker->engine;
    const Attempt result =
        co_await attempt(engine, *canary, uses_sampler, options_.rules, worker->baselines.answer);
    if (is_over()) co_return std::nullopt;
    workers_.note(*worker, Step::kContent, result, now());
    if (result.outcome == Outcome::kMismatch && mismatch_says_nothing()) co_return neutral;
    const Next next = repetitions.add(result);
    if (next == Next::kVote) {
      Decision decision = Decision::kUndecided;
      if (!workers_.is_convicted(worker->id)) {
        decision = co_await vote(worker, *canary, repetitions.suspect());
      }
      if (is_over()) co_return std::nullopt;
      // An error of its GPU may have convicted the worker, even during the vote. Its health then
      // does not change, and the vote says nothing about the canaries, but the worker owes an
      // answer.
      if (workers_.is_convicted(worker->id)) {
        Conclusion fault{.finding = Finding::kFault, .attempt = repetitions.suspect()};
        co_return fault;
      }
      if (mismatch_says_nothing()) co_return neutral;
      on_vote(*worker, canary->name, decision);
      repetitions.decide(decision);
    }
    if (next == Next::kVote || next == Next::kDone) break;
    co_await loop::pause_for(options_.retry_pause);
    if (is_over()) co_return std::nullopt;
    if (next == Next::kAnother) canary = &draw_canary(file, canary->name, os::random_unit());
  }
  Conclusion conclusion = repetitions.conclusion();
  if (conclusion.finding == Finding::kWeak && conclusion.attempt.outcome == Outcome::kSlow) {
    conclusion.cause = cause_of_slow(*worker, std::move(conclusion.cause), now());
  }
  co_return conclusion;
}

awaitable<Decision> Checker::vote(WorkerPtr worker, const Canary& canary, Attempt mismatch) {
  const std::vector<WorkerPtr> jurors = workers_.jurors_of(*worker, kMaxJurors, now());
  const auto poll = std::make_shared<Poll>(executor_);
  poll->missing = jurors.size();
  for (const WorkerPtr& juror : jurors) {
    loop::spawn(executor_, ask_juror(poll, juror, canary, mismatch.tokens, mismatch.uses_sampler,
                                     options_.rules));
  }
  // A little longer than a juror may take.
  const Deadline deadline = Deadline::after(options_.rules.timeout + options_.rules.probe_timeout);
  while (poll->missing > 0 && !deadline.expired()) co_await poll->changed.wait(deadline);
  co_return decide(poll->ballots);
}

}  // namespace fo::canary
