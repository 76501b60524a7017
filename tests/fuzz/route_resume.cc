// A stream that several workers produce, one after the other. The input selects what the client
// asks for, how each worker cuts its answer into events, and where and how each attempt fails. The
// workers are oracles, so each prefix has one right continuation: the client must get every token
// of the undisturbed answer once and in order, with one end, or the beginning of it and an error.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "fuzz.h"
#include "http/sse.h"
#include "json/object.h"
#include "json/scanner.h"
#include "oracle/answer.h"
#include "oracle/model/generation.h"
#include "oracle/model/half_characters.h"
#include "oracle/model/vocabulary.h"
#include "oracle/request.h"
#include "route/answer/exchange.h"
#include "route/request/client_request.h"

namespace fo::route {
namespace {

using fuzz::require;
using nlohmann::json;
using oracle::AnswerToken;
using oracle::CompletionRequest;
using oracle::Generation;
using State = Exchange::State;

constexpr std::uint64_t kContext = 32;
constexpr std::size_t kMaxAttempts = 4;
constexpr std::size_t kAll = 1000;

// --- What the client asks for, and what an undisturbed engine answers.

struct Case {
  json body;
  bool is_chat = false;
  bool reasons = false;
  bool has_card = true;
  bool lacks_token_ids = false;
  bool splits_characters = false;
  std::size_t chunk = 1;
  std::string text;  // that of the body
  oracle::ModelInfo model;

  [[nodiscard]] bool has(const char* name) const { return body.contains(name); }
  [[nodiscard]] oracle::Endpoint endpoint() const {
    return is_chat ? oracle::Endpoint::kChat : oracle::Endpoint::kCompletions;
  }
};

CompletionRequest parse(oracle::Endpoint endpoint, const json& body, const Case& of) {
  oracle::Knobs knobs;
  knobs.reasoning = of.reasons;
  return parse_completion(endpoint, body, of.model, knobs);
}

struct Undisturbed {
  std::vector<AnswerToken> tokens;
  /// Without the thinking.
  std::string text;
  /// How much of the text each token completes, and the characters before it.
  std::vector<std::size_t> ends;
  std::vector<std::uint64_t> offsets;
  std::string finish;
  json stop_reason;
};

// The text ends with the first stop string, as soon as that is complete.
void apply_stops(Undisturbed& answer, const CompletionRequest& request) {
  for (std::size_t end = 1; end <= answer.text.size(); ++end) {
    const std::string_view so_far = std::string_view(answer.text).substr(0, end);
    const auto token =
        std::lower_bound(answer.ends.begin(), answer.ends.end(), end) - answer.ends.begin();
    if (static_cast<std::uint64_t>(token) < request.options.min_tokens) continue;
    for (const std::string& stop : request.options.stops) {
      if (!so_far.ends_with(stop)) continue;
      answer.text.resize(request.options.include_stop ? end : end - stop.size());
      answer.tokens.resize(static_cast<std::size_t>(token) + 1);
      answer.finish = "stop";
      answer.stop_reason = stop;
      return;
    }
  }
}

Undisturbed undisturbed(const Case& of) {
  CompletionRequest request = parse(of.endpoint(), of.body, of);
  oracle::GenerationOptions options = request.options;
  options.stops.clear();
  Generation generation(of.model.weights, request.prompts.front(), options);
  Undisturbed answer;
  while (!generation.finished()) {
    answer.offsets.push_back(base::count_characters(answer.text));
    answer.tokens.push_back(generation.next());
    if (!answer.tokens.back().is_thinking) answer.text += answer.tokens.back().text;
    answer.ends.push_back(answer.text.size());
  }
  answer.finish = generation.finish();
  if (const auto* token = std::get_if<oracle::TokenId>(&generation.stop_reason())) {
    answer.stop_reason = *token;
  }
  apply_stops(answer, request);
  return answer;
}

Case read_case(fuzz::Input& input) {
  Case of;
  of.model.max_model_len = kContext;
  of.model.weights = {.seed = input.byte(), .thinking_tokens = 3};
  const std::uint8_t kind = input.byte();
  of.is_chat = (kind & 1) != 0;
  of.reasons = of.is_chat && (kind & 2) != 0;
  of.has_card = (kind & 4) == 0;
  of.lacks_token_ids = (kind & 0xf0) == 0xf0;
  of.splits_characters = (kind & 8) != 0;
  of.chunk = 1 + input.below(4);

  json& body = of.body;
  body = {{"model", "oracle"}, {"stream", true}, {"ignore_eos", input.below(4) != 0}};
  if (of.is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
  } else {
    body["prompt"] = "Once upon";
  }
  if (const std::size_t limit = input.below(12); limit > 0) body["max_tokens"] = limit;
  const std::uint8_t wants = input.byte();
  if ((wants & 1) != 0) body["return_token_ids"] = true;
  if ((wants & 2) != 0) body["stream_options"]["include_usage"] = true;
  if ((wants & 4) != 0) body["stream_options"]["continuous_usage_stats"] = true;
  if ((wants & 8) != 0) body["skip_special_tokens"] = false;
  if ((wants & 16) != 0) body["include_stop_str_in_output"] = true;
  if ((wants & 32) != 0) body["repetition_penalty"] = 1.5;
  if ((wants & 64) != 0) body["logit_bias"] = {{"300", 1.5}};
  if ((wants & 128) != 0 && !of.is_chat) {
    body["logprobs"] = 1U;
    // The oracle counts half a character as one.
    of.splits_characters = false;
  }
  const Undisturbed free = undisturbed(of);
  if (const std::uint8_t stop = input.byte(); stop != 0 && !of.reasons && !free.text.empty()) {
    // A piece of the text, between two characters.
    std::size_t begin = stop % free.text.size();
    while (begin > 0 && (static_cast<unsigned char>(free.text[begin]) & 0xC0) == 0x80) --begin;
    std::size_t end = std::min(free.text.size(), begin + 1 + input.below(6));
    while (end < free.text.size() && (static_cast<unsigned char>(free.text[end]) & 0xC0) == 0x80) {
      ++end;
    }
    body["stop"] = json::array({"never", free.text.substr(begin, end - begin)});
  }
  if (const std::uint8_t stop = input.byte(); stop != 0) {
    body["stop_token_ids"] = {free.tokens[stop % free.tokens.size()].token};
  }
  if (const std::size_t least = input.below(8); least > 0) {
    body["min_tokens"] = std::min(least, std::max<std::size_t>(1, body.value("max_tokens", 16U)));
    // The router knows the text of an event, not that of each token in it.
    if (of.has("stop")) {
      of.chunk = 1;
      of.splits_characters = of.lacks_token_ids = false;
    }
  }
  of.text = body.dump();
  return of;
}

std::shared_ptr<const fleet::Card> card_of(const Case& of) {
  auto card = std::make_shared<fleet::Card>();
  card->context_length = kContext;
  if (of.has_card) {
    card->special_ids["eos"] = oracle::kEnd;
    card->stop_ids = {oracle::kEnd};
    card->end_of_thinking = {oracle::kEndThink};
  }
  return card;
}

// --- A worker.

// The first events of an answer, or all: with its end, or without it because the worker fails
// before that.
std::vector<std::string> events_of(const CompletionRequest& request, const Case& of,
                                   std::size_t max_events, bool has_finish,
                                   bool names_right_prompt) {
  const oracle::AnswerFormat format(request, "cmpl-1", of.model.name, 1);
  std::vector<oracle::TokenId> prompt = request.prompts.front();
  Generation generation(of.model.weights, prompt, request.options);
  if (!names_right_prompt) prompt.back() ^= 1;
  oracle::HalfCharacters halves;
  oracle::Usage usage{prompt.size(), 0};
  std::vector<std::string> events;
  bool has_content = false;
  std::size_t characters = 0;
  while (!generation.finished() && events.size() < max_events) {
    oracle::ChoicePart part{.offset = characters};
    if (events.empty()) {
      if (of.is_chat && request.endpoint == oracle::Endpoint::kChat) {
        events.push_back(format.role_event(0, prompt, usage));
      }
      part.prompt = &prompt;
    }
    for (std::size_t i = 0; i < of.chunk && !generation.finished(); ++i) {
      part.tokens.push_back(generation.next());
    }
    const bool thinks = std::ranges::all_of(part.tokens, &AnswerToken::is_thinking);
    part.begins_content = !thinks && !std::exchange(has_content, true);
    characters += oracle::characters_of(part);
    usage.completion_tokens = generation.tokens();
    if (generation.finished() && has_finish) {
      part.finish = generation.finish();
      part.stop_reason = generation.stop_reason();
    }
    if (of.splits_characters) halves.split(part);
    events.push_back(halves.escape(format.part_event(part, usage)));
  }
  if (!has_finish || !generation.finished()) return events;
  if (request.include_usage) events.push_back(format.usage_event(usage));
  events.push_back(http::format_sse("[DONE]"));
  return events;
}

// Compares the seam as check_seam() does, from `back` tokens before the safe point on: as if the
// texts that end after that differed.
bool find_seam(Resumption& resumption, std::size_t back) {
  const Transcript& transcript = resumption.transcript();
  const std::size_t safe = transcript.safe_point();
  const auto text_of = [&](std::size_t end) {
    return oracle::text_of(transcript.seam_ids(end, resumption.hidden_ids()),
                           oracle::SpecialTokens::kShown);
  };
  const std::string context = text_of(transcript.seam_begin());
  if (transcript.begins_in_character(context)) return false;
  if (safe == transcript.seam_begin()) {
    resumption.rewind(safe, transcript.match_seam(context, context).value());
    return true;
  }
  const std::size_t max_rewind = resumption.max_rewind();
  for (back = std::min(back, max_rewind); back <= max_rewind; ++back) {
    const auto repeated = transcript.match_seam(context, text_of(safe - back));
    if (!repeated || (*repeated > 0 && max_rewind == 0)) continue;
    resumption.rewind(safe - back, *repeated);
    return true;
  }
  return false;
}

// --- The client.

struct View {
  std::string text;
  std::string reasoning;
  std::vector<TokenId> ids;
  std::vector<std::uint64_t> offsets;
  std::set<std::string> envelopes;
  std::size_t roles = 0;
  std::size_t finishes = 0;
  json finish;
  json stop_reason;
  std::vector<json> usages;
  std::size_t usage_events = 0;
  std::size_t dones = 0;
};

void read_choice(View& view, const json& choice, const Case& of) {
  require(view.finishes == 0, "nothing follows the end");
  const json& delta = of.is_chat ? choice.at("delta") : choice;
  if (delta.contains("role")) {
    require(view.text.empty() && view.reasoning.empty(), "the role is first");
    ++view.roles;
  }
  const char* name = of.is_chat ? "content" : "text";
  if (delta.contains(name)) fo::json::join_halves(view.text, delta.at(name).get<std::string>());
  if (delta.contains("reasoning_content")) {
    view.reasoning += delta.at("reasoning_content").get<std::string>();
  }
  const bool has_ids = choice.contains("token_ids") || choice.contains("prompt_token_ids");
  require(!has_ids || of.has("return_token_ids"), "ids are only for who asks for them");
  if (choice.contains("token_ids")) {
    for (const json& id : choice.at("token_ids")) view.ids.push_back(id.get<TokenId>());
  }
  if (choice.contains("logprobs") && choice.at("logprobs").is_object()) {
    for (const json& offset : choice.at("logprobs").at("text_offset")) {
      view.offsets.push_back(offset.get<std::uint64_t>());
    }
  }
  if (choice.at("finish_reason").is_string()) {
    ++view.finishes;
    view.finish = choice.at("finish_reason");
    view.stop_reason = choice.at("stop_reason");
  }
}

View read_view(std::string_view stream, const Case& of) {
  const bool wants_usage =
      of.body.value("stream_options", json::object()).value("include_usage", false);
  View view;
  http::SseReader reader(base::kMiB);
  while (const auto event = reader.next(stream)) {
    require(view.dones == 0, "nothing follows [DONE]");
    if (event->data == "[DONE]") {
      ++view.dones;
      continue;
    }
    json object = json::parse(event->data);
    require(!object.contains("error"), "no error of a worker is passed on");
    for (const json& choice : object.at("choices")) read_choice(view, choice, of);
    const bool has_ids = object.contains("prompt_token_ids");
    require(!has_ids || of.has("return_token_ids"), "ids are only for who asks for them");
    require(!object.contains("usage") || wants_usage, "the usage is only for who asks for it");
    if (object.at("choices").empty()) {
      require(view.finishes == 1, "the usage follows the end");
      ++view.usage_events;
    }
    if (object.contains("usage")) view.usages.push_back(object.at("usage"));
    for (const char* own : {"choices", "usage", "prompt_token_ids"}) object.erase(own);
    view.envelopes.insert(object.dump());
  }
  require(!reader.is_in_event(), "events are whole");
  require(view.envelopes.size() <= 1, "all events have the same id");
  return view;
}

void check_parts(const View& view, const Undisturbed& expected, const Case& of) {
  for (std::size_t i = 0; i < view.ids.size(); ++i) {
    const bool is_known = i < expected.tokens.size();
    // An event may have more tokens than the one that ends the answer.
    require(is_known || of.has("stop"), "no token is invented");
    require(!is_known || view.ids[i] == expected.tokens[i].token, "the tokens are in order");
  }
  for (std::size_t i = 0; i < view.offsets.size() && i < expected.tokens.size(); ++i) {
    require(view.offsets[i] == expected.offsets[i], "offsets go on");
  }
  std::uint64_t before = 0;
  for (const json& usage : view.usages) {
    const auto tokens = usage.at("completion_tokens").get<std::uint64_t>();
    require(tokens >= before, "the usage grows");
    before = tokens;
  }
}

void check_complete(const View& view, const Undisturbed& expected, const Case& of,
                    std::uint64_t delivered) {
  const bool may_have_more = of.has("stop");
  require(view.text == expected.text, "the text is that of the undisturbed answer");
  require(view.finishes == 1 && view.dones == 1, "the answer has one end");
  require(view.finish == expected.finish, "the end is that of the undisturbed answer");
  require(view.stop_reason == expected.stop_reason, "the reason of the end is the right one");
  require(view.roles == (of.is_chat ? 1 : 0), "an answer of a chat has one role");
  const std::size_t tokens = expected.tokens.size();
  const auto is_count = [&](std::uint64_t count) {
    return count == tokens || (may_have_more && count >= tokens);
  };
  if (of.has("return_token_ids") && !of.lacks_token_ids) {
    require(is_count(view.ids.size()), "no token is lost");
    require(view.ids.size() == delivered, "the delivered tokens are counted");
  }
  if (of.has("logprobs")) require(is_count(view.offsets.size()), "no token is lost");
  const bool wants_usage =
      of.body.value("stream_options", json::object()).value("include_usage", false);
  // Only the engine knows the usage if it does not report token ids.
  const bool may_lack = of.lacks_token_ids && view.usage_events == 0;
  require(view.usage_events == (wants_usage ? 1 : 0) || may_lack, "the usage comes once");
  if (view.usage_events > 0) {
    const json& usage = view.usages.back();
    require(is_count(usage.at("completion_tokens").get<std::uint64_t>()), "the usage is right");
    require(usage.at("total_tokens") == usage.at("completion_tokens").get<std::uint64_t>() +
                                            usage.at("prompt_tokens").get<std::uint64_t>(),
            "the usage adds up");
  }
}

void check_lost(const View& view, const Undisturbed& expected, std::uint64_t delivered) {
  require(expected.text.starts_with(view.text), "what was delivered is the beginning");
  require(view.finishes == 0 && view.dones == 0, "a lost answer has no end");
  require(view.ids.empty() || view.ids.size() == delivered, "the delivered tokens are counted");
}

// --- The attempts.

class Attempts {
 public:
  Attempts(const Case& of, const ClientRequest& request, fuzz::Input& input)
      : case_(of), exchange_(request, {}), request_(request), input_(input) {
    require(exchange_.may_continue(), "the request is one that may continue");
    exchange_.resumption().set_card(card_of(of));
  }

  /// Returns whether the answer is complete; what the client got is output().
  bool run() {
    for (std::size_t i = 0; i < kMaxAttempts; ++i) {
      const bool is_continuation = exchange_.is_delivered();
      if (is_continuation) {
        if (exchange_.finish_here()) {
          take();
          return true;
        }
        const std::string refusal = exchange_.resume_refusal();
        if (!refusal.empty()) {
          require(may_refuse(), "an honest worker's answer can continue");
          break;
        }
        if (!find_seam(exchange_.resumption(), input_.below(3))) {
          require(!case_.has_card || case_.reasons || exchange_.resumption().max_rewind() == 0,
                  "a place fits");
          break;
        }
      }
      exchange_.set_form(is_continuation ? Exchange::RequestForm::kContinuation
                                         : Exchange::RequestForm::kResumable);
      attempt(i + 1 == kMaxAttempts);
      if (exchange_.state() == State::kDone) return true;
    }
    // The caller ends the stream with an error.
    take();
    return false;
  }

  [[nodiscard]] const std::string& output() const { return output_; }
  [[nodiscard]] std::uint64_t delivered() const { return exchange_.delivered_tokens(); }
  [[nodiscard]] bool has_whole() const { return !exchange_.is_chunk_stream(); }

 private:
  enum class Fault {
    kBroken,
    kHalf,
    kEnd,
    kError,
    kAbort,
    kRefused,
    kStatus,
    kWhole,
    kPrompt,
    kPlain,
    kNone
  };

  [[nodiscard]] bool may_refuse() const {
    return case_.lacks_token_ids || has_met_plain_ || (case_.reasons && !has_content()) ||
           (case_.reasons && !case_.has_card);
  }
  [[nodiscard]] bool has_content() const { return !read_view(output_, case_).text.empty(); }

  [[nodiscard]] bool has_failed() const { return exchange_.state() == State::kFailed; }
  void take() { output_ += exchange_.take_output(); }

  void attempt(bool is_last) {
    const bool is_continuation = exchange_.form() == Exchange::RequestForm::kContinuation;
    Fault fault = is_last ? Fault::kNone
                          : static_cast<Fault>(input_.below(static_cast<std::size_t>(
                                is_continuation ? Fault::kNone : Fault::kWhole)));
    const std::uint8_t place = input_.byte();
    const std::size_t piece = 1 + input_.byte();
    exchange_.begin_attempt();
    if (fault == Fault::kRefused) return;
    if (fault == Fault::kStatus || fault == Fault::kWhole) {
      exchange_.on_head(
          {fault == Fault::kStatus ? 503 : 200, {{"content-type", "application/json"}}});
      exchange_.on_body("{}");
      exchange_.on_end();
      require(exchange_.state() == State::kFailed, "that is no answer");
      return;
    }
    const std::string body =
        is_continuation ? exchange_.resumption().body() : resumable_body(request_);
    CompletionRequest request =
        parse(is_continuation ? oracle::Endpoint::kCompletions : case_.endpoint(),
              json::parse(body), case_);
    if (case_.lacks_token_ids || fault == Fault::kPlain) request.return_token_ids = false;
    has_met_plain_ |= fault == Fault::kPlain;
    // Without a card, only the engine knows which token ends the answer.
    const bool has_finish = fault == Fault::kNone || place % 8 != 7 || !case_.has_card;
    const std::size_t count = fault == Fault::kNone ? kAll : place / 8;
    const std::vector<std::string> events = events_of(
        request, case_, count == kAll ? kAll : count + 1, has_finish, fault != Fault::kPrompt);
    std::string bytes;
    for (std::size_t i = 0; i < std::min(count, events.size()); ++i) bytes += events[i];
    if (fault == Fault::kHalf && count < events.size()) {
      bytes += events[count].substr(0, 1 + place % events[count].size());
    }
    if (fault == Fault::kError) {
      bytes += http::format_sse(R"({"error":{"message":"no memory","code":500}})") +
               http::format_sse("[DONE]");
    }
    if (fault == Fault::kAbort) {
      bytes += http::format_sse(
          R"({"choices":[{"index":0,"text":"x","delta":{"content":"x"},"finish_reason":"abort"}]})");
    }
    exchange_.on_head({200, {{"content-type", "text/event-stream"}}});
    for (std::size_t at = 0; at < bytes.size() && !has_failed(); at += piece) {
      exchange_.on_body(std::string_view(bytes).substr(at, piece));
      if (!has_failed() && exchange_.has_head()) take();
    }
    if (has_failed()) {
      require(fault != Fault::kNone, "an answer without a fault is accepted");
      return;
    }
    if (fault == Fault::kBroken || fault == Fault::kHalf) {
      exchange_.on_broken("reset");
    } else {
      exchange_.on_end();
    }
    require(fault != Fault::kNone || exchange_.state() == State::kDone,
            "an answer without a fault is complete");
    if (exchange_.state() == State::kDone) take();
  }

  const Case& case_;
  Exchange exchange_;
  const ClientRequest& request_;
  fuzz::Input& input_;
  std::string output_;
  bool has_met_plain_ = false;
};

void fuzz_one(fuzz::Input input) {
  const Case of = read_case(input);
  http::Request from;
  from.method = "POST";
  from.target = from.path = of.is_chat ? "/v1/chat/completions" : "/v1/completions";
  from.headers = {{"content-type", "application/json"}};
  from.body = of.text;
  const ReadRequest read = read_request(from, of.is_chat ? Api::kChat : Api::kCompletions, {});
  require(read.request.has_value(), "the request is valid");
  const Undisturbed expected = undisturbed(of);
  Attempts attempts(of, *read.request, input);
  const bool is_complete = attempts.run();
  const View view = read_view(attempts.output(), of);
  check_parts(view, expected, of);
  if (is_complete) {
    check_complete(view, expected, of, attempts.delivered());
  } else {
    check_lost(view, expected, attempts.delivered());
  }
}

}  // namespace
}  // namespace fo::route

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::route::fuzz_one({data, size});
  return 0;
}
