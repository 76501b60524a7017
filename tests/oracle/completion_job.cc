#include "oracle/completion_job.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/sse.h"
#include "loop/pause.h"
#include "oracle/answer.h"
#include "oracle/model/half_characters.h"
#include "os/file/random.h"
#include "os/log.h"
#include "refengine/api/completion_answer.h"
#include "text/ascii.h"

namespace fo::oracle {
namespace {

using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;
using Kind = Fault::Kind;

// After this many steps without a wait other requests run.
constexpr std::uint64_t kStepsAtOnce = 32;

const ApiError& injected_error() {
  static const ApiError error(500, "the oracle fails on purpose");
  return error;
}

Response refusal(std::uint64_t status, const std::string& reason, base::Duration retry_after) {
  Response response = refengine::format_error(ApiError(static_cast<int>(status), reason));
  if (retry_after > base::Duration::zero()) http::add_retry_after(response, retry_after);
  return response;
}

// "x-oracle-first-token: 20ms" is {"first_token": "20ms"}.
nlohmann::json knobs_of_headers(const http::Fields& headers) {
  constexpr std::string_view kPrefix = "x-oracle-";
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [field, value] : headers) {
    std::string name = text::lower(field);
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    std::ranges::replace(name, '-', '_');
    object[name] = value;
  }
  return object;
}

// Adds a list of strings to the first object in `text`.
void add_padding(std::string& text, std::uint64_t bytes) {
  if (bytes == 0) return;
  constexpr std::string_view kItem = R"("error",)";
  std::string member = R"("padding":[)";
  while (member.size() < bytes) member += kItem;
  member.back() = ']';
  text.insert(text.find('{') + 1, member + ",");
}

struct Choice {
  Choice(const Weights& weights, const std::vector<TokenId>& of, GenerationOptions options)
      : generation(weights, of, std::move(options)), prompt(&of) {}
  Generation generation;
  const std::vector<TokenId>* prompt;
  bool has_begun = false;
  bool has_content = false;
  std::size_t characters = 0;
  HalfCharacters halves = {};
  /// All parts, for an answer in one piece.
  ChoicePart whole;
};

class Job {
 public:
  Job(std::shared_ptr<EngineState> state, CompletionRequest request, Knobs knobs,
      const Request& http_request, Reply& reply);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  awaitable<std::optional<Response>> run();

 private:
  enum class End { kAnswered, kCut, kError };

  awaitable<void> begin();
  awaitable<End> generate();
  awaitable<void> delay(std::uint64_t tokens);
  ChoicePart next_part(Choice& choice, std::uint64_t tokens);
  std::string add(Choice& choice, ChoicePart part);
  awaitable<void> send(std::string events);
  awaitable<End> fail();
  std::string abort_events();
  std::string last_events();
  Response whole_answer(End end);

  [[nodiscard]] bool is_fault_due() const {
    return fault_ != Kind::kNone && fault_ != Kind::kWrong && sent_ >= fault_at_;
  }
  [[nodiscard]] bool is_finished() const {
    return std::ranges::all_of(choices_,
                               [](const Choice& one) { return one.generation.finished(); });
  }

  std::shared_ptr<EngineState> state_;
  CompletionRequest request_;
  Knobs knobs_;
  std::optional<std::string> request_id_;
  Reply& reply_;
  Slots::Place place_;
  AnswerFormat format_;
  std::vector<Choice> choices_;
  Usage usage_;
  Kind fault_ = Kind::kNone;
  std::uint64_t fault_at_ = 0;
  /// Tokens of all choices that were sent.
  std::uint64_t sent_ = 0;
  std::uint64_t steps_ = 0;
  bool has_ended_ = false;
};

std::string answer_id(Endpoint endpoint, const std::optional<std::string>& request_id) {
  const std::string prefix = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  return prefix + request_id.value_or(os::make_uuid4());
}

std::optional<std::string> request_id_of(const Request& request) {
  const auto id = request.header("x-request-id");
  return id ? std::optional<std::string>(*id) : std::nullopt;
}

Job::Job(std::shared_ptr<EngineState> state, CompletionRequest request, Knobs knobs,
         const Request& http_request, Reply& reply)
    : state_(std::move(state)),
      request_(std::move(request)),
      knobs_(std::move(knobs)),
      request_id_(request_id_of(http_request)),
      reply_(reply),
      place_(state_->slots),
      format_(request_, answer_id(request_.endpoint, request_id_), request_.model,
              std::time(nullptr)) {
  fault_ = knobs_.fail.kind;
  fault_at_ = knobs_.fail.first;
  if (knobs_.fail.last > knobs_.fail.first) {
    fault_at_ += state_->draw() % (knobs_.fail.last - knobs_.fail.first + 1);
  }
  if (fault_ == Kind::kWrong) request_.options.wrong_from = fault_at_;
  for (const std::vector<TokenId>& prompt : request_.prompts) {
    for (std::uint64_t i = 0; i < request_.n; ++i) {
      GenerationOptions options = request_.options;
      // Sampled choices of one prompt differ.
      if (request_.is_sampled) options.sampling += i;
      if (options.logprob_noise > 0) options.noise = state_->draw();
      choices_.emplace_back(state_->options.model.weights, prompt, std::move(options));
      choices_.back().whole.index = choices_.size() - 1;
    }
    usage_.prompt_tokens += prompt.size();
  }
  state_->counts.kv_tokens += usage_.prompt_tokens;
}

Job::~Job() {
  Counts& counts = state_->counts;
  counts.kv_tokens -= usage_.prompt_tokens + usage_.completion_tokens;
  if (!has_ended_) ++counts.aborted;
}

awaitable<std::optional<Response>> Job::run() {
  std::optional<Response> answer;
  if (place_.must_wait(knobs_.slots) && state_->slots->waiting() > knobs_.waiting) {
    has_ended_ = true;
    ++state_->counts.refused;
    answer = refusal(knobs_.busy_status, "too many requests are waiting", knobs_.retry_after);
    co_return answer;
  }
  co_await place_.wait(knobs_.slots);
  End end = End::kAnswered;
  if (knobs_.fail.at_start && is_fault_due()) {
    end = co_await fail();
  } else {
    co_await begin();
    state_->counts.prompt_tokens += usage_.prompt_tokens;
    end = co_await generate();
  }
  if (end == End::kCut || reply_.begun()) co_return answer;
  answer = whole_answer(end);
  co_return answer;
}

awaitable<void> Job::begin() {
  if (!request_.stream) co_return;
  http::ResponseHead head{
      200, {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}}};
  if (request_id_) head.headers.emplace_back("x-request-id", *request_id_);
  co_await reply_.begin(std::move(head));
}

// Each round is a step of the engine, which computes a token, or several, for each choice.
awaitable<Job::End> Job::generate() {
  while (!is_finished() || is_fault_due()) {
    const std::uint64_t most = knobs_.chunk;
    const std::uint64_t tokens = knobs_.random_chunks ? 1 + state_->draw() % most : most;
    if (is_fault_due()) {
      const End end = co_await fail();
      co_return end;
    }
    co_await delay(tokens);
    std::string events;
    for (Choice& choice : choices_) {
      if (choice.generation.finished() || is_fault_due()) continue;
      events += add(choice, next_part(choice, tokens));
    }
    if (is_finished() && !is_fault_due()) events += last_events();
    co_await send(std::move(events));
  }
  for (const Choice& choice : choices_) {
    const bool is_length = choice.generation.finish() == "length";
    ++(is_length ? state_->counts.length : state_->counts.stopped);
  }
  has_ended_ = true;
  co_return End::kAnswered;
}

awaitable<void> Job::delay(std::uint64_t tokens) {
  base::Duration time =
      steps_ == 0 ? knobs_.first_token : knobs_.gap * static_cast<base::Duration::rep>(tokens);
  if (knobs_.jitter > base::Duration::zero()) {
    time += base::Duration(static_cast<base::Duration::rep>(
        state_->draw() % (static_cast<std::uint64_t>(knobs_.jitter.count()) + 1)));
  }
  if (time > base::Duration::zero()) {
    co_await loop::pause_for(time);
  } else if (steps_ % kStepsAtOnce == 0) {
    co_await boost::asio::post(state_->executor, boost::asio::use_awaitable);
  }
  ++steps_;
}

ChoicePart Job::next_part(Choice& choice, std::uint64_t tokens) {
  ChoicePart part{.index = choice.whole.index};
  if (!std::exchange(choice.has_begun, true)) {
    part.prompt = choice.prompt;
    if (request_.echo) part.prefix = text_of(*choice.prompt, request_.options.special);
  }
  part.offset = choice.characters;
  Generation& generation = choice.generation;
  while (tokens-- > 0 && !generation.finished() && !is_fault_due()) {
    part.tokens.push_back(generation.next());
    ++sent_;
    ++usage_.completion_tokens;
    ++state_->counts.kv_tokens;
    ++state_->counts.generation_tokens;
  }
  const bool has_content = !std::ranges::all_of(part.tokens, &AnswerToken::is_thinking);
  part.begins_content = has_content && !std::exchange(choice.has_content, has_content);
  choice.characters += characters_of(part);
  // A fault after the last token is before the finish.
  if (generation.finished() && !is_fault_due()) {
    part.finish = generation.finish();
    part.stop_reason = generation.stop_reason();
  }
  return part;
}

// Adds a part to the answer. Returns its events in a stream.
std::string Job::add(Choice& choice, ChoicePart part) {
  std::string events;
  if (request_.stream) {
    const Usage so_far{choice.prompt->size(), choice.generation.tokens()};
    if (request_.endpoint == Endpoint::kChat && part.prompt != nullptr) {
      events += format_.role_event(part.index, *choice.prompt, {choice.prompt->size(), 0});
    }
    if (knobs_.half_characters) choice.halves.split(part);
    events += choice.halves.escape(format_.part_event(part, so_far));
    if (part.prompt != nullptr) add_padding(events, knobs_.padding);
    return events;
  }
  ChoicePart& whole = choice.whole;
  if (part.prompt != nullptr) whole.prompt = part.prompt;
  whole.prefix += part.prefix;
  std::ranges::move(part.tokens, std::back_inserter(whole.tokens));
  whole.finish = std::move(part.finish);
  whole.stop_reason = std::move(part.stop_reason);
  return events;
}

std::string Job::last_events() {
  std::string events;
  if (!request_.stream) return events;
  if (request_.include_usage) events += format_.usage_event(usage_);
  return events + http::format_sse("[DONE]");
}

awaitable<void> Job::send(std::string events) {
  if (events.empty()) co_return;
  const std::size_t size = knobs_.write_bytes > 0 ? knobs_.write_bytes : events.size();
  for (std::size_t at = 0; at < events.size(); at += size) {
    co_await reply_.write(std::string_view(events).substr(at, size));
  }
}

// Ends the choices that have not ended.
std::string Job::abort_events() {
  std::string events;
  for (Choice& choice : choices_) {
    if (choice.generation.finished() && sent_ > fault_at_) continue;
    ChoicePart part{.index = choice.whole.index, .offset = choice.characters};
    if (!std::exchange(choice.has_begun, true)) part.prompt = choice.prompt;
    part.finish = "abort";
    events += add(choice, std::move(part));
  }
  return events + last_events();
}

awaitable<Job::End> Job::fail() {
  has_ended_ = true;
  ++state_->counts.faults;
  const Fault fault{fault_, knobs_.fail.at_start, sent_, sent_};
  os::log(os::LogLevel::kDebug, "request {}: fails: {}", base::quoted(request_id_.value_or("")),
          to_text(fault));
  switch (fault_) {
    case Kind::kStall:
      has_ended_ = false;
      co_await state_->stall();
      break;
    case Kind::kReset:
      reply_.cut(Reply::Cut::kReset);
      co_return End::kCut;
    case Kind::kHalf: {
      if (!reply_.begun()) break;
      Choice& choice = choices_.front();
      fault_ = Kind::kNone;
      if (choice.generation.finished()) break;
      const std::string event = add(choice, next_part(choice, 1));
      co_await send(event.substr(0, event.size() / 2));
      break;
    }
    case Kind::kEarlyEnd:
      if (reply_.begun()) co_return End::kAnswered;
      break;
    case Kind::kError: {
      if (!reply_.begun()) co_return End::kError;
      const std::string body = refengine::format_error(injected_error()).body;
      const std::string events = http::format_sse(body) + http::format_sse("[DONE]");
      co_await send(events);
      co_return End::kAnswered;
    }
    case Kind::kAbort: {
      if (!reply_.begun()) co_await begin();
      const std::string events = abort_events();
      co_await send(events);
      co_return End::kAnswered;
    }
    case Kind::kExit:
    case Kind::kKill:
      state_->options.end_process(fault_);
      co_return End::kCut;
    case Kind::kCut:
    case Kind::kWrong:
    case Kind::kNone:
      break;
  }
  reply_.cut(Reply::Cut::kClose);
  co_return End::kCut;
}

Response Job::whole_answer(End end) {
  if (end == End::kError) return refengine::format_error(injected_error());
  std::vector<ChoicePart> parts;
  for (Choice& choice : choices_) parts.push_back(std::move(choice.whole));
  std::string body = format_.whole(parts, usage_);
  add_padding(body, knobs_.padding);
  return {200, "application/json", std::move(body), {}};
}

}  // namespace

awaitable<std::optional<Response>> run_completion(std::shared_ptr<EngineState> state,
                                                  Endpoint endpoint, const Request& request,
                                                  Reply& reply) {
  Knobs knobs = state->admit();
  const nlohmann::json body = parse_body(request.body);
  if (state->options.on_request) state->options.on_request(body);
  apply_knobs(knobs, {{"oracle", knobs_of_headers(request.headers)}});
  apply_knobs(knobs, body);
  std::optional<Response> answer;
  if (knobs.refuse_next > 0) {
    ++state->counts.refused;
    answer = refusal(knobs.refuse_status, "the oracle refuses on purpose", knobs.retry_after);
    co_return answer;
  }
  if (state->is_asleep) throw ApiError(503, "the engine is not awake");
  CompletionRequest wanted = parse_completion(endpoint, body, state->options.model, knobs);
  reply.cancel_when_client_goes();
  Job job(state, std::move(wanted), std::move(knobs), request, reply);
  answer = co_await job.run();
  co_return answer;
}

}  // namespace fo::oracle
