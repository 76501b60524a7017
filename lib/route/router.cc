#include "route/router.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "json/dump.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/log.h"
#include "os/random.h"
#include "route/answer/outcome.h"
#include "route/listing.h"
#include "route/metrics.h"
#include "route/queue/demand.h"
#include "route/queue/dispatcher.h"
#include "route/queue/job.h"
#include "route/request/admission.h"
#include "route/request/api_error.h"
#include "route/request/response_ids.h"
#include "text/nearest_name.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;
using http::Reply;
using http::Request;
using http::Response;
using nlohmann::json;

// The status under which a request is counted whose client closed the connection, as nginx does.
constexpr int kClientGone = 499;
constexpr std::size_t kIdBytes = 12;
// Attempts on workers that failed after they were sent a request.
constexpr unsigned kMaxAttempts = 3;
// How often the time is applied.
constexpr base::Duration kTick = std::chrono::milliseconds(500);
constexpr base::Duration kTakeoverTime = std::chrono::seconds(10);

ApiError unknown_path(Api api, const Request& request) {
  const bool is_method = api == Api::kWrongMethod;
  return {.status = is_method ? 405 : 404,
          .message = (is_method ? "method " + base::quoted(request.method) + " on " : "path ") +
                     base::quoted(request.path) + ": not served here",
          .code = is_method ? "method_not_allowed" : "unknown_path"};
}

ApiError no_worker() {
  return {.status = 503,
          .message = "no worker has been reached yet",
          .code = "no_worker",
          .retry_after = std::chrono::seconds(1)};
}

ApiError unknown_model(const std::string& model, const std::vector<std::string>& models) {
  if (model.empty()) {
    return {.status = 400, .message = "model: missing", .code = "model_missing", .param = "model"};
  }
  std::string message = "model " + base::quoted(model) + ": not served here";
  const std::vector<std::string_view> known(models.begin(), models.end());
  if (const auto nearest = text::nearest_name(model, known)) {
    message += "; did you mean " + base::quoted(*nearest) + "?";
  }
  std::string names;
  for (const std::string& name : models) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) message += "; models: " + names;
  return {.status = 404, .message = message, .code = "model_not_found", .param = "model"};
}

ApiError unknown_response(const std::string& id) {
  return {.status = 404,
          .message = "response " + base::quoted(id) + ": not found",
          .code = "response_not_found"};
}

// The call through which a job is with its worker.
class Called {
 public:
  Called(Job& job, UpstreamCall& call) : job_(job) {
    job.call = &call;
    if (job.is_killed) call.cut();
  }
  ~Called() { job_.call = nullptr; }
  Called(const Called&) = delete;
  Called& operator=(const Called&) = delete;

 private:
  Job& job_;
};

// What a job has on its worker.
class Placed {
 public:
  Placed(Dispatcher& dispatcher, Job& job) : dispatcher_(dispatcher), job_(job) {}
  ~Placed() { dispatcher_.release(job_, answer_tokens_); }
  void set_answer_tokens(std::uint64_t tokens) { answer_tokens_ = tokens; }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

 private:
  Dispatcher& dispatcher_;
  Job& job_;
  std::uint64_t answer_tokens_ = 0;
};

// A job in the list of those that are in the router.
class Listed {
 public:
  Listed(std::map<std::string, Job*>& jobs, Job& job) : jobs_(jobs), id_(job.id) {
    jobs_[id_] = &job;
  }
  ~Listed() { jobs_.erase(id_); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::map<std::string, Job*>& jobs_;
  std::string id_;
};

std::optional<base::Duration> read_retry_after(const http::ResponseHead& head) {
  const std::optional<std::uint64_t> count =
      base::parse_uint(head.header("retry-after").value_or(""));
  if (!count) return std::nullopt;
  return std::chrono::seconds(std::min<std::uint64_t>(*count, 3600));
}

Attempt facts_of(CallEnd end, const Exchange& exchange, bool others_moved) {
  Attempt attempt{.others_moved = others_moved};
  switch (end) {
    case CallEnd::kDone:
      return attempt;
    case CallEnd::kFault:
      attempt.end = end_of(exchange.fault()->kind);
      attempt.status = exchange.fault()->status;
      attempt.error_code = exchange.fault()->error_code;
      attempt.retry_after = read_retry_after(exchange.head());
      return attempt;
    case CallEnd::kRefused:
      attempt.end = AttemptEnd::kRefused;
      return attempt;
    case CallEnd::kNotTrusted:
      attempt.end = AttemptEnd::kBroken;
      return attempt;
    case CallEnd::kHung:
    case CallEnd::kSilent:
      attempt.end = AttemptEnd::kStalled;
      return attempt;
    case CallEnd::kNoFirstToken:
      attempt.end = AttemptEnd::kNoFirstToken;
      return attempt;
    case CallEnd::kDeadline:
    case CallEnd::kCut:
      attempt.end = AttemptEnd::kDeadline;
      return attempt;
  }
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
    return {.status = 504, .message = "the request's deadline has passed", .code = "timeout"};
  }
  if (attempt.end == AttemptEnd::kNoFirstToken) {
    return {.status = 504, .message = "no worker has answered in time", .code = "timeout"};
  }
  return {.status = 502, .message = "the worker failed: " + reason, .code = "worker_lost"};
}

Response json_response(json body) {
  return {200, "application/json", fo::json::dump(std::move(body)), {}};
}

json model_object(const std::string& name) {
  return {{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "fo-route"}};
}

Response models_page(const std::vector<std::string>& models) {
  json data = json::array();
  for (const std::string& name : models) data.push_back(model_object(name));
  return json_response({{"object", "list"}, {"data", std::move(data)}});
}

Response model_page(const std::string& name, const std::vector<std::string>& models) {
  const bool is_known = std::find(models.begin(), models.end(), name) != models.end();
  return is_known ? json_response(model_object(name)) : to_response(unknown_model(name, models));
}

ApiError unknown_key() {
  return {.status = 401, .message = "the API key is missing or unknown", .code = "invalid_api_key"};
}

// A long body takes long to read: other requests go on meanwhile.
awaitable<ReadRequest> read_on_thread(const Request& from, Api api, const RequestRules& rules) {
  constexpr std::size_t kShortBytes = std::size_t{64} * 1024;
  if (from.body.size() <= kShortBytes) co_return read_request(from, api, rules);
  const std::function<ReadRequest()> read = [&] { return read_request(from, api, rules); };
  co_return co_await loop::run_blocking<ReadRequest>(read);
}

}  // namespace

struct Router::State {
  State(const boost::asio::any_io_executor& on, RouterOptions with)
      : options(std::move(with)),
        pool(on, options.pool),
        dispatcher(on, options.dispatch, workers, metrics),
        admission(options.keys),
        demand(time_now()) {}

  // Counts a request at its end, whatever ends it.
  class Counted {
   public:
    Counted(State& state, const Job& job) : state_(state), job_(job) {}
    ~Counted() { ++state_.metrics.requests[{job_.model, status_, kTierNames.at(job_.tier)}]; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    void set_status(int status) { status_ = status; }

   private:
    State& state_;
    const Job& job_;
    int status_ = kClientGone;
  };

  // A request that its client's limits count.
  class Running {
   public:
    Running(State& state, const Job& job) : state_(state), job_(job) {}
    ~Running() {
      const std::uint64_t answered = job_.exchange.delivered_tokens();
      state_.admission.end(job_.key, job_.admitted_tokens, job_.request.prompt_tokens + answered,
                           time_now());
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    State& state_;
    const Job& job_;
  };

  void refuse(Reply& reply, RefusedFor reason, const ApiError& error);
  std::vector<std::string> models_for(const KeyRule& rule) const;
  std::optional<ApiError> find_target(Job& job, const std::vector<std::string>& models);
  awaitable<void> handle(const Request& from, Reply& reply);
  awaitable<void> serve(Job& job, Reply& reply, Counted& counted);
  awaitable<Attempt> run_call(Job& job, Reply& reply, std::string& reason);
  void note(Job& job, const Outcome& outcome, TimePoint began, const std::string& reason);
  void add_health(const WorkerPtr& worker, fleet::HealthEvent event, const std::string& reason);
  awaitable<void> deliver(Job& job, Reply& reply);
  awaitable<void> give_up(Job& job, Reply& reply, const ApiError& error);
  http::RequestHead upstream_head(const Job& job) const;
  void add_ids(const Job& job, http::Fields& headers) const;
  std::optional<ApiError> admit(const std::optional<std::string>& key,
                                const std::vector<std::string>& models, Job& job);
  void update_level();
  void apply_level();

  RouterOptions options;
  http::Pool pool;
  Workers workers;
  Metrics metrics;
  Dispatcher dispatcher;
  Admission admission;
  Demand demand;
  ServedMean served;
  Level level;
  ResponseIds response_ids;
  std::map<std::string, Job*> jobs;
};

void Router::State::refuse(Reply& reply, RefusedFor reason, const ApiError& error) {
  metrics.refuse(reason);
  reply.answer(to_response(error));
}

// Finds out which workers can answer the job; returns the error if there are none.
std::optional<ApiError> Router::State::find_target(Job& job,
                                                   const std::vector<std::string>& models) {
  const ClientRequest& request = job.request;
  const std::string& earlier = request.previous_response;
  if (!earlier.empty()) {
    job.pinned_to = response_ids.worker_of(earlier);
    const WorkerPtr worker = workers.find(job.pinned_to);
    if (!worker) return unknown_response(earlier);
    job.model = worker->model;
    return std::nullopt;
  }
  // An endpoint such as /tokenize may do without the name where only one model is served.
  const bool is_only = request.model.empty() && models.size() == 1;
  job.model = is_only ? models.front() : request.model;
  const bool is_known = std::find(models.begin(), models.end(), job.model) != models.end();
  if (workers.models().empty()) return no_worker();
  if (!is_known) return unknown_model(job.model, models);
  return std::nullopt;
}

http::RequestHead Router::State::upstream_head(const Job& job) const {
  http::RequestHead head;
  head.method = job.request.method;
  head.target = job.worker->base_path + job.request.target;
  head.headers = job.request.headers;
  head.headers.insert(head.headers.end(), options.worker_headers.begin(),
                      options.worker_headers.end());
  head.headers.emplace_back("x-request-id", job.id);
  head.headers.emplace_back("x-fo-attempt", std::to_string(job.attempts));
  return head;
}

void Router::State::add_ids(const Job& job, http::Fields& headers) const {
  const std::string& own = job.request.client_id;
  headers.emplace_back("x-request-id", own.empty() ? job.id : own);
  headers.emplace_back("x-fo-request-id", job.id);
  headers.emplace_back("x-fo-level", std::to_string(level.level()));
}

awaitable<void> Router::State::deliver(Job& job, Reply& reply) {
  Exchange& exchange = job.exchange;
  const bool is_first = !exchange.is_delivered();
  std::string bytes = exchange.take_output();
  if (is_first && job.request.api == Api::kResponses) {
    response_ids.add(find_response_id(bytes), job.worker->id);
  }
  job.bytes_sent += bytes.size();
  if (is_first) {
    http::ResponseHead head = exchange.head();
    add_ids(job, head.headers);
    if (exchange.state() == Exchange::State::kDone && !exchange.is_stream()) {
      const std::string type(head.header("content-type").value_or("application/octet-stream"));
      std::erase_if(head.headers, [](const auto& field) {
        return base::equal_ignoring_case(field.first, "content-type");
      });
      reply.answer({head.status, type, std::move(bytes), std::move(head.headers)});
      co_return;
    }
    co_await reply.begin(std::move(head));
  }
  if (!bytes.empty()) co_await reply.write(bytes);
}

awaitable<Attempt> Router::State::run_call(Job& job, Reply& reply, std::string& reason) {
  ++job.attempts;
  const WorkerPtr worker = job.worker;
  UpstreamCall call(pool, worker, job.exchange, options.times, job.request.prompt_tokens);
  const Called called(job, call);
  const auto deliver_all = [this, &job, &reply] { return deliver(job, reply); };
  const auto on_tokens = [this, &job](base::Duration gap, bool is_first) {
    if (is_first) job.first_token = Clock::now();
    is_first ? metrics.first_token.observe(gap) : metrics.gap.observe(gap);
  };
  http::RequestHead head = upstream_head(job);
  const CallEnd end =
      co_await call.run(std::move(head), job.request.body, job.deadline, deliver_all, on_tokens);
  reason = call.reason();
  Attempt attempt = facts_of(end, job.exchange, call.others_moved());
  const Api api = job.request.api;
  attempt.may_lack_object = api == Api::kOther || api == Api::kResponse || !job.pinned_to.empty();
  co_return attempt;
}

void Router::State::add_health(const WorkerPtr& worker, fleet::HealthEvent event,
                               const std::string& reason) {
  const fleet::HealthState before = worker->health.state();
  worker->health.apply(event, time_now(), os::random_unit());
  const fleet::HealthState after = worker->health.state();
  if (after == before) return;
  os::log(os::LogLevel::kWarning, "worker {}: {}{}", base::quoted(worker->name),
          fleet::to_string(after), reason.empty() ? "" : ": " + reason);
  if (after == fleet::HealthState::kUnhealthy) metrics.ejections.add();
  dispatcher.on_change();
}

// What an attempt says of its worker, before the request goes anywhere else.
void Router::State::note(Job& job, const Outcome& outcome, TimePoint began,
                         const std::string& reason) {
  const WorkerPtr& worker = job.worker;
  switch (outcome.kind) {
    case OutcomeClass::kSuccess:
      if (worker->share.on_success(worker->slots, Clock::now())) dispatcher.on_change();
      add_health(worker, fleet::HealthEvent::kSuccess, {});
      return;
    case OutcomeClass::kRefused:
      --job.attempts;
      options.on_refused(worker);
      return;
    case OutcomeClass::kFault:
      // The death of an engine ends all its streams at once, and is one fault.
      if (began > worker->last_fault) {
        worker->last_fault = Clock::now();
        add_health(worker, fleet::HealthEvent::kFault, reason);
      }
      break;
    case OutcomeClass::kBackpressure:
      worker->share.on_overload(worker->slots, outcome.pause, Clock::now());
      dispatcher.on_change();
      break;
    case OutcomeClass::kMisconfigured:
      os::log(os::LogLevel::kError, "worker {}: does not serve model {}: {}",
              base::quoted(worker->name), base::quoted(job.model), reason);
      worker->refused.emplace(job.model, job.request.api);
      dispatcher.on_change();
      break;
    case OutcomeClass::kSuspected:
      break;
    case OutcomeClass::kNeutral:
      return;
  }
  job.failed_on.insert(worker->id);
  ++metrics.retries[outcome.kind];
}

// Ends an answer that cannot continue.
awaitable<void> Router::State::give_up(Job& job, Reply& reply, const ApiError& error) {
  Exchange& exchange = job.exchange;
  if (!exchange.is_delivered()) {
    Response response = to_response(error);
    add_ids(job, response.headers);
    reply.answer(std::move(response));
    co_return;
  }
  metrics.lost.add();
  if (!exchange.is_chunk_stream()) {
    throw base::Error(base::ExitStatus::kUnavailable,
                      "request " + base::quoted(job.id) + ": " + error.message);
  }
  reply.close_after();
  std::string bytes = exchange.take_output();
  bytes += to_event(error, exchange.delivered_tokens());
  co_await reply.write(bytes);
}

awaitable<void> Router::State::serve(Job& job, Reply& reply, Counted& counted) {
  // The answer of a worker that failed in a way that may be the request's own fault.
  struct Suspect {
    WorkerPtr worker;
    Attempt attempt;
    Response answer;
  };
  std::optional<Suspect> suspect;
  for (;;) {
    const std::optional<ApiError> refusal = co_await dispatcher.place(job);
    if (refusal) {
      // No other worker can be asked, so the first one's answer is as good as any.
      const ApiError error = job.is_killed ? error_of(job, {}, {}) : *refusal;
      Response response = suspect ? std::move(suspect->answer) : to_response(error);
      if (!suspect && !job.is_killed) {
        metrics.refuse(RefusedFor::kCapacity);
        demand.on_refused(job.key, time_now());
      }
      counted.set_status(response.status);
      add_ids(job, response.headers);
      reply.answer(std::move(response));
      co_return;
    }
    Placed placed(dispatcher, job);
    const WorkerPtr worker = job.worker;
    const TimePoint began = Clock::now();
    std::string reason;
    const Attempt attempt = co_await run_call(job, reply, reason);
    const Outcome outcome = classify(attempt);
    note(job, outcome, began, reason);
    const Exchange& exchange = job.exchange;
    if (outcome.kind == OutcomeClass::kSuccess) {
      if (suspect) add_health(suspect->worker, fleet::HealthEvent::kFault, "status 500");
      counted.set_status(exchange.head().status);
      placed.set_answer_tokens(exchange.delivered_tokens());
      const base::Duration total = Clock::now() - began;
      served.add(job.first_token ? *job.first_token - began : total, total,
                 job.request.prompt_tokens, exchange.delivered_tokens());
      co_return;
    }
    const bool has_answer =
        attempt.end == AttemptEnd::kStatus || attempt.end == AttemptEnd::kErrorFrame;
    if (exchange.is_delivered() || job.is_killed || attempt.end == AttemptEnd::kDeadline) {
      const ApiError error = error_of(job, attempt, reason);
      counted.set_status(error.status);
      co_await give_up(job, reply, error);
      co_return;
    }
    const bool is_same =
        suspect && resolve_suspected(suspect->attempt, attempt) == OutcomeClass::kNeutral;
    if (has_answer && (is_same || !outcome.is_worth_another)) {
      Response response = exchange.failed_answer(!is_same);
      counted.set_status(response.status);
      add_ids(job, response.headers);
      reply.answer(std::move(response));
      co_return;
    }
    if (job.attempts >= kMaxAttempts) {
      const ApiError error = error_of(job, attempt, reason);
      counted.set_status(error.status);
      co_await give_up(job, reply, error);
      co_return;
    }
    if (outcome.kind == OutcomeClass::kSuspected && !suspect) {
      suspect.emplace(Suspect{worker, attempt, exchange.failed_answer(true)});
    }
  }
}

// Admits the job for its client, or returns why not.
std::optional<ApiError> Router::State::admit(const std::optional<std::string>& key,
                                             const std::vector<std::string>& models, Job& job) {
  const ClientRequest& request = job.request;
  job.admitted_tokens = request.prompt_tokens + request.max_tokens.value_or(0);
  const Admission::Admitted admitted =
      admission.admit(key, job.model, job.admitted_tokens, time_now());
  job.tier = admitted.tier;
  job.key = admitted.key;
  const auto limit = [&](const char* what) {
    return ApiError{.status = 429,
                    .message = std::string("your limit of ") + what + " is reached",
                    .code = "rate_limit_exceeded",
                    .retry_after = admitted.retry_after};
  };
  switch (admitted.answer) {
    case AdmissionAnswer::kAdmitted:
      return std::nullopt;
    case AdmissionAnswer::kUnknownKey:
      return unknown_key();
    case AdmissionAnswer::kNoModel:
      return unknown_model(job.model, models);
    case AdmissionAnswer::kRequests:
      return limit("requests per minute");
    case AdmissionAnswer::kTokens:
      return limit("tokens per minute");
    case AdmissionAnswer::kAtATime:
      return limit("requests at a time");
  }
  return std::nullopt;
}

// The models that a client's key permits.
std::vector<std::string> Router::State::models_for(const KeyRule& rule) const {
  std::vector<std::string> models = workers.models();
  std::erase_if(models, [&](const std::string& model) { return !rule.permits(model); });
  return models;
}

awaitable<void> Router::State::handle(const Request& from, Reply& reply) {
  const Api api = find_api(from.method, from.path, options.allowed_paths);
  if (api == Api::kNotFound || api == Api::kWrongMethod) {
    refuse(reply, RefusedFor::kPath, unknown_path(api, from));
    co_return;
  }
  const std::optional<std::string> key = find_key(from);
  const KeyRule* const rule = admission.find_rule(key);
  if (rule == nullptr) {
    refuse(reply, RefusedFor::kKey, unknown_key());
    co_return;
  }
  // The rule itself may be replaced while the body is read.
  const std::vector<std::string> models = models_for(*rule);
  if (api == Api::kModels || api == Api::kModel) {
    reply.answer(api == Api::kModels ? models_page(models)
                                     : model_page(std::string(item_of(api, from.path)), models));
    co_return;
  }
  ReadRequest read = co_await read_on_thread(from, api, options.rules);
  if (!read.request) {
    refuse(reply, RefusedFor::kBody, read.refusal);
    co_return;
  }
  if (api == Api::kResponse) read.request->previous_response = item_of(api, from.path);
  // The text is long, and only its hashes are needed as long as the answer takes.
  std::vector<std::uint64_t> prefixes = prefix_hashes(std::exchange(read.request->prefix, {}));
  Job job(os::random_hex(kIdBytes), *std::move(read.request), options.exchange);
  job.prefixes = std::move(prefixes);
  if (job.request.timeout) job.deadline = Deadline::after(*job.request.timeout);
  if (const std::optional<ApiError> error = find_target(job, models)) {
    refuse(reply, RefusedFor::kModel, *error);
    co_return;
  }
  if (const std::optional<ApiError> error = admit(key, models, job)) {
    refuse(reply, error->status == 429 ? RefusedFor::kLimit : RefusedFor::kModel, *error);
    co_return;
  }
  demand.on_admitted(time_now());
  const Running running(*this, job);
  Counted counted(*this, job);
  const Listed listed(jobs, job);
  reply.cancel_when_client_goes();
  co_await serve(job, reply, counted);
}

// The level that the workers require. A worker that was lost just now still counts, because a
// standby takes over within seconds.
void Router::State::update_level() {
  if (!served.mean()) return;
  std::vector<UsedWorker> used;
  for (const auto& [id, worker] : workers.all()) {
    const bool is_coming_back = worker->unreachable_since && worker->is_known &&
                                Clock::now() - *worker->unreachable_since < kTakeoverTime;
    const double weight = is_coming_back ? 1 : worker->weight;
    used.push_back({.weight = weight, .slots = worker->slots, .kv_tokens = worker->kv_tokens});
  }
  const double demanded = options.slo_rate.value_or(demand.rate(time_now()));
  const std::size_t before = level.level();
  level.update(capacity_ratio(carried_rate(used, *served.mean()), demanded), time_now());
  if (level.level() != before) apply_level();
}

void Router::State::apply_level() {
  os::log(os::LogLevel::kWarning, "degradation level {}", level.level());
  dispatcher.set_level(level.setting());
}

Router::Router(boost::asio::any_io_executor executor, RouterOptions options)
    : state_(std::make_shared<State>(std::move(executor), std::move(options))) {}
Router::~Router() = default;

awaitable<void> Router::handle(const Request& from, Reply& reply) {
  const std::shared_ptr<State> state = state_;
  co_await state->handle(from, reply);
}

Workers& Router::workers() { return state_->workers; }
std::string Router::requests() const { return requests_json(state_->jobs, Clock::now()); }

bool Router::kill(const std::string& request_id) {
  const auto found = state_->jobs.find(request_id);
  if (found == state_->jobs.end()) return false;
  Job& job = *found->second;
  job.is_killed = true;
  if (job.call != nullptr) job.call->cut();
  state_->dispatcher.on_change();
  return true;
}

bool Router::set_weight(const std::string& model, const std::string& card, double weight) {
  CardWeights weights;
  bool is_found = false;
  for (const auto& [key, present] : state_->workers.sets_of(model)) {
    is_found |= key.card == card;
    weights[key.card] = key.card == card ? weight : present;
  }
  if (!is_found) return false;
  state_->workers.set_weights(model, std::move(weights));
  state_->dispatcher.on_change();
  return true;
}

awaitable<void> Router::keep_time() {
  for (;;) {
    co_await loop::pause_for(kTick);
    state_->dispatcher.apply_time();
    state_->update_level();
  }
}

void Router::pin_level(std::optional<std::size_t> level) {
  state_->level.pin(level);
  state_->apply_level();
}

void Router::set_keys(std::optional<KeyRules> rules) {
  state_->admission.set_rules(std::move(rules), time_now());
}

std::string Router::metrics_text() const {
  std::map<SetKey, QueueGauge> queues;
  for (const auto& [key, members] : state_->workers.sets()) {
    queues[key] = state_->dispatcher.queued(key);
  }
  return to_text(state_->metrics, state_->workers, queues, state_->level.level());
}

std::string Router::state() const { return state_json(state_->workers, state_->level.level()); }

void Router::on_change() { state_->dispatcher.on_change(); }

}  // namespace fo::route
