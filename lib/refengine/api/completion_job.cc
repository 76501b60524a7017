#include "refengine/api/completion_job.h"

#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "http/sse.h"
#include "os/file/random.h"
#include "refengine/api/completion_answer.h"

namespace fo::refengine {
namespace {

using boost::asio::awaitable;
using http::Reply;
using Outcome = Scheduler::Outcome;

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
  bool include_stop = false;
  bool include_usage = false;
  bool echo = false;
  /// The number of characters of the echoed prompt.
  std::size_t echoed_characters = 0;
  bool has_begun = false;
  /// The client's id, or a random one.
  std::string id = {};
  std::shared_ptr<const KvSnapshot> snapshot = {};
  http::Fields headers = {};
};

// A request's place in the queue. While it exists, the request's KV cache can be found by its id.
class Place {
 public:
  Place(const ApiContext& context, Job& job)
      : turn_(context.scheduler, std::exchange(job.snapshot, nullptr)) {
    if (context.kv_transfer) running_.emplace(context.kv_transfer, job.id, turn_, job.generation);
  }
  [[nodiscard]] Scheduler::Turn& turn() { return turn_; }

 private:
  Scheduler::Turn turn_;
  std::optional<KvTransfer::Running> running_;
};

// Takes the KV cache that the request names. A header of the answer says whether it is used.
void find_snapshot(const ApiContext& context, const std::optional<std::string>& id, Job& job) {
  if (!id) return;
  KvTransfer::Found found{nullptr, "unknown"};
  if (job.generation.options().prompt_logprobs >= 0) {
    found.reason = "the prompt is scored";
  } else if (context.kv_transfer) {
    found = context.kv_transfer->take(*id, job.generation.prompt());
  }
  job.headers.emplace_back("x-fo-kv-snapshot", found.snapshot ? "used" : found.reason);
  job.snapshot = std::move(found.snapshot);
}

Generation make_generation(const ApiContext& context, CompletionRequest& request) {
  try {
    return Generation(context.config, std::move(request.prompt), std::move(request.options),
                      context.positions);
  } catch (const base::Error& error) {
    throw ApiError(400, error.what(), request.endpoint == Endpoint::kChat ? "messages" : "prompt");
  }
}

Job make_job(const ApiContext& context, CompletionRequest request, const std::string& id) {
  AnswerHead head;
  head.endpoint = request.endpoint;
  head.id = (request.endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-") + id;
  head.model = context.model_name;
  head.created = std::time(nullptr);
  head.return_token_ids = request.return_token_ids;
  head.logprobs = request.options.sampling.logprobs >= 0;
  head.continuous_usage = request.continuous_usage;
  head.cached_tokens = request.snapshot.has_value();
  Generation generation = make_generation(context, request);
  if (generation.options().min_tokens > generation.max_tokens()) {
    refuse("min_tokens", "is above max_tokens, " + std::to_string(generation.max_tokens()));
  }
  const bool include_stop = request.text.include_stop;
  OutputText text(std::move(request.text), generation.prompt());
  const std::size_t echoed =
      request.echo ? base::count_characters(decode_tokens(generation.prompt())) : 0;
  return {std::move(head),       std::move(generation), std::move(text), include_stop,
          request.include_usage, request.echo,          echoed};
}

// Inserts the prompt before the first piece. As in vLLM, its text is left out if its ids are
// requested.
void add_echo(const Job& job, AnswerPiece& piece) {
  const std::string prompt = decode_tokens(job.generation.prompt());
  if (!job.head.return_token_ids) piece.text.insert(0, prompt);
  if (!job.head.logprobs) return;
  OutputText text({});
  const std::vector<TokenChoice>& scores = job.generation.prompt_scores();
  for (const TokenId token : job.generation.prompt()) {
    const std::size_t index = piece.echoed.size();
    text.add(token);
    AnswerToken echoed;
    echoed.has_logprob = index > 0 && index <= scores.size();
    if (echoed.has_logprob) echoed.choice = scores[index - 1];
    echoed.choice.chosen.token = token;
    echoed.offset = text.offset();
    piece.echoed.push_back(std::move(echoed));
  }
}

// Adds the token that the generation accepted last.
void add_token(Job& job, AnswerPiece& piece) {
  const Generation& generation = job.generation;
  const bool is_stopped = generation.finished() && generation.reason() == FinishReason::kStop;
  if (is_stopped && !job.include_stop) {
    job.text.add_hidden();
  } else {
    job.text.add(generation.last().chosen.token);
  }
  piece.tokens.push_back({generation.last(), job.echoed_characters + job.text.offset()});
  if (job.text.stop()) {
    piece.finish = finish_reason_name(FinishReason::kStop);
    piece.stop_reason = *job.text.stop();
  } else if (generation.finished()) {
    piece.finish = finish_reason_name(generation.reason());
    if (const auto token = generation.stop_token()) piece.stop_reason = *token;
  }
}

// Produces the next token and the text that it completes; the last piece has the finish reason.
awaitable<AnswerPiece> next_piece(const ApiContext& context, Scheduler::Turn& turn, Job& job) {
  AnswerPiece piece;
  piece.is_first = !std::exchange(job.has_begun, true);
  const Outcome outcome = co_await context.scheduler->advance(turn, job.generation);
  if (outcome == Outcome::kToken) {
    context.on_token();
    add_token(job, piece);
  } else if (outcome == Outcome::kAborted) {
    piece.finish = "abort";
  } else {
    piece.finish = finish_reason_name(job.generation.reason());
  }
  piece.text = job.text.take(!piece.finish.empty());
  if (piece.is_first && job.echo) add_echo(job, piece);
  co_return piece;
}

void append(AnswerPiece& whole, AnswerPiece piece) {
  whole.text += piece.text;
  std::ranges::move(piece.tokens, std::back_inserter(whole.tokens));
  std::ranges::move(piece.echoed, std::back_inserter(whole.echoed));
  whole.finish = std::move(piece.finish);
  whole.stop_reason = std::move(piece.stop_reason);
}

// The turn ends before the client has read the answer, so that a slow client delays no other.
awaitable<void> answer_whole(const ApiContext& context, Job& job, Reply& reply) {
  AnswerPiece whole;
  whole.is_first = true;
  {
    Place place(context, job);
    while (whole.finish.empty()) {
      AnswerPiece piece = co_await next_piece(context, place.turn(), job);
      append(whole, std::move(piece));
    }
  }
  reply.answer(
      {200, "application/json", format_answer(job.head, whole, job.generation), job.headers});
}

awaitable<void> answer_stream(const ApiContext& context, Job& job, Reply& reply) {
  Place place(context, job);
  http::ResponseHead head{200, job.headers};
  head.headers.emplace_back("Content-Type", "text/event-stream");
  co_await reply.begin(std::move(head));
  std::string events;
  if (job.head.endpoint == Endpoint::kChat) events = format_role_chunk(job.head, job.generation);
  bool finished = false;
  while (!finished) {
    const AnswerPiece piece = co_await next_piece(context, place.turn(), job);
    finished = !piece.finish.empty();
    events += format_chunk(job.head, piece, job.generation);
    if (finished && job.include_usage) events += format_usage_chunk(job.head, job.generation);
    if (finished) events += http::format_sse("[DONE]");
    co_await reply.write(events);
    events.clear();
  }
}

}  // namespace

awaitable<void> run_completion(const ApiContext& context, Endpoint endpoint,
                               const http::Request& request, Reply& reply) {
  CompletionRequest wanted = parse_completion(endpoint, request.body, context.config,
                                              context.model_name, os::random_bits());
  check_admission(*context.scheduler);
  const bool stream = wanted.stream;
  const std::optional<std::string> snapshot = wanted.snapshot;
  const auto id = request.header("x-request-id");
  std::string request_id = id ? std::string(*id) : os::make_uuid4();
  Job job = make_job(context, std::move(wanted), request_id);
  job.id = std::move(request_id);
  if (id) job.headers.emplace_back("x-request-id", job.id);
  find_snapshot(context, snapshot, job);
  if (stream) {
    co_await answer_stream(context, job, reply);
  } else {
    co_await answer_whole(context, job, reply);
  }
}

}  // namespace fo::refengine
