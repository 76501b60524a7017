#include "oracle/engine.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "http/pages.h"
#include "json/object.h"
#include "metrics/prometheus_text.h"
#include "oracle/completion_job.h"
#include "oracle/engine_state.h"
#include "oracle/other_apis.h"
#include "os/file/random.h"
#include "refengine/api/completion_answer.h"

namespace fo::oracle {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;
using nlohmann::json;
using State = std::shared_ptr<EngineState>;
using Answer = std::optional<Response>;

constexpr std::string_view kResponses = "/v1/responses/";
constexpr std::size_t kIdBytes = 12;
constexpr std::size_t kMaxResponses = 1024;

Response json_answer(const json& body) { return {200, "application/json", body.dump(), {}}; }
Response empty_answer(int status = 200) { return {status, "text/plain", "", {}}; }

// An answer that is known at once.
awaitable<Answer> at_once(Response response) { co_return response; }

std::string format_metrics(const EngineState& state) {
  metrics::PrometheusText out;
  const Counts& counts = state.counts;
  const std::string& model = state.options.model.name;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       auto value) {
    out.begin(name, type, help);
    out.add({{"model_name", model}}, value);
  };
  add("vllm:num_requests_running", "gauge", "Requests that are running.", state.slots->running());
  add("vllm:num_requests_waiting", "gauge", "Requests that are waiting.", state.slots->waiting());
  add("vllm:kv_cache_usage_perc", "gauge", "The used share of the KV cache, 0 to 1.",
      static_cast<double>(counts.kv_tokens) / static_cast<double>(state.options.kv_tokens));
  add("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", counts.prompt_tokens);
  add("vllm:generation_tokens_total", "counter", "Tokens generated.", counts.generation_tokens);
  out.begin("vllm:request_success_total", "counter", "Requests that have ended, by reason.");
  const auto add_ended = [&](std::string_view reason, std::uint64_t count) {
    out.add({{"model_name", model}, {"finished_reason", reason}}, count);
  };
  add_ended("stop", counts.stopped);
  add_ended("length", counts.length);
  add_ended("abort", counts.aborted);
  add("oracle_requests_total", "counter", "Completions and chats requested.", counts.requests);
  add("oracle_requests_refused_total", "counter", "Requests that were refused.", counts.refused);
  add("oracle_faults_total", "counter", "Requests that failed on purpose.", counts.faults);
  return out.take();
}

awaitable<Answer> health(State state, const Request&, Reply& reply) {
  const std::string lie = state->knobs.health;
  if (lie == "stall") {
    reply.cancel_when_client_goes();
    co_await state->stall();
  }
  co_return empty_answer(lie == "no" ? 503 : 200);
}

awaitable<Answer> sleep(State state, const Request&, Reply&) {
  state->is_asleep = true;
  return at_once(empty_answer());
}

awaitable<Answer> wake(State state, const Request&, Reply&) {
  state->is_asleep = false;
  return at_once(empty_answer());
}

awaitable<Answer> is_sleeping(State state, const Request&, Reply&) {
  return at_once(json_answer({{"is_sleeping", state->is_asleep}}));
}

awaitable<Answer> show_knobs(State state, const Request&, Reply&) {
  return at_once(json_answer(knobs_to_json(state->knobs)));
}

awaitable<Answer> change_knobs(State state, const Request& request, Reply&) {
  try {
    set_knobs(state->knobs, parse_body(request.body));
  } catch (const base::Error& error) {
    throw ApiError(400, error.what());
  }
  return at_once(json_answer(knobs_to_json(state->knobs)));
}

awaitable<Answer> complete(State state, const Request& request, Reply& reply) {
  return run_completion(std::move(state), Endpoint::kCompletions, request, reply);
}

awaitable<Answer> chat(State state, const Request& request, Reply& reply) {
  return run_completion(std::move(state), Endpoint::kChat, request, reply);
}

awaitable<Answer> list_models(State state, const Request&, Reply&) {
  return at_once(json_answer(format_models(state->options.model, state->created)));
}

awaitable<Answer> version(State state, const Request&, Reply&) {
  return at_once(json_answer({{"version", state->options.version}}));
}

template <json (*answer)(const json&, const ModelInfo&)>
awaitable<Answer> small(State state, const Request& request, Reply&) {
  const ModelInfo& model = state->options.model;
  const json body = parse_body(request.body);
  check_model(body, model);
  return at_once(json_answer(answer(body, model)));
}

Response event_stream(std::string events) {
  return {200, "text/event-stream; charset=utf-8", std::move(events), {}};
}

// Only the engine that made a response knows its id.
const json& find_response(const EngineState& state, const std::string& id) {
  const auto found = std::ranges::find(state.responses, id, [](const json& response) {
    return response.at("id").get_ref<const std::string&>();
  });
  if (found == state.responses.end()) {
    throw ApiError(404, "there is no response " + base::quoted(id));
  }
  return *found;
}

awaitable<Answer> responses(State state, const Request& request, Reply&) {
  const json body = parse_body(request.body);
  check_model(body, state->options.model);
  if (const json* previous = fo::json::find(body, "previous_response_id")) {
    find_response(*state, previous->is_string() ? previous->get<std::string>() : std::string());
  }
  const json response = respond(body, state->options.model, "resp_" + os::random_hex(kIdBytes));
  state->responses.push_back(response);
  if (state->responses.size() > kMaxResponses) state->responses.pop_front();
  return at_once(read_flag(body, "stream", false) ? event_stream(respond_events(response))
                                                  : json_answer(response));
}

awaitable<Answer> show_response(State state, const Request& request, Reply&) {
  return at_once(json_answer(find_response(*state, request.path.substr(kResponses.size()))));
}

awaitable<Answer> messages(State state, const Request& request, Reply&) {
  const json body = parse_body(request.body);
  check_model(body, state->options.model);
  const json message = converse(body, state->options.model, "msg_" + os::random_hex(kIdBytes));
  return at_once(read_flag(body, "stream", false) ? event_stream(converse_events(message))
                                                  : json_answer(message));
}

awaitable<Answer> nothing(State, const Request&, Reply&) { return at_once(empty_answer()); }

struct Route {
  std::string_view method;
  std::string_view path;
  awaitable<Answer> (*run)(State, const Request&, Reply&);
};
constexpr std::array kRoutes{
    Route{"GET", "/health", health},
    Route{"GET", "/ping", nothing},
    Route{"GET", "/version", version},
    Route{"GET", "/v1/models", list_models},
    Route{"POST", "/v1/completions", complete},
    Route{"POST", "/v1/chat/completions", chat},
    Route{"POST", "/v1/embeddings", small<embed>},
    Route{"POST", "/v1/rerank", small<rerank>},
    Route{"POST", "/v1/score", small<score>},
    Route{"POST", "/v1/responses", responses},
    Route{"POST", "/v1/messages", messages},
    Route{"POST", "/tokenize", small<tokenize>},
    Route{"POST", "/detokenize", small<detokenize>},
    Route{"POST", "/sleep", sleep},
    Route{"POST", "/wake_up", wake},
    Route{"GET", "/is_sleeping", is_sleeping},
    Route{"GET", "/oracle", show_knobs},
    Route{"POST", "/oracle", change_knobs},
};

// Its id follows the path.
constexpr Route kShowResponse{"GET", kResponses, show_response};

awaitable<void> serve(State state, const Route& route, const Request& request, Reply& reply) {
  Answer answer;
  try {
    answer = co_await route.run(std::move(state), request, reply);
  } catch (const ApiError& error) {
    answer = refengine::format_error(error);
  }
  if (!answer) co_return;
  if (const auto id = request.header("x-request-id")) {
    answer->headers.emplace_back("x-request-id", *id);
  }
  reply.answer(*std::move(answer));
}

http::Handler make_api(const State& state) {
  std::vector<http::Page> pages{http::metrics_page([state] { return format_metrics(*state); })};
  for (const Route& route : kRoutes) {
    pages.push_back({std::string(route.method), std::string(route.path),
                     [state, &route](const Request& request, Reply& reply) {
                       return serve(state, route, request, reply);
                     }});
  }
  const http::Refuse refuse = [](int status, std::string_view message) {
    return refengine::format_error(ApiError(status, std::string(message)));
  };
  return [state, others = http::make_handler(std::move(pages), refuse)](const Request& request,
                                                                        Reply& reply) {
    const bool is_response = request.method == "GET" && request.path.starts_with(kResponses);
    return is_response ? serve(state, kShowResponse, request, reply) : others(request, reply);
  };
}

}  // namespace

Engine::Engine(boost::asio::any_io_executor executor, EngineOptions options)
    : state_(std::make_shared<EngineState>(executor, std::move(options))) {
  state_->created = std::time(nullptr);
  if (!state_->options.end_process) {
    state_->options.end_process = [this](Fault::Kind) {
      server_.reset();
      state_->end();
    };
  }
  const http::ServerLimits limits{.body_bytes = kMaxBodyBytes};
  server_ = std::make_unique<http::Server>(std::move(executor), make_api(state_), limits);
}

Engine::~Engine() {
  state_->options.end_process = [](Fault::Kind) {};
  state_->end();
}

std::uint16_t Engine::listen(const std::string& address) { return server_->listen(address); }

void Engine::listen(base::UniqueFd listener) { server_->listen(std::move(listener)); }

awaitable<bool> Engine::stop(base::Deadline deadline) { return server_->stop(deadline); }

Knobs& Engine::knobs() { return state_->knobs; }

Counts Engine::counts() const {
  Counts counts = state_->counts;
  counts.running = state_->slots->running();
  counts.waiting = state_->slots->waiting();
  return counts;
}

}  // namespace fo::oracle
