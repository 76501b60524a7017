#include "refengine/api/api.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "refengine/api/completion_answer.h"
#include "refengine/api/completion_job.h"
#include "refengine/api/metrics.h"
#include "refengine/api/prompt.h"

namespace fo::refengine {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;
using Context = std::shared_ptr<const ApiContext>;

Response empty() { return {200, "text/plain", "", {}}; }
Response json_body(std::string body) { return {200, "application/json", std::move(body), {}}; }

awaitable<void> complete(const ApiContext& context, const Request& request, Reply& reply) {
  return run_completion(context, Endpoint::kCompletions, request, reply);
}

awaitable<void> chat(const ApiContext& context, const Request& request, Reply& reply) {
  return run_completion(context, Endpoint::kChat, request, reply);
}

// These two need no model, so they are answered while asleep, too.
awaitable<void> tokenize(const ApiContext& context, const Request& request, Reply& reply) {
  const TokenizeRequest wanted = parse_tokenize(request.body, context.config, context.model_name);
  reply.answer(
      json_body(format_tokens(wanted.tokens, wanted.return_token_strs, context.positions)));
  co_return;
}

awaitable<void> detokenize(const ApiContext& context, const Request& request, Reply& reply) {
  reply.answer(
      json_body(format_prompt(parse_detokenize(request.body, context.config, context.model_name))));
  co_return;
}

const std::shared_ptr<KvTransfer>& kv_transfer(const ApiContext& context) {
  if (!context.kv_transfer) throw ApiError(404, "this engine moves no KV caches");
  return context.kv_transfer;
}

awaitable<void> offer_kv(const ApiContext& context, const Request& request, Reply& reply) {
  reply.answer(json_body(kv_transfer(context)->offer(request)));
  co_return;
}

awaitable<void> send_kv(const ApiContext& context, const Request& request, Reply& reply) {
  return KvTransfer::send(kv_transfer(context), request, reply);
}

awaitable<void> pull_kv(const ApiContext& context, const Request& request, Reply& reply) {
  return KvTransfer::pull(kv_transfer(context), request, reply);
}

// Only the query is read, as vLLM does. Both levels release weights and KV cache here, because the
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
    Route{"POST", "/tokenize", tokenize},
    Route{"POST", "/detokenize", detokenize},
    Route{"GET", "/kv_snapshot", offer_kv},
    Route{"GET", "/kv_snapshot/blocks", send_kv},
    Route{"POST", "/kv_snapshot/pull", pull_kv},
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

http::ServerLimits api_limits() {
  http::ServerLimits limits;
  limits.body_bytes = kMaxBodyBytes;
  // A token of a stream is less than 4 KiB, and few models have more positions than this allows.
  limits.kept_bytes = 16 * base::kMiB;
  return limits;
}

}  // namespace fo::refengine
