#include "route/attempts.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/finally.h"
#include "base/text.h"
#include "fleet/health.h"
#include "http/connection.h"
#include "http/sse.h"
#include "loop/pause.h"
#include "os/file/random.h"
#include "os/log.h"
#include "route/answer/outcome.h"
#include "route/request/api_error.h"
#include "route/resume/kv_move.h"
#include "route/resume/resumption.h"
#include "route/resume/text/seam.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using RequestForm = Exchange::RequestForm;
using Clock = Deadline::Clock;
using http::Reply;
using http::Response;

constexpr const char* kWorkerLost = "worker_lost";
// Pause before a request goes again to a worker that was busy, or that has failed it without
// progress: a process that is ending may accept connections for a while, and reset them.
constexpr base::Duration kPauseAfterFailure = std::chrono::seconds(1);
// Interval in which a retry checks the budget. Any request may make room for a retry, but to wake
// all that wait for each request would cost more.
constexpr base::Duration kBudgetLook = std::chrono::milliseconds(50);
// Workers that may fail an answer that has begun, without a token in between.
constexpr unsigned kMaxFruitlessResumes = 3;

std::optional<base::Duration> read_retry_after(const http::ResponseHead& head) {
  const std::optional<std::uint64_t> count =
      base::parse_uint(head.header("retry-after").value_or(""));
  if (!count) return std::nullopt;
  return std::chrono::seconds(std::min<std::uint64_t>(*count, 3600));
}

// That of a fault depends on the fault.
AttemptEnd end_of(CallEnd end) {
  switch (end) {
    case CallEnd::kDone:
    case CallEnd::kFault:
      return AttemptEnd::kComplete;
    case CallEnd::kRefused:
      return AttemptEnd::kRefused;
    case CallEnd::kExhausted:
      return AttemptEnd::kExhausted;
    case CallEnd::kNotTrusted:
      return AttemptEnd::kBroken;
    case CallEnd::kHung:
    case CallEnd::kSilent:
      return AttemptEnd::kStalled;
    case CallEnd::kNoFirstToken:
      return AttemptEnd::kNoFirstToken;
    case CallEnd::kDeadline:
    case CallEnd::kCut:
      return AttemptEnd::kDeadline;
  }
  return AttemptEnd::kComplete;
}

Attempt facts_of(CallEnd end, const Exchange& exchange, bool others_moved) {
  Attempt attempt{.end = end_of(end), .others_moved = others_moved};
  if (end != CallEnd::kFault) return attempt;
  attempt.end = end_of(exchange.fault()->kind);
  attempt.status = exchange.fault()->status;
  attempt.error_code = exchange.fault()->error_code;
  attempt.retry_after = read_retry_after(exchange.head());
  return attempt;
}

// The error of a request that no worker has answered.
ApiError error_of(const Job& job, const Attempt& attempt, const std::string& reason) {
  if (job.is_killed) {
    return {.status = 503,
            .message = "an operator ended the request",
            .code = "request_killed",
            .should_retry = false};
  }
  if (attempt.end == AttemptEnd::kDeadline) {
    return deadline_passed();
  }
  if (attempt.end == AttemptEnd::kNoFirstToken) {
    return {.status = 504, .message = "no worker has answered in time", .code = "timeout"};
  }
  if (attempt.end == AttemptEnd::kExhausted) {
    return {.status = 503,
            .message = "this router has no descriptor or memory left for a connection",
            .code = "overloaded",
            .retry_after = std::chrono::seconds(1)};
  }
  return {.status = 502, .message = "the worker failed: " + reason, .code = kWorkerLost};
}

ApiError poison_error(const PoisonSettings& settings) {
  return {.status = 422,
          .message = std::to_string(settings.deaths) +
                     " engines died while they served this request; it is refused for " +
                     base::format_duration(settings.time),
          .code = "poison_request",
          .should_retry = false};
}

// Whether the worker does not accept the request as it is.
bool is_refusal(const Attempt& attempt) {
  return attempt.end == AttemptEnd::kStatus && (attempt.status == 400 || attempt.status == 422);
}

// Whether the worker has answered with an error, and not because it has no room at present.
bool is_answered(const Attempt& attempt) {
  const bool is_error = attempt.end == AttemptEnd::kStatus ||
                        attempt.end == AttemptEnd::kErrorFrame ||
                        attempt.end == AttemptEnd::kAborted;
  return is_error && classify(attempt).kind != OutcomeClass::kBackpressure;
}

// Returns the reason for which an answer that had begun lost its worker.
LossReason loss_of(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kAborted:
    case AttemptEnd::kErrorFrame:
    case AttemptEnd::kStatus:
      return LossReason::kError;
    case AttemptEnd::kStalled:
    case AttemptEnd::kNoFirstToken:
      return LossReason::kStalled;
    default:
      return LossReason::kBroken;
  }
}

// The attempts of one request.
class Attempts {
 public:
  Attempts(RouterParts& parts, Job& job, Reply& reply)
      : parts_(parts), job_(job), reply_(reply), exchange_(job.exchange) {}
  ~Attempts() { parts_.dispatcher.suspects().remove(job_.number); }
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  awaitable<void> run();

 private:
  // The answer of a worker that failed in a way that may be the request's own fault.
  struct Suspect {
    WorkerPtr worker;
    Attempt attempt;
    std::string reason;
    /// nullopt if a part of the answer had arrived: the client then gets the rest of it.
    std::optional<Response> answer;
  };
  enum class Next { kAgain, kDone };

  awaitable<Next> attempt(std::uint64_t& answer_tokens);
  awaitable<Attempt> ask(std::string& reason);
  awaitable<Next> leave(bool is_conviction);
  awaitable<Attempt> call(std::string& reason, const std::string& snapshot = {});
  awaitable<Next> after_failure(const WorkerPtr& worker, const Attempt& attempt,
                                const Outcome& outcome, const std::string& reason);
  awaitable<Next> resume(LossReason loss, const Attempt& attempt, const Outcome& outcome,
                         const std::string& reason);
  [[nodiscard]] bool has_usable_worker() const;
  [[nodiscard]] bool has_continuation() const;
  bool try_restart();
  awaitable<void> refuse(const ApiError& refusal);
  awaitable<void> deliver();
  awaitable<void> fail_request(ApiError error);
  awaitable<void> comment();
  awaitable<void> look_for_death(const WorkerPtr& worker);
  awaitable<void> wait_for_budget();
  void on_first_token(base::Duration gap);
  void on_resumed(TimePoint began);
  [[nodiscard]] RequestForm choose_form() const;
  /// Limit of attempts on workers that failed after they were sent the request, as long as nothing
  /// is delivered.
  [[nodiscard]] std::uint64_t max_attempts() const {
    return parts_.options.dispatch.budget.max_retries_per_request + 1;
  }
  [[nodiscard]] http::RequestHead head() const;
  void add_ids(http::Fields& headers) const;
  void note(const Outcome& outcome, TimePoint began, const std::string& reason);
  void note_progress();
  void note_prompt();
  void add_failure(OutcomeClass kind, base::Duration pause);
  void note_success(TimePoint began);
  void count_resume(ResumeEnd end) { parts_.metrics.add_resume(end, job_.loss_reason); }

  RouterParts& parts_;
  Job& job_;
  Reply& reply_;
  Exchange& exchange_;
  std::optional<Suspect> suspect_;
  /// The worker's incarnation when it was asked. If it fails, another process may answer at its
  /// address by then, which has not failed.
  std::uint64_t incarnation_ = 0;
  /// The answer's progress when the worker was asked.
  std::uint64_t begin_ = 0;
  /// The last worker was busy.
  bool was_busy_ = false;
  /// Present from the first death of an engine that had the request.
  std::optional<PoisonBodies::Watch> watch_;
  /// When the client was last sent something while its answer waits for a worker.
  TimePoint commented_{};
  /// The number of resumes that were reported to the client.
  unsigned announced_ = 0;
  bool has_response_id_ = false;
};

// --- One attempt.

// Returns the request that the worker gets.
RequestForm Attempts::choose_form() const {
  if (job_.resume_until) return RequestForm::kContinuation;
  const bool may_continue = parts_.options.resume.enabled && exchange_.may_continue();
  if (!may_continue || parts_.options.resume.is_short(job_.request)) return RequestForm::kAsGiven;
  const bool as_text = job_.worker->lacks_token_ids && job_.request.resume->text_refusal.empty();
  if (!job_.worker->can_continue(as_text)) return RequestForm::kAsGiven;
  // An engine's parser may take out text in which a stop string would have ended the answer.
  const std::shared_ptr<const fleet::Card>& card = job_.worker->facts;
  const bool stays_there = card && !card->parsers.empty() && !job_.request.resume->stops.empty();
  return stays_there ? RequestForm::kAsGiven : RequestForm::kResumable;
}

http::RequestHead Attempts::head() const {
  const bool is_of_tokens =
      exchange_.form() == RequestForm::kContinuation && !exchange_.continues_as_text();
  http::RequestHead head;
  head.method = job_.request.method;
  head.target = job_.worker->base_path +
                (is_of_tokens ? std::string("/v1/completions") : job_.request.target);
  std::ranges::copy_if(job_.request.headers, std::back_inserter(head.headers),
                       [](const auto& field) { return field.first != kAuthorization; });
  http::Fields own = parts_.worker_headers(job_, *job_.worker);
  std::ranges::move(own, std::back_inserter(head.headers));
  head.headers.emplace_back("x-fo-attempt", std::to_string(job_.attempts));
  return head;
}

void Attempts::add_ids(http::Fields& headers) const {
  parts_.add_ids(headers, job_.id, job_.request.client_id);
}

awaitable<void> Attempts::deliver() {
  const bool is_first = !exchange_.is_delivered();
  std::string bytes = exchange_.take_output();
  if (job_.request.api == Api::kResponses && !has_response_id_) {
    std::string id = exchange_.response_id();
    if (id.empty() && is_first) id = find_response_id(bytes);
    parts_.response_ids.add(id, job_.worker->id);
    has_response_id_ = !id.empty();
  }
  if (exchange_.is_stream() && !bytes.empty() && announced_ < job_.resumes) {
    announced_ = job_.resumes;
    const char* const how = exchange_.continues_as_text() ? " as text" : "";
    bytes.insert(0,
                 http::format_sse_comment("fo-route: resumed " + std::to_string(announced_) + how));
  }
  job_.bytes_sent += bytes.size();
  job_.blocked_reply = &reply_;
  job_.blocked_since = Clock::now();
  const base::Finally unblock([this] { job_.blocked_reply = nullptr; });
  if (is_first) {
    http::ResponseHead head = exchange_.head();
    add_ids(head.headers);
    if (exchange_.state() == Exchange::State::kDone && !exchange_.is_stream()) {
      const std::string type(head.header("content-type").value_or("application/octet-stream"));
      std::erase_if(head.headers, [](const auto& field) {
        return base::equal_ignoring_case(field.first, "content-type");
      });
      reply_.answer({head.status, type, std::move(bytes), std::move(head.headers)});
      co_return;
    }
    co_await reply_.begin(std::move(head));
  }
  if (!bytes.empty()) co_await reply_.write(bytes);
}

// Called after each token. A token that was generated again is no progress.
void Attempts::note_progress() {
  if (exchange_.tokens() <= job_.progress) return;
  job_.progress = exchange_.tokens();
  job_.has_progressed = true;
  job_.fruitless = 0;
  for (auto& [id, failure] : job_.failed_on) failure.is_fruitless = false;
  if (job_.progress <= begin_ + 1) return;
  parts_.dispatcher.suspects().on_progress(job_.number);
  watch_.reset();
}

void Attempts::note_prompt() {
  const std::optional<std::uint64_t> tokens = exchange_.prompt_tokens();
  if (tokens) parts_.dispatcher.set_prompt_tokens(job_, *tokens);
}

void Attempts::on_first_token(base::Duration gap) {
  note_prompt();
  if (parts_.dispatcher.suspects().on_token(job_.number)) parts_.dispatcher.on_change();
  const std::optional<TimePoint> moving_since = std::exchange(job_.moving_since, std::nullopt);
  if (job_.resume_until) {
    on_resumed(moving_since.value_or(job_.lost_at));
    return;
  }
  job_.first_token = Clock::now();
  parts_.metrics.first_token.observe(gap);
  if (exchange_.form() != RequestForm::kResumable) return;
  add_prefill(*job_.worker, exchange_.resumption().transcript().prompt().size(), gap);
}

// `began` is when the old worker was lost, or the move away from it began.
void Attempts::on_resumed(TimePoint began) {
  const TimePoint now = Clock::now();
  const bool has_cache = exchange_.kv_snapshot() == kKvSnapshotUsed;
  parts_.dispatcher.end_resume(job_);
  count_resume(ResumeEnd::kResumed);
  parts_.metrics.resume_gap.observe(now - job_.lost_at);
  parts_.metrics.add_move(job_.lost_group, job_.worker->group,
                          has_cache ? MoveMethod::kTransfer : MoveMethod::kReprefill, now - began);
  os::log(os::LogLevel::kInfo, "request {}: resumed after {} tokens on worker {}{}",
          base::quoted(job_.id), exchange_.delivered_tokens(), base::quoted(job_.worker->name),
          has_cache ? ", which has its KV cache" : "");
}

// `snapshot` is the KV cache that a continuation names; empty: none.
awaitable<Attempt> Attempts::call(std::string& reason, const std::string& snapshot) {
  const WorkerPtr worker = job_.worker;
  CallTimes times = parts_.options.times;
  if (parts_.options.resume.is_short(job_.request)) {
    // Such an answer takes little more time than its first token.
    times.answer = std::min(times.answer, times.first_token_limit(job_.prompt_tokens));
  }
  const std::optional<ResumeFacts>& facts = job_.request.resume;
  times.may_pause = !facts || facts->may_pause;
  if (facts && facts->hides_reasoning) times.first_token = times.answer;
  UpstreamCall call(parts_.pool, worker, exchange_, times, job_.prompt_tokens);
  job_.call = &call;
  const base::Finally forget_call([this] { job_.call = nullptr; });
  if (job_.is_killed) call.cut();
  const auto deliver_all = [this] { return deliver(); };
  const auto on_tokens = [this](base::Duration gap, bool is_first) {
    if (is_first) {
      on_first_token(gap);
    } else {
      parts_.metrics.gap.observe(gap);
    }
    note_progress();
  };
  std::string own_body;
  std::string_view body = job_.request.body;
  const bool is_resumable = exchange_.form() == RequestForm::kResumable;
  const bool is_prepared =
      is_resumable && !worker->lacks_token_ids && !job_.request.resumable.empty();
  if (is_prepared) {
    body = job_.request.resumable;
  } else if (exchange_.form() != RequestForm::kAsGiven) {
    own_body = is_resumable ? resumable_body(job_.request, worker->lacks_token_ids)
                            : exchange_.resumption().body(snapshot);
    body = own_body;
  }
  http::RequestHead head = this->head();
  CallEnd end = co_await call.run(std::move(head), body, job_.deadline, deliver_all, on_tokens);
  reason = call.reason();
  if (end == CallEnd::kCut) {
    exchange_.on_broken("the router has ended the call");
    // An answer that had its end is complete.
    const bool has_end = exchange_.state() == Exchange::State::kDone;
    if (has_end && (exchange_.is_delivered() || job_.cut_reason == Job::CutReason::kMove)) {
      co_await deliver();
      end = CallEnd::kDone;
    }
  }
  Attempt attempt = facts_of(end, exchange_, call.others_moved());
  // The worker may have died of the request.
  if (end == CallEnd::kRefused && call.was_sent()) {
    parts_.dispatcher.suspects().on_death(worker->number);
  }
  const Api api = job_.request.api;
  attempt.gets_client_key = parts_.options.rules.pass_authorization && worker->is_private();
  attempt.may_lack_object = api == Api::kOther || api == Api::kResponse || !job_.pinned_to.empty();
  co_return attempt;
}

awaitable<Attempt> Attempts::ask(std::string& reason) {
  const RequestForm form = choose_form();
  exchange_.set_form(form);
  const bool lacked_token_ids = job_.worker->lacks_token_ids;
  if (form != RequestForm::kAsGiven) exchange_.resumption().set_card(job_.worker->facts);
  ++job_.attempts;
  std::string snapshot;
  if (form == RequestForm::kContinuation && !exchange_.continues_as_text()) {
    if (job_.worker->id == job_.preferred) snapshot = std::exchange(job_.snapshot, {});
    http::Fields headers = parts_.worker_headers(job_, *job_.worker);
    const SeamCheck seam =
        co_await check_seam(job_.worker, std::move(headers), exchange_.resumption(), job_.deadline);
    reason = seam.reason;
    if (seam.failure) co_return *seam.failure;
    // Another worker of the set would have the same text.
    if (!seam.reason.empty()) co_return Attempt{.end = AttemptEnd::kStatus, .status = 400};
  }
  Attempt attempt = co_await call(reason, snapshot);
  if (!snapshot.empty() && is_answered(attempt) && exchange_.attempt_tokens() == 0) {
    os::log(os::LogLevel::kWarning, "request {}: worker {} does not continue with the KV cache: {}",
            base::quoted(job_.id), base::quoted(job_.worker->name), reason);
    attempt = co_await call(reason);
  }
  attempt.may_lack_fields = form == RequestForm::kContinuation;
  if (form != RequestForm::kResumable) co_return attempt;
  WorkerPtr worker = job_.worker;
  if (is_refusal(attempt)) {
    // The request itself is invalid, or the worker does not accept the fields that were added here.
    exchange_.set_form(RequestForm::kAsGiven);
    attempt = co_await call(reason);
    bool& is_found = lacked_token_ids ? worker->refuses_usage : worker->lacks_token_ids;
    is_found |= attempt.end == AttemptEnd::kComplete;
  } else {
    worker->lacks_token_ids |= exchange_.resumption().lacks_token_ids();
  }
  co_return attempt;
}

// --- What an attempt says of its worker, before the request goes anywhere else.

void Attempts::note(const Outcome& outcome, TimePoint began, const std::string& reason) {
  const WorkerPtr& worker = job_.worker;
  const bool is_answer =
      outcome.kind != OutcomeClass::kNeutral && outcome.kind != OutcomeClass::kExhausted;
  if (is_answer && !outcome.is_unavailable) worker->unavailability.reset();
  switch (outcome.kind) {
    case OutcomeClass::kSuccess:
      if (worker->slot_limit.on_success(worker->slots, Clock::now())) parts_.dispatcher.on_change();
      // In a probation, an answer that began before the fault says nothing.
      if (began > worker->last_fault || worker->health.state() != fleet::HealthState::kProbation) {
        parts_.dispatcher.add_health(worker, fleet::HealthEvent::kSuccess, {});
      }
      return;
    case OutcomeClass::kRefused:
      --job_.attempts;
      parts_.options.on_refused(worker, "it refuses connections");
      return;
    case OutcomeClass::kExhausted:
      --job_.attempts;
      os::log(os::LogLevel::kWarning, "request {}: no connection to a worker: {}",
              base::quoted(job_.id), reason);
      return;
    case OutcomeClass::kFault:
      // The death of an engine ends all its streams at once, and is one fault.
      if (began > worker->last_fault) {
        worker->last_fault = Clock::now();
        parts_.dispatcher.add_health(worker, fleet::HealthEvent::kFault, reason);
      }
      parts_.options.on_fault(worker);
      break;
    case OutcomeClass::kBackpressure:
      worker->slot_limit.on_overload(worker->slots, outcome.pause, began, Clock::now());
      parts_.dispatcher.on_change();
      if (outcome.is_unavailable &&
          worker->unavailability.on_unavailable(Clock::now(), worker->pace.last_token(),
                                                parts_.options.overload.unavailable)) {
        parts_.options.on_refused(worker, "it answers nothing but status 503");
      }
      break;
    case OutcomeClass::kMisconfigured:
      os::log(os::LogLevel::kError, "worker {}: does not serve model {}: {}",
              base::quoted(worker->name), base::quoted(job_.model), reason);
      worker->refused[{job_.model, job_.request.api}] = Clock::now();
      parts_.dispatcher.on_change();
      break;
    case OutcomeClass::kSuspected:
      break;
    case OutcomeClass::kNeutral:
      if (!outcome.is_retryable) return;
      break;
  }
  add_failure(outcome.kind, outcome.pause);
  if (!exchange_.is_delivered()) ++parts_.metrics.retries[outcome.kind];
}

// Records the failure of the present attempt. A worker that is busy may be asked again after its
// pause.
void Attempts::add_failure(OutcomeClass kind, base::Duration pause) {
  const bool is_busy = kind == OutcomeClass::kBackpressure;
  const bool is_fruitless = job_.fruitless > 0 && !is_busy;
  const bool may_be_next = !is_busy && !is_fruitless;
  const TimePoint until =
      Clock::now() + (may_be_next ? base::Duration::zero() : std::max(pause, kPauseAfterFailure));
  job_.failed_on[job_.worker->id] = {incarnation_, is_fruitless, until};
}

void Attempts::note_success(TimePoint began) {
  if (suspect_ && suspect_->worker != job_.worker) {
    suspect_->worker->last_fault = Clock::now();
    parts_.dispatcher.add_health(suspect_->worker, fleet::HealthEvent::kFault, suspect_->reason);
  }
  job_.status = exchange_.head().status;
  parts_.poison.on_success(job_.key, job_.request.body_identity());
  // The last worker has produced a part of a resumed answer only.
  if (job_.resumes > 0) return;
  const base::Duration total = Clock::now() - began;
  const TimePoint first_token = job_.first_token.value_or(began);
  parts_.served.add(first_token > began ? first_token - began : total, total, job_.prompt_tokens,
                    exchange_.delivered_tokens(), time_now());
}

// --- The ends.

awaitable<void> Attempts::fail_request(ApiError error) {
  job_.status = error.status;
  const bool is_delivered = exchange_.is_delivered();
  std::string bytes = is_delivered ? exchange_.take_output() : std::string();
  if (is_delivered || error.code == kWorkerLost) {
    error.delivered_tokens = exchange_.delivered_tokens();
    reply_.close_after();
  }
  if (!is_delivered) {
    Response response = to_response(error);
    add_ids(response.headers);
    reply_.answer(std::move(response));
    co_return;
  }
  parts_.metrics.lost.add();
  if (!exchange_.is_chunk_stream()) {
    throw base::Error(base::ExitStatus::kUnavailable,
                      "request " + base::quoted(job_.id) + ": " + error.message);
  }
  bytes += to_event(error);
  co_await reply_.write(bytes);
}

// No worker gets the request.
awaitable<void> Attempts::refuse(const ApiError& refusal) {
  if (job_.resume_until) {
    if (!job_.is_killed) count_resume(ResumeEnd::kNoWorker);
    Attempt attempt;
    if (job_.deadline.expired()) attempt.end = AttemptEnd::kDeadline;
    ApiError error = error_of(job_, attempt, "no other worker can continue the answer");
    co_await fail_request(error);
    co_return;
  }
  // No other worker can be asked, so the first one's answer is as good as any.
  const ApiError error = job_.is_killed ? error_of(job_, {}, {}) : refusal;
  const bool has_answer = suspect_ && suspect_->answer;
  Response response = has_answer ? *std::move(suspect_->answer) : to_response(error);
  if (!has_answer && !job_.is_killed) {
    parts_.metrics.refuse(job_.refusal_reason);
    const std::string client = job_.key.empty() ? reply_.client_host() : job_.key;
    const base::Duration admitted_at = job_.received.time_since_epoch();
    if (!job_.had_worker) parts_.demand.on_refused(client, admitted_at, time_now());
  }
  job_.status = response.status;
  add_ids(response.headers);
  reply_.answer(std::move(response));
}

// Whether a worker of the set may get requests now.
bool Attempts::has_usable_worker() const {
  return std::ranges::any_of(parts_.workers.set(job_.set),
                             [](const WorkerPtr& worker) { return worker->weight > 0; });
}

// Whether one of these can continue the answer.
bool Attempts::has_continuation() const {
  return std::ranges::any_of(parts_.workers.set(job_.set), [this](const WorkerPtr& worker) {
    return worker->weight > 0 && worker->can_continue(exchange_.continues_as_text());
  });
}

// To be called when no worker has continued the answer in time. If it can be requested from its
// beginning, the job is ready for that.
bool Attempts::try_restart() {
  const bool is_in_time = !job_.is_killed && !job_.deadline.expired();
  const bool may_restart = is_in_time && !exchange_.is_delivered() &&
                           job_.attempts < max_attempts() && has_usable_worker();
  if (!job_.resume_until || !may_restart) return false;
  job_.resume_until.reset();
  return true;
}

// To be called when an answer fails after a part of it was delivered.
awaitable<Attempts::Next> Attempts::resume(LossReason loss, const Attempt& attempt,
                                           const Outcome& outcome, const std::string& reason) {
  const bool is_new_loss = !job_.resume_until || job_.has_progressed;
  if (is_new_loss) job_.loss_reason = loss;
  if (exchange_.finish_here()) {
    count_resume(ResumeEnd::kFinished);
    job_.status = exchange_.head().status;
    co_await deliver();
    co_return Next::kDone;
  }
  std::string refusal = exchange_.resume_refusal();
  if (!parts_.options.resume.enabled) refusal = "this router resumes no answers";
  if (refusal.empty() && !outcome.is_retryable) refusal = reason;
  if (refusal.empty() && job_.fruitless >= kMaxFruitlessResumes) {
    refusal = "too many workers have failed";
  }
  const bool must_restart = !refusal.empty() || (has_usable_worker() && !has_continuation());
  if (must_restart && !exchange_.is_delivered() && job_.attempts < max_attempts()) {
    // An answer in one piece can be produced again from its beginning.
    job_.resume_until.reset();
    co_return Next::kAgain;
  }
  if (!refusal.empty()) {
    count_resume(ResumeEnd::kRefused);
    ApiError error = error_of(job_, attempt, reason + "; the answer cannot continue: " + refusal);
    co_await fail_request(error);
    co_return Next::kDone;
  }
  // A worker that fails without progress does not prolong the wait.
  if (is_new_loss) {
    job_.has_progressed = false;
    ++job_.resumes;
    job_.lost_at = commented_ = Clock::now();
    job_.lost_group = job_.worker->group;
    job_.resume_until = Deadline::after(parts_.options.resume.wait).sooner(job_.deadline);
  }
  co_return Next::kAgain;
}

awaitable<Attempts::Next> Attempts::after_failure(const WorkerPtr& worker, const Attempt& attempt,
                                                  const Outcome& outcome,
                                                  const std::string& reason) {
  const bool has_answer =
      attempt.end == AttemptEnd::kStatus || attempt.end == AttemptEnd::kErrorFrame;
  if (job_.is_killed || attempt.end == AttemptEnd::kDeadline) {
    const ApiError error = error_of(job_, attempt, reason);
    co_await fail_request(error);
    co_return Next::kDone;
  }
  if (outcome.kind == OutcomeClass::kExhausted) {
    if (job_.resume_until && !job_.resume_until->expired()) {
      // Descriptors and memory are released only while other coroutines run.
      co_await loop::pause_for(kExhaustedPause);
      co_return Next::kAgain;
    }
    const ApiError error = error_of(job_, attempt, reason);
    co_await fail_request(error);
    co_return Next::kDone;
  }
  const bool is_busy = outcome.kind == OutcomeClass::kBackpressure;
  was_busy_ = is_busy;
  // A late token costs as much time as a failure.
  const bool is_late = attempt.end == AttemptEnd::kNoFirstToken;
  if (outcome.kind != OutcomeClass::kRefused && (!is_busy || is_late)) ++job_.fruitless;
  Suspects& suspects = parts_.dispatcher.suspects();
  const std::string_view body = job_.request.body_identity();
  if (!watch_ && suspects.deaths(job_.number) > 0) watch_.emplace(parts_.poison, job_.key, body);
  if (suspects.is_poison(job_.number) && watch_->is_acquitted()) {
    suspects.on_progress(job_.number);
    watch_.reset();
  }
  if (suspects.is_poison(job_.number)) {
    os::log(os::LogLevel::kError, "request {}: poison: {} engines died while they served it",
            base::quoted(job_.id), parts_.options.dispatch.poison.deaths);
    parts_.poison.add(job_.key, body, time_now());
    parts_.metrics.poison.add();
    const ApiError error = poison_error(parts_.options.dispatch.poison);
    co_await fail_request(error);
    co_return Next::kDone;
  }
  const bool is_same =
      suspect_ && resolve_suspected(suspect_->attempt, attempt) == OutcomeClass::kNeutral;
  if (outcome.kind == OutcomeClass::kSuspected && !suspect_) {
    suspect_.emplace(Suspect{worker, attempt, reason, std::nullopt});
    if (!exchange_.has_part()) suspect_->answer = exchange_.failed_answer(true);
  }
  if (exchange_.has_part()) {
    co_return co_await resume(loss_of(attempt.end), attempt, outcome, reason);
  }
  if (has_answer && (is_same || !outcome.is_retryable)) {
    // Another worker may do what this one has failed to do twice.
    const bool is_certain = is_same && suspect_->worker != worker;
    Response response = exchange_.failed_answer(!is_certain);
    job_.status = response.status;
    add_ids(response.headers);
    reply_.answer(std::move(response));
    co_return Next::kDone;
  }
  // A request that finds all workers busy waits as long as one in the queue.
  const bool is_over = is_busy && !is_late
                           ? Clock::now() >= job_.waiting_since() + parts_.dispatcher.timeout()
                           : job_.fruitless >= max_attempts();
  if (is_over) {
    ApiError error = error_of(job_, attempt, reason);
    if (is_busy && has_answer) {
      error = {
          .status = parts_.options.dispatch.overload_status,
          .message = "the workers are overloaded: " + reason,
          .code = "overloaded",
          .retry_after = std::min(outcome.pause, parts_.options.dispatch.queue.max_retry_after)};
    }
    co_await fail_request(std::move(error));
    co_return Next::kDone;
  }
  co_return Next::kAgain;
}

// The worker is drained, or was convicted.
awaitable<Attempts::Next> Attempts::leave(bool is_conviction) {
  add_failure(OutcomeClass::kNeutral, {});
  const Attempt attempt{.end = AttemptEnd::kBroken};
  if (is_conviction && exchange_.is_delivered()) {
    const ApiError error = error_of(job_, attempt, "its answers were found to be wrong");
    co_await fail_request(error);
    co_return Next::kDone;
  }
  if (is_conviction) job_.resume_until.reset();
  if (is_conviction || !exchange_.has_part()) co_return Next::kAgain;
  const Outcome outcome{.is_retryable = true};
  co_return co_await resume(LossReason::kDrained, attempt, outcome, "the worker is drained");
}

awaitable<Attempts::Next> Attempts::attempt(std::uint64_t& answer_tokens) {
  const WorkerPtr worker = job_.worker;
  parts_.dispatcher.suspects().begin(job_.number, worker->number);
  const TimePoint began = Clock::now();
  incarnation_ = worker->incarnation;
  begin_ = job_.progress;
  std::string reason;
  const Attempt attempt = co_await ask(reason);
  job_.at_workers += Clock::now() - began;
  const Job::CutReason cut_reason = std::exchange(job_.cut_reason, Job::CutReason::kNothing);
  const bool is_cut = attempt.end == AttemptEnd::kDeadline && !job_.is_killed;
  const bool has_moved = is_cut && cut_reason == Job::CutReason::kMove;
  if (!has_moved) job_.moving_since.reset();
  if (is_cut && cut_reason != Job::CutReason::kNothing) {
    co_return co_await leave(cut_reason == Job::CutReason::kConviction);
  }
  const bool is_whole = attempt.end == AttemptEnd::kComplete;
  if (worker->is_convicted() && !is_whole && !job_.is_killed) co_return co_await leave(true);
  const Outcome outcome = classify(attempt, parts_.options.overload);
  // First, because the client may leave meanwhile.
  note(outcome, began, reason);
  if (attempt.end == AttemptEnd::kBroken) co_await look_for_death(worker);
  if (outcome.kind != OutcomeClass::kSuccess) {
    co_return co_await after_failure(worker, attempt, outcome, reason);
  }
  note_prompt();
  answer_tokens = exchange_.delivered_tokens();
  note_success(began);
  co_return Next::kDone;
}

// Whether the worker's process has ended: then it refuses connections.
awaitable<void> Attempts::look_for_death(const WorkerPtr& worker) {
  try {
    const auto connection = co_await http::Connection::open(
        worker->origin, Deadline::after(parts_.options.times.connect), "look for its death");
  } catch (const base::Error& error) {
    if (error.status() != base::ExitStatus::kUnavailable) co_return;
    parts_.dispatcher.suspects().on_death(worker->number);
    parts_.options.on_refused(worker, "it refuses connections");
  }
}

// Waits until a retry is within the budget, but not longer than in the queue. A retry after a busy
// worker needs no budget, because it waits for the worker's pause.
awaitable<void> Attempts::wait_for_budget() {
  const bool is_retry = job_.attempts > 0 && !job_.resume_until && !was_busy_;
  const TimePoint until = job_.waiting_since() + parts_.dispatcher.timeout();
  while (is_retry && !job_.is_killed && !job_.deadline.expired() && Clock::now() < until) {
    if (parts_.retries.begin_retry(time_now())) co_return;
    co_await loop::pause_for(kBudgetLook);
  }
}

// While the rest of an answer waits for a worker.
awaitable<void> Attempts::comment() {
  const TimePoint now = Clock::now();
  const bool is_due =
      exchange_.is_delivered() && now - commented_ >= parts_.options.resume.comments;
  if (!is_due) co_return;
  commented_ = now;
  const std::string line = http::format_sse_comment("fo-route: waiting for a worker");
  co_await reply_.write(line);
}

awaitable<void> Attempts::run() {
  if (parts_.poison.contains(job_.key, job_.request.body_identity(), time_now())) {
    const ApiError error = poison_error(parts_.options.dispatch.poison);
    co_await fail_request(error);
    co_return;
  }
  parts_.demand.on_admitted(job_.received.time_since_epoch());
  const std::function<awaitable<void>()> while_waiting = [this] { return comment(); };
  for (;;) {
    co_await wait_for_budget();
    const std::optional<ApiError> refusal = co_await parts_.dispatcher.place(job_, while_waiting);
    if (refusal && try_restart()) continue;
    if (refusal) {
      co_await refuse(*refusal);
      co_return;
    }
    // Made before the next co_await, which may throw.
    std::uint64_t answer_tokens = 0;
    const base::Finally release([&] { parts_.dispatcher.release(job_, answer_tokens); });
    const Next next = co_await attempt(answer_tokens);
    if (next == Next::kDone) co_return;
  }
}

}  // namespace

awaitable<void> answer(RouterParts& parts, Job& job, Reply& reply) {
  parts.retries.on_request(time_now());
  Attempts attempts(parts, job, reply);
  co_await attempts.run();
}

}  // namespace fo::route
