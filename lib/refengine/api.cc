#include "refengine/api.h"

#include <array>
#include <ctime>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/sse.h"
#include "os/random.h"
#include "refengine/completion_answer.h"
#include "refengine/metrics.h"
#include "refengine/output_text.h"

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

void check_admission(const Scheduler& scheduler) {
  switch (scheduler.admission()) {
    case Scheduler::Admission::kNotAwake:
      throw ApiError(503, "the engine is not awake");
    case Scheduler::Admission::kBusy:
      throw ApiError(503, "too many requests are waiting");
    case Scheduler::Admission::kAdmitted:
      break;
  }
}

// One request in progress.
struct Job {
  AnswerHead head;
  Generation generation;
  OutputText text;
  bool include_usage = false;
};

Job make_job(const ApiContext& context, CompletionRequest request) {
  const bool is_chat = request.endpoint == Endpoint::kChat;
  AnswerHead head{request.endpoint,         (is_chat ? "chatcmpl-" : "cmpl-") + os::make_uuid4(),
                  context.model_name,       std::time(nullptr),
                  request.return_token_ids, request.options.sampling.logprobs >= 0};
  try {
    Generation generation(context.config, std::move(request.prompt), std::move(request.options),
                          context.positions);
    return {std::move(head), std::move(generation), OutputText(std::move(request.stops)),
            request.include_usage};
  } catch (const base::Error& error) {
    throw ApiError(400, error.what(), is_chat ? "messages" : "prompt");
  }
}

// The text and tokens of the next token; the last piece has none.
awaitable<AnswerPiece> next_piece(const ApiContext& context, Scheduler::Turn& turn, Job& job) {
  AnswerPiece piece;
  if (job.text.stopped()) {
    piece.finish = finish_reason_name(FinishReason::kStop);
    co_return piece;
  }
  const Outcome outcome = co_await context.scheduler->advance(turn, job.generation);
  if (outcome == Outcome::kToken) {
    context.on_token();
    piece.text = job.text.feed(job.generation.last().chosen.token);
    piece.tokens.push_back({job.generation.last(), job.text.offset()});
    co_return piece;
  }
  piece.text = job.text.finish();
  if (job.text.stopped()) {
    piece.finish = finish_reason_name(FinishReason::kStop);
  } else if (outcome == Outcome::kAborted) {
    piece.finish = "abort";
  } else {
    piece.finish = finish_reason_name(job.generation.reason());
  }
  co_return piece;
}

// The turn ends before the client has read the answer, so that a slow client delays no other.
awaitable<void> answer_whole(const ApiContext& context, Job& job, Reply& reply) {
  AnswerPiece whole;
  {
    Scheduler::Turn turn(context.scheduler);
    while (whole.finish.empty()) {
      AnswerPiece piece = co_await next_piece(context, turn, job);
      whole.text += piece.text;
      whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      whole.finish = piece.finish;
    }
  }
  reply.answer(json_body(format_answer(job.head, whole, job.generation)));
}

awaitable<void> answer_stream(const ApiContext& context, Job& job, Reply& reply) {
  Scheduler::Turn turn(context.scheduler);
  co_await reply.begin(200, "text/event-stream");
  std::string events = format_first_chunk(job.head, job.generation);
  bool finished = false;
  while (!finished) {
    const AnswerPiece piece = co_await next_piece(context, turn, job);
    finished = !piece.finish.empty();
    events += format_chunk(job.head, piece);
    if (finished && job.include_usage) events += format_usage_chunk(job.head, job.generation);
    if (finished) events += http::format_sse("[DONE]");
    co_await reply.write(events);
    events.clear();
  }
}

awaitable<void> answer(const ApiContext& context, Endpoint endpoint, const Request& request,
                       Reply& reply) {
  CompletionRequest wanted = parse_completion(endpoint, request.body, context.config,
                                              context.model_name, os::random_bits());
  check_admission(*context.scheduler);
  const bool stream = wanted.stream;
  Job job = make_job(context, std::move(wanted));
  if (stream) {
    co_await answer_stream(context, job, reply);
  } else {
    co_await answer_whole(context, job, reply);
  }
}

awaitable<void> complete(const ApiContext& context, const Request& request, Reply& reply) {
  return answer(context, Endpoint::kCompletions, request, reply);
}

awaitable<void> chat(const ApiContext& context, const Request& request, Reply& reply) {
  return answer(context, Endpoint::kChat, request, reply);
}

// As in vLLM, only the query is read. Both levels release weights and KV cache here, because the
// weights are in the GMS and not in this process.
awaitable<void> sleep(const ApiContext& context, const Request& request, Reply& reply) {
  const std::string_view level = request.parameter("level").value_or("1");
  if (level != "1" && level != "2") throw ApiError(400, "level is not 1 or 2", "level");
  const std::string_view mode = request.parameter("mode").value_or("abort");
  SleepMode wanted = SleepMode::kAbort;
  if (mode == "wait") {
    wanted = SleepMode::kWait;
  } else if (mode == "keep") {
    wanted = SleepMode::kKeep;
  } else if (mode != "abort") {
    throw ApiError(400, "mode is not abort, wait or keep", "mode");
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
      throw ApiError(400, "tags is not weights or kv_cache", "tags");
    }
  }
  if (!tags.any()) tags = {true, true};
  co_await context.scheduler->wake(tags);
  reply.answer(empty());
}

// vLLM needs this call between the two halves of waking from level 2; here the weights are restored
// with their mapping.
awaitable<void> collective_rpc(const ApiContext&, const Request& request, Reply& reply) {
  if (parse_rpc_method(request.body) != "reload_weights") {
    throw ApiError(400, "method is not reload_weights", "method");
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

awaitable<void> version(const ApiContext& context, const Request&, Reply& reply) {
  reply.answer(json_body(format_version(context.version)));
  co_return;
}

struct Route {
  std::string_view method;
  std::string_view path;
  awaitable<void> (*run)(const ApiContext&, const Request&, Reply&);
};
constexpr std::array kRoutes{
    Route{"GET", "/health", nothing},
    Route{"GET", "/ping", nothing},
    Route{"GET", "/version", version},
    Route{"GET", "/v1/models", models},
    Route{"POST", "/v1/completions", complete},
    Route{"POST", "/v1/chat/completions", chat},
    Route{"POST", "/sleep", sleep},
    Route{"POST", "/wake_up", wake},
    Route{"GET", "/is_sleeping", is_sleeping},
    Route{"POST", "/collective_rpc", collective_rpc},
    Route{"POST", "/reset_prefix_cache", nothing},
};

awaitable<void> serve(Context context, const Route& route, const Request& request, Reply& reply) {
  std::optional<Response> refusal;
  try {
    co_await route.run(*context, request, reply);
  } catch (const ApiError& error) {
    refusal = format_error(error);
  }
  if (refusal) reply.answer(std::move(*refusal));
}

}  // namespace

http::Handler make_api(Context context) {
  std::vector<http::Page> pages = http::daemon_pages(
      [context] { return format_metrics(context->model_name, context->scheduler->load()); },
      context->is_ready);
  for (const Route& route : kRoutes) {
    pages.push_back({std::string(route.method), std::string(route.path),
                     [context, &route](const Request& request, Reply& reply) {
                       return serve(context, route, request, reply);
                     }});
  }
  return http::make_handler(std::move(pages), [](int status, std::string_view message) {
    return format_error(ApiError(status, std::string(message)));
  });
}

}  // namespace fo::refengine
