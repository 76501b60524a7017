#include "route/resume/resumption.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "json/scanner.h"
#include "route/resume/id_list.h"

namespace fo::route {
namespace {

// Tokens that vLLM generates if the client sets no limit.
constexpr std::uint64_t kCompletionTokens = 16;
constexpr std::size_t kMaxRewind = 8;

// A generator of random numbers that starts again must not repeat those of the answer's beginning.
std::int64_t seed_of_continuation(std::int64_t seed, std::uint64_t tokens) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kPositive = 0x7fffffffffffffff;
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(seed) + tokens * kStep) & kPositive);
}

// The model's default parameters of sampling that the client has not given, as JSON members.
std::string defaults_of(const fleet::Card& card, const std::set<std::string>& given) {
  std::string members;
  for (const auto& [name, value] : card.generation_defaults) {
    if (!given.contains(name)) members += ",\"" + name + "\":" + nlohmann::json(value).dump();
  }
  return members;
}

// The bias that replaces a frequency penalty for the tokens so far.
std::string bias_of(const ResumeFacts& facts, const std::vector<TokenId>& answer) {
  std::map<std::uint64_t, double> biases;
  for (const auto& [id, bias] : facts.logit_bias) biases[id] = bias;
  if (facts.frequency_penalty != 0) {
    for (const TokenId id : answer) biases[id] -= facts.frequency_penalty;
  }
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [id, bias] : biases) object[std::to_string(id)] = bias;
  return object.empty() ? std::string() : ",\"logit_bias\":" + object.dump();
}

}  // namespace

Resumption::Resumption(const ClientRequest& request)
    : request_(request),
      facts_(*request.resume),
      events_(request.api, facts_),
      stops_(facts_.stops, facts_.include_stop) {}

void Resumption::begin() {
  events_.forget();
  stops_ = StopMatcher(facts_.stops, facts_.include_stop);
  transcript_ = {};
  text_ = {};
  held_.clear();
  delivered_ = characters_ = offset_ = 0;
  lacks_token_ids_ = has_usage_ = has_reasoning_ = has_content_ = is_continuation_ = false;
}

void Resumption::begin_continuation() {
  held_.clear();
  offset_ = characters_;
  is_continuation_ = true;
  is_checked_ = continues_as_text();
  if (!is_checked_) return;
  transcript_.rewind(transcript_.safe_point(), 0);
  text_.begin(transcript_.text().whole());
}

// --- Events.

// Why the event belongs to another prompt; empty if it does not.
std::string Resumption::check_prompt(const StreamChunk& chunk) {
  if (!is_continuation_) {
    if (chunk.prompt_ids && transcript_.prompt().empty()) {
      transcript_.set_prompt(*chunk.prompt_ids);
    }
    return {};
  }
  if (is_checked_) return {};
  if (chunk.prompt_ids) {
    is_checked_ = *chunk.prompt_ids == transcript_.all();
    return is_checked_ ? "" : "its prompt has other tokens";
  }
  const bool is_late = chunk.tokens > 0 || !chunk.finishes.empty();
  return is_late ? "it does not report the prompt's token ids" : "";
}

Resumption::Output Resumption::on_event(std::string_view data, const StreamChunk& chunk) {
  if (std::string mismatch = check_prompt(chunk); !mismatch.empty()) {
    return {.events = {}, .mismatch = "the worker does not continue the answer: " + mismatch};
  }
  text_.count(chunk);
  if (chunk.choices > 0) {
    if (!events_.has_learned()) events_.learn(data, chunk);
    return on_part(data, chunk);
  }
  const bool is_unwanted = is_continuation_ || (chunk.usage && !facts_.wants_usage);
  if (is_unwanted) return {};
  has_usage_ |= chunk.usage.has_value();
  return {.events = events_.forwarded(data, chunk, std::nullopt), .mismatch = {}};
}

Resumption::Output Resumption::on_part(std::string_view data, const StreamChunk& chunk) {
  static const std::vector<TokenId> kNone;
  const std::vector<TokenId>& ids = chunk.token_ids ? *chunk.token_ids : kNone;
  lacks_token_ids_ |= chunk.has_content && !chunk.token_ids;
  const bool is_after_text = is_continuation_ && lacks_token_ids_;
  if (is_after_text && chunk.has_other_content) {
    return {.events = {},
            .mismatch = "the worker does not continue the answer: it begins to think"};
  }
  const std::optional<std::string> certain =
      transcript_.add(ids, is_after_text ? text_.fresh(chunk.text) : chunk.text);
  if (!certain) {
    held_.clear();
    return {.events = {}, .mismatch = "the worker does not continue the answer: its text differs"};
  }
  has_reasoning_ |= chunk.has_other_content;
  if (!certain->empty() && !std::exchange(has_content_, true)) {
    // The thinking may have had no text.
    if (has_reasoning_ || has_thought()) transcript_.begin_seam();
  }
  characters_ += base::count_characters(*certain);
  const bool is_last = !chunk.finishes.empty();
  const bool counts = tokens() > facts_.min_tokens;
  std::string text = stops_.feed(*certain, counts);
  if (is_last) text += stops_.flush();

  Output output;
  output.is_complete = stops_.stopped();
  if (output.is_complete || is_continuation_) {
    const bool is_wanted = !text.empty() || output.is_complete || is_last || facts_.wants_ids ||
                           facts_.logprobs || facts_.wants_continuous_usage;
    if (is_wanted) held_ += events_.made(part_of(data, chunk, std::move(text)), usage());
  } else if (text == chunk.text) {
    held_ += events_.forwarded(data, chunk, std::nullopt);
  } else {
    // The last event of a chat may have no text.
    if (chunk.text_at.empty()) held_ += events_.made({.text = text}, usage());
    held_ += events_.forwarded(data, chunk, text);
  }
  if (certain->empty() && !chunk.has_other_content && !is_last) return output;
  output.events = std::exchange(held_, {});
  output.tokens = lacks_token_ids_ ? chunk.tokens : take_tokens();
  return output;
}

// Returns the content of an engine's event, with `text` in place of its own, and the end that a
// stop string makes.
ClientEvents::Part Resumption::part_of(std::string_view data, const StreamChunk& chunk,
                                       std::string text) const {
  const auto value_at = [&](const StreamChunk::Place& place) {
    return std::string(place.empty() ? "null" : data.substr(place.begin, place.end - place.begin));
  };
  ClientEvents::Part part{.text = std::move(text)};
  if (chunk.token_ids) part.ids = *chunk.token_ids;
  part.logprobs = rebased_logprobs(value_at(chunk.logprobs_at));
  if (stops_.stopped()) {
    part.finish = "\"stop\"";
    part.stop_reason = fo::json::quoted(stops_.matched());
  } else if (!chunk.finishes.empty()) {
    part.finish = fo::json::quoted(chunk.finishes.front().reason);
    part.stop_reason = value_at(chunk.stop_reason_at);
  }
  return part;
}

// The number of tokens that the client gets now.
std::uint64_t Resumption::take_tokens() {
  const std::uint64_t before = delivered_;
  delivered_ = std::max<std::uint64_t>(before, transcript_.tokens());
  return delivered_ - before;
}

std::string Resumption::rebased_logprobs(std::string logprobs) const {
  if (offset_ == 0 || logprobs == "null") return logprobs;
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(logprobs, nullptr, false);
  const auto offsets = object.is_object() ? object.find("text_offset") : object.end();
  if (offsets == object.end() || !offsets->is_array()) return logprobs;
  for (auto& offset : *offsets) {
    if (offset.is_number_unsigned()) offset = offset.get<std::uint64_t>() + offset_;
  }
  return object.dump();
}

std::optional<Usage> Resumption::usage() const {
  if (transcript_.prompt().empty() || lacks_token_ids_) return text_.usage();
  // After a rewind, the client has got tokens that are generated again.
  return Usage{transcript_.prompt().size(),
               std::max<std::uint64_t>(delivered_, transcript_.tokens())};
}

std::string Resumption::closing() {
  const std::optional<Usage> usage = this->usage();
  const bool is_missing = facts_.wants_usage && !has_usage_;
  if (!is_missing || !usage || !events_.has_learned()) return {};
  return events_.made_usage(*usage);
}

// --- Ends.

std::optional<std::uint64_t> Resumption::client_limit() const {
  if (facts_.max_tokens || request_.api != Api::kCompletions) return facts_.max_tokens;
  return kCompletionTokens;
}

std::optional<std::uint64_t> Resumption::limit() const {
  const std::optional<std::uint64_t> limit = client_limit();
  if (!card_ || card_->context_length == 0) return limit;
  const std::optional<Usage> usage = lacks_token_ids_ ? text_.usage() : std::nullopt;
  const std::uint64_t prompt = usage ? usage->prompt_tokens : transcript_.prompt().size();
  const std::uint64_t room = card_->context_length - std::min(prompt, card_->context_length);
  return std::min(limit.value_or(room), room);
}

// True if the id is the model's end of text, which an engine checks before its other stop ids.
bool Resumption::is_end_of_text(TokenId id) const {
  if (!card_ || facts_.ignore_eos) return false;
  const auto eos = card_->special_ids.find("eos");
  return eos != card_->special_ids.end() && eos->second == id;
}

bool Resumption::ends_answer(TokenId id) const {
  const auto is_in = [id](const std::vector<std::uint64_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const bool is_models = card_ && !facts_.ignore_eos && is_in(card_->stop_ids);
  return is_in(facts_.stop_ids) || is_models || is_end_of_text(id);
}

std::optional<Resumption::Output> Resumption::finish_here() {
  const std::vector<TokenId>& answer = transcript_.answer();
  // The engine would have sent the other half of a character.
  const bool lacks_text = transcript_.has_half();
  if (tokens() == 0 || lacks_text || !refusal().empty()) return std::nullopt;
  ClientEvents::Part part;
  if (!answer.empty() && ends_answer(answer.back())) {
    part.finish = "\"stop\"";
    const bool is_own = std::find(facts_.stop_ids.begin(), facts_.stop_ids.end(), answer.back()) !=
                        facts_.stop_ids.end();
    const bool is_named = is_own && !is_end_of_text(answer.back());
    if (is_named) part.stop_reason = std::to_string(answer.back());
  } else if (tokens() >= limit().value_or(tokens() + 1)) {
    part.finish = "\"length\"";
  } else {
    return std::nullopt;
  }
  part.text = stops_.flush();
  // Events whose tokens bring no text are a part of the answer, too.
  return Output{.events = std::exchange(held_, {}) + events_.made(part, usage()),
                .tokens = take_tokens(),
                .mismatch = {}};
}

// True if the tokens contain the model's end of thinking.
bool Resumption::has_thought() const {
  return card_ && !card_->end_of_thinking.empty() && transcript_.contains(card_->end_of_thinking);
}

std::string Resumption::refusal() const {
  if (!facts_.refusal.empty()) return facts_.refusal;
  if (lacks_token_ids_) return text_refusal();
  if (transcript_.prompt().empty()) return "the worker does not report the prompt's token ids";
  if (has_reasoning_) {
    const bool is_known = card_ && !card_->end_of_thinking.empty();
    if (!is_known) return "the model's card does not say how thinking ends";
    if (!has_content_ || !has_thought()) return "the model was thinking";
  }
  const bool has_repetition_penalty =
      card_ && card_->generation_defaults.contains("repetition_penalty");
  if (facts_.frequency_penalty != 0 && has_repetition_penalty) {
    return "'frequency_penalty' beside the model's own repetition penalty";
  }
  if (!limit()) return "the length of the model's context is not known";
  return {};
}

std::string Resumption::text_refusal() const {
  if (!facts_.text_refusal.empty()) return facts_.text_refusal;
  if (!transcript_.text().is_whole()) return "the worker does not report all token ids";
  // A parser expects the beginning of an answer.
  const bool is_parsed = has_reasoning_ || (card_ && !card_->parsers.empty());
  return is_parsed ? "the worker parses the answer, and does not report token ids" : "";
}

// --- A continuation.

std::set<TokenId> Resumption::hidden_ids() const {
  std::set<TokenId> ids;
  if (!card_ || !facts_.skip_special_tokens) return ids;
  for (const auto& [name, id] : card_->special_ids) ids.insert(static_cast<TokenId>(id));
  for (const std::uint64_t id : card_->stop_ids) ids.insert(static_cast<TokenId>(id));
  return ids;
}

std::size_t Resumption::max_rewind() const {
  const std::size_t compared = transcript_.safe_point() - transcript_.seam_begin();
  return facts_.wants_ids || facts_.logprobs ? 0 : std::min(kMaxRewind, compared);
}

std::string Resumption::text_body(bool is_streamed, std::optional<std::uint64_t> limit) const {
  TextContinuation::Rest rest{.max_tokens = limit};
  rest.min_tokens = facts_.min_tokens - std::min(facts_.min_tokens, tokens());
  if (limit) rest.min_tokens = std::min(rest.min_tokens, *limit);
  if (facts_.seed) rest.seed = seed_of_continuation(*facts_.seed, tokens());
  return TextContinuation::body(request_, transcript_.text().whole(), rest, is_streamed);
}

std::string Resumption::body(const std::string& snapshot) const {
  const std::uint64_t done = tokens();
  if (continues_as_text()) {
    // An engine refuses a limit that exceeds its context together with the prompt, whose tokens
    // only the engine knows.
    std::optional<std::uint64_t> rest = client_limit();
    // An engine refuses 0; the text of the last token may be missing.
    if (rest) rest = std::max<std::uint64_t>(*rest - std::min(*rest, done), 1);
    return text_body(true, rest);
  }
  const std::uint64_t left = limit().value_or(done) - done;
  const std::uint64_t at_least =
      std::min(facts_.min_tokens - std::min(facts_.min_tokens, done), left);
  std::string body = "{\"prompt\":" + list_of_ids(transcript_.all()) +
                     ",\"max_tokens\":" + std::to_string(left) +
                     ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                     ",\"return_token_ids\":true";
  if (at_least > 0) body += ",\"min_tokens\":" + std::to_string(at_least);
  if (facts_.seed) {
    body += ",\"seed\":" + std::to_string(seed_of_continuation(*facts_.seed, done));
  }
  std::vector<std::uint64_t> stop_ids = facts_.stop_ids;
  // An engine that ignores the end of the text still stops at the ids that it is given.
  if (card_ && !facts_.ignore_eos) {
    stop_ids.insert(stop_ids.end(), card_->stop_ids.begin(), card_->stop_ids.end());
  }
  if (!stop_ids.empty()) body += ",\"stop_token_ids\":" + list_of_ids(stop_ids);
  body += bias_of(facts_, transcript_.answer());
  if (card_) body += defaults_of(*card_, facts_.given);
  if (!facts_.repeated.empty()) body += "," + facts_.repeated;
  if (!snapshot.empty()) {
    body += ",\"kv_transfer_params\":{\"fo_snapshot\":" + fo::json::quoted(snapshot) + "}";
  }
  return body + "}";
}

std::string Resumption::warming_body() const {
  if (continues_as_text()) return text_body(false, 1);
  std::string body = "{\"prompt\":" + list_of_ids(transcript_.all()) + ",\"max_tokens\":1";
  if (!facts_.repeated.empty()) body += "," + facts_.repeated;
  return body + "}";
}

std::string resumable_body(const ClientRequest& request, bool lacks_token_ids) {
  const std::string counts = lacks_token_ids || request.resume->wants_continuous_usage
                                 ? R"({"include_usage":true,"continuous_usage_stats":true})"
                                 : R"({"include_usage":true})";
  const auto ids = lacks_token_ids ? std::nullopt : std::optional<std::string>("true");
  const std::array<fo::json::MemberChange, 4> changes{{{"stream", "true"},
                                                       {"stream_options", counts},
                                                       {"return_token_ids", ids},
                                                       {"stop", std::nullopt}}};
  return fo::json::change_members(request.body, changes);
}

}  // namespace fo::route
