#include "route/moves.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "http/client.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "route/answer/outcome.h"
#include "route/resume/kv_move.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

// A worker pulls a KV cache for 30 s at most.
constexpr base::Duration kTransferTimeout = std::chrono::seconds(40);
// A worker that hands over to its standby may accept no connection.
constexpr base::Duration kOfferTimeout = std::chrono::seconds(2);
// Time limit for the tokens of a snapshot to arrive here, and the interval of that check. An event
// for each token of each stream would cost more.
constexpr base::Duration kArrivalTimeout = std::chrono::seconds(2);
constexpr base::Duration kArrivalCheck = std::chrono::milliseconds(2);
constexpr int kNoRoom = 503;
// After a failed move, until the next one begins.
constexpr base::Duration kMinMovePause = std::chrono::milliseconds(500);
constexpr base::Duration kMaxMovePause = std::chrono::seconds(8);

// A worker that prepares to continue a job: its place counts before it has the job, so that moves
// that begin together go to different workers.
class Target {
 public:
  Target(WorkerPtr worker, std::uint64_t tokens) : worker_(std::move(worker)), tokens_(tokens) {
    ++worker_->incoming_requests;
    worker_->incoming_tokens += tokens_;
  }
  Target(Target&& other) noexcept = default;
  Target& operator=(Target other) noexcept {
    std::swap(worker_, other.worker_);
    std::swap(tokens_, other.tokens_);
    return *this;
  }
  ~Target() {
    if (!worker_) return;
    --worker_->incoming_requests;
    worker_->incoming_tokens -= tokens_;
  }
  Worker* operator->() const { return worker_.get(); }
  Worker& operator*() const { return *worker_; }

 private:
  WorkerPtr worker_;
  std::uint64_t tokens_;
};

// A move in progress. Its job may end meanwhile, or lose its old worker.
struct Move {
  std::shared_ptr<RouterParts> parts;
  std::string id;
  unsigned attempts;
  WorkerPtr source;
  Target target;
};

// The result of a transfer.
struct KvTransfer {
  /// The id of the KV cache on the target; empty: it has none.
  std::string snapshot = {};
  /// Why there is none.
  std::string reason = {};
  bool lacks_room = false;
};

std::uint64_t load_of(const Worker& worker) { return worker.requests + worker.incoming_requests; }

bool has_room(const RouterParts& parts, const Worker& worker, const Job& job) {
  const double factor = parts.level.setting().concurrency_factor;
  if (load_of(worker) >= worker.slots_now(factor)) return false;
  return !worker.kv_tokens || load_of(worker) == 0 ||
         worker.tokens + worker.incoming_tokens + job.tokens <= *worker.kv_tokens;
}

// The worker with the least requests that could continue the job, and has not failed to prepare for
// it. Of a failover pair, both records have the same URL.
WorkerPtr find_target(const RouterParts& parts, const Job& job) {
  WorkerPtr target;
  for (const WorkerPtr& worker : parts.workers.set(job.set)) {
    const bool can_continue = worker->can_continue(job.exchange.continues_as_text());
    const bool is_usable = worker->url != job.worker->url && worker->weight > 0 && can_continue &&
                           !job.failed_targets.contains(worker->id) &&
                           has_room(parts, *worker, job);
    if (is_usable && (!target || load_of(*worker) < load_of(*target))) target = worker;
  }
  return target;
}

// The job that moves; nullptr if it is not with its old worker any more.
Job* find_job(const Move& move) {
  const auto found = move.parts->jobs.find(move.id);
  if (found == move.parts->jobs.end()) return nullptr;
  Job& job = *found->second;
  const bool is_there = !job.exchange.is_on_thread() && job.call != nullptr &&
                        job.worker == move.source && job.attempts == move.attempts &&
                        job.cut_reason == Job::CutReason::kNothing;
  return is_there ? &job : nullptr;
}

// Sends a request of the move to one of its workers.
awaitable<http::Response> send(const Move& move, const Job& job, Worker& worker, std::string method,
                               std::string target, std::string body, Deadline deadline) {
  http::FetchOptions options{.body = std::move(body),
                             .headers = move.parts->worker_headers(job, worker)};
  return http::async_fetch(std::move(method), worker.origin, worker.base_path + target, deadline,
                           std::move(options));
}

std::string reason_of(const http::Response& answer) {
  return "status " + std::to_string(answer.status);
}

// Waits until the continuation has all tokens of the snapshot; false if it does not get them.
awaitable<bool> until_arrived(const Move& move, std::uint64_t tokens) {
  const Deadline deadline = Deadline::after(kArrivalTimeout);
  for (;;) {
    const Job* const job = find_job(move);
    if (job == nullptr) co_return false;
    const Transcript& transcript = job->exchange.resumption().transcript();
    if (transcript.prompt().size() + transcript.safe_point() >= tokens) co_return true;
    if (deadline.expired()) co_return false;
    co_await loop::pause_for(kArrivalCheck);
  }
}

// The old worker's record may have changed since the request began: then its address is not one
// that the target should read from.
bool is_in_set(const RouterParts& parts, const Job& job) {
  const Workers::Set& set = parts.workers.set(job.set);
  return std::find(set.begin(), set.end(), job.worker) != set.end();
}

// Has the target pull the KV cache, if that is the faster way.
awaitable<KvTransfer> transfer(const Move& move) {
  const Job* job = find_job(move);
  const bool is_known = job != nullptr && is_in_set(*move.parts, *job);
  if (!is_known) co_return KvTransfer{.reason = "the old worker is not in its set any more"};
  if (job->exchange.continues_as_text()) {
    co_return KvTransfer{.reason = "the old worker does not report token ids"};
  }
  const std::optional<std::string> source = kv_source_of(*move.source);
  if (!source) co_return KvTransfer{.reason = "the old worker has TLS or a prefix in its URL"};
  const Deadline offered_by = Deadline::after(kOfferTimeout);
  std::string target = "/kv_snapshot?request_id=" + move.id;
  std::string body;
  const http::Response offered = co_await send(move, *job, *move.source, "GET", std::move(target),
                                               std::move(body), offered_by);
  if (offered.status != 200) {
    co_return KvTransfer{.reason = "the old worker offers no KV cache: " + reason_of(offered)};
  }
  const KvOffer offer = read_kv_offer(offered.body);
  job = find_job(move);
  if (job == nullptr) co_return KvTransfer{.reason = "the old worker has ended it"};
  if (!is_same_sequence(offer.tokens, job->exchange.resumption().transcript().all())) {
    co_return KvTransfer{.reason = "the old worker offers the KV cache of other tokens"};
  }
  const plan::Migration migration =
      migration_of(offer, *move.target, move.parts->options.resume.moves);
  std::string slower = reason_for_replay(migration, offer.tokens.size());
  if (!slower.empty()) co_return KvTransfer{.reason = std::move(slower)};
  const nlohmann::json query{{"source", *source}, {"request_id", move.id}};
  const auto began = Clock::now();
  const Deadline deadline = Deadline::after(kTransferTimeout);
  target = "/kv_snapshot/pull";
  body = query.dump();
  const http::Response pulled =
      co_await send(move, *job, *move.target, "POST", std::move(target), std::move(body), deadline);
  if (pulled.status != 200) {
    co_return KvTransfer{
        .reason = "the new worker has not pulled the KV cache: " + reason_of(pulled),
        .lacks_room = pulled.status == kNoRoom};
  }
  KvSnapshot snapshot = read_kv_snapshot(pulled.body);
  add_transfer(*move.target, snapshot.bytes, Clock::now() - began);
  const bool has_arrived = co_await until_arrived(move, snapshot.tokens);
  if (!has_arrived) co_return KvTransfer{.reason = "the tokens of the KV cache have not arrived"};
  os::log(os::LogLevel::kInfo, "request {}: the KV cache of {} tokens is on worker {}",
          base::quoted(move.id), snapshot.tokens, base::quoted(move.target->name));
  co_return KvTransfer{.snapshot = std::move(snapshot.id)};
}

awaitable<KvTransfer> try_transfer(const Move& move) {
  std::string reason;
  try {
    co_return co_await transfer(move);
  } catch (const base::Error& error) {
    reason = error.what();
  }
  co_return KvTransfer{.reason = std::move(reason)};
}

// Has the target compute the answer so far. Returns the reason of a failure; empty if there is
// none.
awaitable<std::string> warm(const Move& move) {
  const Job* const job = find_job(move);
  if (job == nullptr) co_return "the old worker has ended it";
  const Resumption& resumption = job->exchange.resumption();
  const bool as_text = resumption.continues_as_text();
  const std::uint64_t tokens =
      as_text ? job->prompt_tokens + job->exchange.delivered_tokens()
              : resumption.transcript().prompt().size() + resumption.transcript().tokens();
  std::string body = resumption.warming_body();
  std::string target = as_text ? job->request.target : "/v1/completions";
  const Deadline deadline = Deadline::after(move.parts->options.times.first_token_limit(tokens));
  std::string reason;
  try {
    const auto began = Clock::now();
    const http::Response answer = co_await send(move, *job, *move.target, "POST", std::move(target),
                                                std::move(body), deadline);
    if (answer.status == 200) {
      // The number of a text's tokens is an estimate.
      if (!as_text) add_prefill(*move.target, tokens, Clock::now() - began);
      co_return std::string();
    }
    reason = reason_of(answer);
  } catch (const base::Error& error) {
    reason = error.what();
  }
  co_return reason;
}

// Prepares the target, and cuts the job's present call.
awaitable<void> run(Move move) {
  KvTransfer transferred = co_await try_transfer(move);
  Job* job = find_job(move);
  std::string failure;
  if (job != nullptr && transferred.snapshot.empty()) {
    os::log(os::LogLevel::kInfo, "request {}: its tokens are computed again: {}",
            base::quoted(move.id), transferred.reason);
    if (transferred.lacks_room) {
      job->failed_targets.insert(move.target->id);
      WorkerPtr other = find_target(*move.parts, *job);
      if (other) move.target = Target(std::move(other), job->tokens);
    }
    failure = co_await warm(move);
    job = find_job(move);
  }
  // The end of the job's attempt has ended the move.
  if (job == nullptr) co_return;
  // The output of a convicted worker must not be continued.
  if (move.source->is_convicted()) {
    job->moving_since.reset();
    co_return;
  }
  if (!failure.empty()) {
    os::log(os::LogLevel::kWarning, "request {}: not moved to worker {}: {}", base::quoted(move.id),
            base::quoted(move.target->name), failure);
    job->moving_since.reset();
    job->failed_targets.insert(move.target->id);
    if (!job->move_backoff) job->move_backoff.emplace(kMinMovePause, kMaxMovePause);
    job->next_move = Clock::now() + job->move_backoff->next();
    co_return;
  }
  job->preferred = move.target->id;
  job->snapshot = std::move(transferred.snapshot);
  job->cut_reason = Job::CutReason::kMove;
  job->call->cut();
}

// False if no worker could continue the job.
bool begin_move(const std::shared_ptr<RouterParts>& parts, Job& job) {
  WorkerPtr target = find_target(*parts, job);
  if (!target) {
    // A worker that has failed may be able to do it now.
    job.failed_targets.clear();
    return false;
  }
  job.moving_since = Clock::now();
  Move move{parts, job.id, job.attempts, job.worker, Target(std::move(target), job.tokens)};
  loop::spawn(parts->executor, run(std::move(move)));
  return true;
}

// A job that is being resumed can move again once its worker has brought a token, because then its
// last move is complete.
bool can_move(const RouterParts& parts, const Job& job) {
  if (job.exchange.is_on_thread()) return false;
  const bool is_resuming = job.resume_until && !job.has_progressed;
  const bool may_move = parts.options.resume.enabled && !is_resuming && job.exchange.has_part() &&
                        job.exchange.form() != Exchange::RequestForm::kAsGiven;
  return may_move && job.exchange.resume_refusal().empty();
}

// The highest tier is first, then the earliest deadline.
bool moves_before(const Job* a, const Job* b) {
  const auto deadline = [](const Job* job) {
    return job->deadline.at().value_or(TimePoint::max());
  };
  return std::tuple(a->tier, deadline(a), a->number) < std::tuple(b->tier, deadline(b), b->number);
}

}  // namespace

void move_requests(const std::shared_ptr<RouterParts>& parts) {
  // Number of requests of each worker that may move at a time.
  std::map<const Worker*, std::size_t> left;
  for (const auto& [id, worker] : parts->workers.all()) {
    if (!worker->is_leaving()) {
      worker->leaving_since.reset();
    } else if (!worker->leaving_since) {
      worker->leaving_since = Clock::now();
    } else if (Clock::now() - *worker->leaving_since >= parts->options.resume.drain / 2) {
      left[worker.get()] = ResumeBudget::max_running(worker->slots, parts->options.dispatch.budget);
    }
  }
  std::vector<Job*> waiting;
  for (const auto& [id, job] : parts->jobs) {
    if (job->call == nullptr || job->cut_reason != Job::CutReason::kNothing) continue;
    if (job->worker->is_convicted()) {
      job->cut_reason = Job::CutReason::kConviction;
      job->call->cut();
      continue;
    }
    const auto moves = left.find(job->worker.get());
    if (moves == left.end()) continue;
    if (!job->moving_since) {
      if (Clock::now() >= job->next_move && can_move(*parts, *job)) waiting.push_back(job);
    } else if (moves->second > 0) {
      --moves->second;
    }
  }
  std::sort(waiting.begin(), waiting.end(), moves_before);
  for (Job* const job : waiting) {
    std::size_t& moves = left[job->worker.get()];
    if (moves > 0 && begin_move(parts, *job)) --moves;
  }
}

}  // namespace fo::route
