#include "route/router.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/finally.h"
#include "base/text.h"
#include "base/units.h"
#include "fleet/card/digest.h"
#include "json/object.h"
#include "loop/blocking.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "os/file/random.h"
#include "os/log.h"
#include "plan/argument.h"
#include "route/answer/outcome.h"
#include "route/attempts.h"
#include "route/listing.h"
#include "route/metrics.h"
#include "route/moves.h"
#include "route/queue/demand.h"
#include "route/queue/dispatcher.h"
#include "route/queue/job.h"
#include "route/request/admission.h"
#include "route/request/api_error.h"
#include "route/request/response_ids.h"
#include "route/resume/resumption.h"
#include "route/router_parts.h"
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

constexpr std::size_t kIdBytes = 12;
// The most long bodies that are read at a time, each on a thread.
constexpr std::size_t kMaxReaders = 8;
// How long a client that does not read may prolong its request beyond its deadline.
constexpr base::Duration kLateClient = std::chrono::seconds(1);
// Interval of Dispatcher::on_tick().
constexpr base::Duration kTick = std::chrono::milliseconds(500);

ApiError unknown_path(const Request& request) {
  return {.status = 404,
          .message = "path " + base::quoted(request.path) + ": not served here",
          .code = "unknown_path"};
}

ApiError wrong_method(const Request& request) {
  return {.status = 405,
          .message = "method " + base::quoted(request.method) + " on " +
                     base::quoted(request.path) + ": not served here",
          .code = "method_not_allowed",
          .allow = methods_of(request.path)};
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

const char* code_of_early_error(int status) {
  if (status == 413) return "body_too_long";
  if (status == 431) return "headers_too_long";
  return status == 503 ? "overloaded" : "malformed_request";
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

}  // namespace

struct Router::State : RouterParts {
  using RouterParts::RouterParts;

  // A request that the router answers itself.
  struct Own {
    Reply& reply;
    std::string id;
    std::string client_id;
    // Labels of its metric; empty as long as they are unknown.
    std::string model = {};
    std::string tier = {};
  };
  void give(const Own& own, Response response);
  void refuse(const Own& own, RefusalReason reason, const ApiError& error);
  // A request without its body.
  struct Head {
    Api api = Api::kNotFound;
    std::optional<std::string> key = {};
    const KeyRule* rule = nullptr;
  };
  struct HeadRefusal {
    RefusalReason reason;
    ApiError error;
  };
  std::optional<HeadRefusal> read_head(const Request& from, Head& head) const;
  Response refuse_early(const Request& from, RefusalReason reason, const ApiError& error);
  std::vector<std::string> models_for(const KeyRule& rule) const;
  std::optional<ApiError> find_target(Job& job, const std::vector<std::string>& models);
  awaitable<void> handle(const Request& from, Reply& reply);
  awaitable<ReadRequest> read(const Request& from, Api api, std::size_t tier);
  std::optional<ApiError> admit(const std::optional<std::string>& key,
                                const std::vector<std::string>& models, Job& job);
  [[nodiscard]] double carried(MeanRequest mean, const std::set<SetKey>& sets,
                               bool with_spares) const;
  void update_level();
  void apply_level();
  void cut_late_clients() const;
  void tick(const char* what, const std::function<void()>& step);

  plan::DegradationSetting applied = plan::kDegradationLevels[0].setting;
  /// The steps of run_periodic_tasks() that have failed the last time.
  std::set<std::string> failing;
  std::size_t readers = 0;
  loop::Event reader_ended{executor};
};

void Router::State::give(const Own& own, Response response) {
  ++metrics.requests[{own.model, response.status, own.tier}];
  add_ids(response.headers, own.id, own.client_id);
  own.reply.answer(std::move(response));
}

void Router::State::refuse(const Own& own, RefusalReason reason, const ApiError& error) {
  metrics.refuse(reason);
  give(own, to_response(error));
}

// Other requests go on while a long body is read, changed and hashed.
awaitable<ReadRequest> Router::State::read(const Request& from, Api api, std::size_t tier) {
  if (from.body.size() <= kMaxShortBytes) co_return read_request(from, api, options.rules, tier);
  while (readers >= kMaxReaders) co_await reader_ended.wait();
  ++readers;
  const base::Finally end_reading([this] {
    --readers;
    reader_ended.notify();
  });
  // The options may be replaced meanwhile.
  const RequestRules rules = options.rules;
  const ResumeSettings resume = options.resume;
  const std::function<ReadRequest()> read_long = [&] {
    ReadRequest read = read_request(from, api, rules, tier);
    if (!read.request) return read;
    ClientRequest& request = *read.request;
    const bool may_resume = request.resume && request.resume->refusal.empty();
    if (may_resume && resume.enabled && !resume.is_short(request)) {
      request.resumable = resumable_body(request);
    }
    request.body_hash = fleet::sha256_hex(request.body);
    return read;
  };
  co_return co_await loop::run_blocking<ReadRequest>(read_long);
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
    const auto may_be = [&](const std::string& model) {
      return worker->serves(model) && std::ranges::find(models, model) != models.end();
    };
    if (!request.model.empty() && !may_be(request.model)) {
      return unknown_model(request.model, models);
    }
    job.model = request.model.empty() ? worker->model : request.model;
    // The client may have used another model of the worker.
    if (!may_be(job.model)) {
      const auto other = std::ranges::find_if(worker->other_models, may_be);
      if (other != worker->other_models.end()) job.model = *other;
    }
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
    case AdmissionAnswer::kConcurrency:
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

std::optional<Router::State::HeadRefusal> Router::State::read_head(const Request& from,
                                                                   Head& head) const {
  head.api = find_api(from.method, from.path, options.allowed_paths);
  if (head.api == Api::kNotFound) return HeadRefusal{RefusalReason::kPath, unknown_path(from)};
  if (head.api == Api::kWrongMethod) return HeadRefusal{RefusalReason::kPath, wrong_method(from)};
  head.key = find_key(from);
  head.rule = admission.find_rule(head.key);
  if (head.rule == nullptr) return HeadRefusal{RefusalReason::kKey, unknown_key()};
  return std::nullopt;
}

// The answer to a request that was not read to its end.
Response Router::State::refuse_early(const Request& from, RefusalReason reason,
                                     const ApiError& error) {
  ++metrics.requests[{"", error.status, ""}];
  metrics.refuse(reason);
  Response response = to_response(error);
  add_ids(response.headers, os::random_hex(kIdBytes), find_client_id(from));
  return response;
}

awaitable<void> Router::State::handle(const Request& from, Reply& reply) {
  Own own{.reply = reply, .id = os::random_hex(kIdBytes), .client_id = find_client_id(from)};
  Head head;
  if (const auto refusal = read_head(from, head)) {
    refuse(own, refusal->reason, refusal->error);
    co_return;
  }
  const auto& [api, key, rule] = head;
  own.tier = kTierNames.at(rule->tier);
  // The rule itself may be replaced while the body is read.
  const std::vector<std::string> models = models_for(*rule);
  if (api == Api::kModels || api == Api::kModel) {
    give(own, api == Api::kModels ? models_page(models)
                                  : model_page(std::string(item_of(api, from.path)), models));
    co_return;
  }
  ReadRequest read = co_await this->read(from, api, rule->tier);
  if (!read.request) {
    refuse(own, RefusalReason::kBody, read.refusal);
    co_return;
  }
  if (api == Api::kResponse) read.request->previous_response = item_of(api, from.path);
  // The text is long, and only its hashes are needed as long as the answer takes.
  std::vector<std::uint64_t> prefixes = prefix_hashes(std::exchange(read.request->prefix, {}));
  Job job(own.id, *std::move(read.request), options.exchange);
  job.prefixes = std::move(prefixes);
  if (job.request.timeout) job.deadline = Deadline::after(*job.request.timeout);
  if (const std::optional<ApiError> error = find_target(job, models)) {
    refuse(own, RefusalReason::kModel, *error);
    co_return;
  }
  own.model = job.model;
  if (const std::optional<ApiError> error = admit(key, models, job)) {
    refuse(own, error->status == 429 ? RefusalReason::kLimit : RefusalReason::kModel, *error);
    co_return;
  }
  const base::Finally end_admission([&] {
    // A client that goes has not got all that its worker generated.
    const bool has_gone = job.status == kClientGoneStatus;
    const std::uint64_t answered =
        has_gone ? job.exchange.tokens() : job.exchange.delivered_tokens();
    admission.end(job.key, job.admitted_tokens, job.had_worker ? job.prompt_tokens + answered : 0,
                  time_now());
  });
  const base::Finally count([&] {
    ++metrics.requests[{job.model, job.status, kTierNames.at(job.tier)}];
  });
  jobs[job.id] = &job;
  const base::Finally unlist([&] { jobs.erase(job.id); });
  reply.cancel_when_client_goes();
  co_await answer(*this, job, reply);
}

// The requests per second that the workers carry. Records and answers may have any values: those
// that the room `plan` refuses are cut.
double Router::State::carried(MeanRequest mean, const std::set<SetKey>& sets,
                              bool with_spares) const {
  constexpr auto kMaxCount = static_cast<std::uint64_t>(plan::kMaxCount);
  std::vector<UsedWorker> used;
  for (const SetKey& key : sets) {
    for (const WorkerPtr& worker : workers.set(key)) {
      if (!with_spares && worker->life == fleet::Life::kSpare) continue;
      used.push_back({.weight = worker->capacity_weight(Clock::now()),
                      .slots = std::min(worker->slots, kMaxCount),
                      .kv_tokens = worker->kv_tokens});
      std::optional<std::uint64_t>& tokens = used.back().kv_tokens;
      if (tokens) tokens = std::min(*tokens, kMaxCount);
    }
  }
  mean.ttft = std::min(mean.ttft, plan::kDay);
  mean.tpot = std::min(mean.tpot, plan::kDay);
  return carried_rate(used, mean);
}

// The level that the workers require, and whether they need spares. Without a mean of requests, the
// capacity counts as sufficient.
void Router::State::update_level() {
  const std::optional<MeanRequest> mean = served.mean(time_now());
  const double demanded = mean ? options.slo_rate.value_or(demand.rate(time_now())) : 0;
  const std::set<SetKey> used = dispatcher.used_sets();
  const auto ratio = [&](bool with_spares) {
    return capacity_ratio(mean ? carried(*mean, used, with_spares) : 0, demanded);
  };
  // Spares do not count here: otherwise they would be released as soon as they help.
  dispatcher.set_ratio(ratio(false));
  level.update(ratio(true), time_now());
  apply_level();
}

// A client that does not read prevents its request from ending at its deadline.
void Router::State::cut_late_clients() const {
  for (const auto& [id, job] : jobs) {
    if (job->blocked_reply == nullptr || !job->deadline.expired()) continue;
    const TimePoint since = std::max(job->blocked_since, *job->deadline.at());
    if (Clock::now() - since >= kLateClient) job->blocked_reply->cut(Reply::Cut::kReset);
  }
}

// A step that fails must not end the other steps.
void Router::State::tick(const char* what, const std::function<void()>& step) {
  try {
    step();
    failing.erase(what);
  } catch (const base::Error& error) {
    if (failing.insert(what).second) {
      os::log(os::LogLevel::kError, "{}: {}", what, error.what());
    }
  }
}

// The setting of the last level depends on the ratio, too.
void Router::State::apply_level() {
  const plan::DegradationSetting setting = level.setting();
  if (std::exchange(applied, setting) == setting) return;
  const bool refuses_all = setting.admitted_share[plan::kPremium] == 0;
  os::log(os::LogLevel::kWarning, "degradation level {}{}", level.level(),
          refuses_all ? ": all requests are refused" : "");
  dispatcher.set_level(setting);
}

Router::Router(boost::asio::any_io_executor executor, RouterOptions options)
    : state_(std::make_shared<State>(std::move(executor), std::move(options))) {}
Router::~Router() = default;

awaitable<void> Router::handle(const Request& from, Reply& reply) {
  const std::shared_ptr<State> state = state_;
  co_await state->handle(from, reply);
}

Response Router::answer_early(const http::EarlyError& error) {
  const int status = error.status == 503 ? state_->options.dispatch.overload_status : error.status;
  return state_->refuse_early(error.request, RefusalReason::kHttp,
                              {.status = status,
                               .message = std::string(error.message),
                               .code = code_of_early_error(error.status),
                               .retry_after = error.retry_after});
}

std::optional<Response> Router::check_head(const Request& from) {
  State::Head head;
  const auto refusal = state_->read_head(from, head);
  return refusal ? std::optional(state_->refuse_early(from, refusal->reason, refusal->error))
                 : std::nullopt;
}

Workers& Router::workers() { return state_->workers; }
ResponseIds& Router::response_ids() { return state_->response_ids; }
PoisonBodies& Router::poison() { return state_->poison; }
std::string Router::requests() const { return requests_json(state_->jobs, Clock::now()); }

bool Router::kill(const std::string& request_id) {
  const auto found = state_->jobs.find(request_id);
  if (found == state_->jobs.end()) return false;
  Job& job = *found->second;
  state_->dispatcher.kill(job);
  if (job.call != nullptr) job.call->cut();
  if (job.blocked_reply != nullptr) job.blocked_reply->cut(Reply::Cut::kReset);
  return true;
}

std::optional<CardWeights> Router::weights_with(const std::string& model, const std::string& card,
                                                double weight) const {
  CardWeights weights;
  bool is_found = false;
  for (const auto& [key, present] : state_->workers.sets_of(model)) {
    is_found |= key.card == card;
    weights[key.card] = key.card == card ? weight : present;
  }
  return is_found ? std::optional(std::move(weights)) : std::nullopt;
}

awaitable<void> Router::run_periodic_tasks() {
  for (;;) {
    co_await loop::pause_for(kTick);
    state_->tick("health of workers", [this] { state_->dispatcher.on_tick(); });
    state_->tick("moves of requests", [this] { move_requests(state_); });
    state_->tick("deadlines of requests", [this] { state_->cut_late_clients(); });
    state_->tick("level of degradation", [this] { state_->update_level(); });
  }
}

void Router::pin_level(std::optional<std::size_t> level) {
  state_->level.pin(level);
  state_->apply_level();
}

void Router::set_options(RouterOptions options) {
  state_->admission.set_rules(options.keys, time_now());
  state_->dispatcher.set_options(options.dispatch);
  state_->retries.set_settings(options.dispatch.budget);
  state_->poison.set_settings(options.dispatch.poison);
  state_->demand.set_settings(options.demand);
  state_->level.set_rules(options.degradation);
  state_->apply_level();
  const bool has_other_keys =
      options.worker_headers != state_->options.worker_headers ||
      options.rules.pass_authorization != state_->options.rules.pass_authorization;
  state_->options = std::move(options);
  if (!has_other_keys) return;
  // Workers that refused the old key may accept the new one.
  for (const auto& [id, worker] : state_->workers.all()) worker->refused.clear();
  on_change();
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
