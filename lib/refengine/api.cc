#include "refengine/api.h"

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "os/random.h"
#include "refengine/completions.h"
#include "refengine/tokens.h"

namespace fo::refengine {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;
using Context = std::shared_ptr<const ApiContext>;
using Outcome = Scheduler::Outcome;

Response empty() { return {200, "text/plain", "", {}}; }
Response json_body(std::string body) { return {200, "application/json", std::move(body), {}}; }

std::string_view finish_of(Outcome outcome, const Generation& generation) {
  return outcome == Outcome::kAborted ? "abort" : finish_reason_name(generation.reason());
}

Generation admit(const ApiContext& context, CompletionRequest& request) {
  switch (context.scheduler->admission()) {
    case Scheduler::Admission::kNotAwake:
      throw ApiError(503, "the engine is not awake");
    case Scheduler::Admission::kBusy:
      throw ApiError(503, "too many requests wait");
    case Scheduler::Admission::kAdmitted:
      break;
  }
  try {
    return {context.config, std::move(request.prompt), request.max_tokens, context.positions};
  } catch (const base::Error& error) {
    throw ApiError(400, error.what());
  }
}

// The turn is over before the client has taken the last words: a slow one holds nobody up.
awaitable<void> answer_whole(const ApiContext& context, const CompletionHead& head,
                             Generation& generation, Reply& reply) {
  Outcome outcome = Outcome::kToken;
  {
    Scheduler::Turn turn(context.scheduler);
    while (outcome == Outcome::kToken) {
      outcome = co_await context.scheduler->advance(turn, generation);
      if (outcome == Outcome::kToken) context.on_token();
    }
  }
  reply.answer(json_body(format_completion(head, generation, finish_of(outcome, generation))));
}

awaitable<void> answer_stream(const ApiContext& context, const CompletionHead& head,
                              Generation& generation, bool include_usage, Reply& reply) {
  Scheduler::Turn turn(context.scheduler);
  co_await reply.begin(200, "text/event-stream");
  TextDecoder decoder;
  for (;;) {
    const Outcome outcome = co_await context.scheduler->advance(turn, generation);
    std::string piece;
    if (outcome == Outcome::kToken) {
      context.on_token();
      const auto token = generation.output().last(1);
      piece = format_chunk(head, decoder.feed(token.front()), token, {});
      co_await reply.write(piece);
      continue;
    }
    piece = format_chunk(head, decoder.finish(), {}, finish_of(outcome, generation));
    if (include_usage) piece += format_usage_chunk(head, generation);
    piece += "data: [DONE]\n\n";
    co_await reply.write(piece);
    co_return;
  }
}

awaitable<void> complete(const ApiContext& context, const Request& request, Reply& reply) {
  CompletionRequest wanted = parse_completion(request.body, context.config, context.model_name);
  Generation generation = admit(context, wanted);
  const CompletionHead head{"cmpl-" + os::make_uuid4(), context.model_name, std::time(nullptr)};
  if (wanted.stream) {
    co_await answer_stream(context, head, generation, wanted.include_usage, reply);
  } else {
    co_await answer_whole(context, head, generation, reply);
  }
}

// As vLLM: the query counts, a body does not. Both levels give up weights and KV cache here, since
// the weights lie in the GMS and not in this process.
awaitable<void> sleep(const ApiContext& context, const Request& request, Reply& reply) {
  const std::string_view level = request.parameter("level").value_or("1");
  if (level != "1" && level != "2") throw ApiError(400, "level is not 1 or 2");
  const std::string_view mode = request.parameter("mode").value_or("abort");
  SleepMode wanted = SleepMode::kAbort;
  if (mode == "wait") {
    wanted = SleepMode::kWait;
  } else if (mode == "keep") {
    wanted = SleepMode::kKeep;
  } else if (mode != "abort") {
    throw ApiError(400, "mode is not abort, wait or keep");
  }
  co_await context.scheduler->sleep(wanted);
  reply.answer(empty());
}

awaitable<void> wake(const ApiContext& context, const Request& request, Reply& reply) {
  WakeTags tags;
  for (const auto& [key, value] : request.query) {
    if (key != "tags") continue;
    if (value == "weights") {
      tags.weights = true;
    } else if (value == "kv_cache") {
      tags.kv_cache = true;
    } else {
      throw ApiError(400, "tags is not weights or kv_cache");
    }
  }
  if (!tags.any()) tags = {true, true};
  co_await context.scheduler->wake(tags);
  reply.answer(empty());
}

// What vLLM wants between the two halves of waking from level 2; here the weights came back with
// their mapping.
awaitable<void> collective_rpc(const ApiContext&, const Request& request, Reply& reply) {
  const auto body = nlohmann::json::parse(request.body, nullptr, false);
  if (!body.is_object() || body.value("method", nlohmann::json()) != "reload_weights") {
    throw ApiError(400, "method is not reload_weights");
  }
  reply.answer(json_body(R"({"results":[null]})"));
  co_return;
}

awaitable<void> nothing(const ApiContext&, const Request&, Reply& reply) {
  reply.answer(empty());
  co_return;
}

awaitable<void> is_sleeping(const ApiContext& context, const Request&, Reply& reply) {
  reply.answer(json_body(context.scheduler->is_sleeping() ? R"({"is_sleeping":true})"
                                                          : R"({"is_sleeping":false})"));
  co_return;
}

awaitable<void> models(const ApiContext& context, const Request&, Reply& reply) {
  reply.answer(json_body(format_models(context.model_name, context.created, context.positions)));
  co_return;
}

struct Route {
  std::string_view method;
  std::string_view path;
  awaitable<void> (*run)(const ApiContext&, const Request&, Reply&);
};
constexpr std::array kRoutes{
    Route{"GET", "/health", nothing},
    Route{"GET", "/v1/models", models},
    Route{"POST", "/v1/completions", complete},
    Route{"POST", "/sleep", sleep},
    Route{"POST", "/wake_up", wake},
    Route{"GET", "/is_sleeping", is_sleeping},
    Route{"POST", "/collective_rpc", collective_rpc},
    Route{"POST", "/reset_prefix_cache", nothing},
};

const Route& find_route(const Request& request) {
  bool known = false;
  for (const Route& route : kRoutes) {
    if (route.path != request.path) continue;
    if (route.method == request.method) return route;
    known = true;
  }
  if (known) throw ApiError(405, request.method + " is not for this path");
  throw ApiError(404, "no such path");
}

awaitable<void> serve(Context context, const Request& request, Reply& reply) {
  std::optional<Response> refusal;
  try {
    const Route& route = find_route(request);
    co_await route.run(*context, request, reply);
  } catch (const ApiError& error) {
    refusal = http::error_response(error.status(), error.what());
  }
  if (refusal) reply.answer(std::move(*refusal));
}

}  // namespace

http::Handler make_api(Context context) {
  return [context = std::move(context)](const Request& request, Reply& reply) {
    return serve(context, request, reply);
  };
}

}  // namespace fo::refengine
