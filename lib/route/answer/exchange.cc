#include "route/answer/exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "json/object.h"
#include "json/scanner.h"
#include "route/answer/stream_chunk.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

constexpr std::string_view kDone = "[DONE]";
constexpr std::string_view kEventStream = "text/event-stream";
// The body of an error is cut here.
constexpr std::size_t kMaxErrorBytes = std::size_t{64} * 1024;
constexpr std::size_t kMaxReasonBytes = 200;
// Reading as many bytes takes a few milliseconds.
constexpr std::size_t kLongBytes = std::size_t{128} * 1024;
// More choices than any engine serves; their ends are not tracked.
constexpr std::uint64_t kMaxChoices = 4096;

// Header in which fo-refengine(1) reports on a KV cache that a request names.
constexpr std::string_view kKvSnapshotHeader = "x-fo-kv-snapshot";
// Headers of a worker that belong to its connection, name its address or its insides, or are ours.
constexpr std::array<std::string_view, 18> kDroppedHeaders{"alt-svc",
                                                           "connection",
                                                           "keep-alive",
                                                           "transfer-encoding",
                                                           "content-length",
                                                           "trailer",
                                                           "te",
                                                           "upgrade",
                                                           "server",
                                                           "date",
                                                           "proxy-connection",
                                                           "proxy-authenticate",
                                                           "location",
                                                           "x-fo-level",
                                                           "x-fo-request-id",
                                                           "x-request-id",
                                                           "x-should-retry",
                                                           kKvSnapshotHeader};

bool is_event_stream(const http::ResponseHead& head) {
  const std::string type = text::lower(head.header("content-type").value_or(""));
  return type.starts_with(kEventStream);
}

// The fault of an answer with the status of an error, and this body.
AnswerFault fault_of_status(int status, const std::string& body) {
  AnswerFault fault{.kind = AnswerFault::Kind::kStatus, .status = status};
  fault.reason = "status " + std::to_string(status);
  try {
    const StreamChunk chunk = read_stream_chunk(body);
    fault.error_code = chunk.error_status.value_or(0);
    const std::string message = base::one_line(chunk.error_message, kMaxReasonBytes);
    if (!message.empty()) fault.reason += ": " + message;
  } catch (const base::Error&) {
    // The body is not JSON, for example because a proxy has answered.
  }
  return fault;
}

// The reason with which the engine ended a choice that it did not finish; empty if there is none.
std::string abort_reason(const StreamChunk& chunk) {
  for (const StreamChunk::Finish& ending : chunk.finishes) {
    if (ending.reason == "abort" || ending.reason == "error") return ending.reason;
  }
  return {};
}

// The "usage" of an answer in one piece, in any API, of which the rest may be long and is not read.
std::optional<Usage> usage_in(std::string_view body) {
  constexpr std::string_view kName = "\"usage\"";
  // In a string, the quotes are escaped.
  const std::size_t name = body.rfind(kName);
  if (name == body.npos) return std::nullopt;
  const std::size_t value = body.find_first_not_of(" \t\r\n:", name + kName.size());
  if (value == body.npos || body[value] != '{') return std::nullopt;
  Usage usage;
  try {
    fo::json::Scanner scanner(body.substr(value));
    read_usage(scanner, usage);
  } catch (const fo::json::Misfit&) {
    return std::nullopt;
  }
  return usage;
}

// Reads the usage of an answer in one piece, in any API, and the reason of an abort.
StreamChunk read_whole(const std::string& body) {
  constexpr std::array<const char*, 2> kNames{"\"abort\"", "\"error\""};
  const bool has_any = std::any_of(kNames.begin(), kNames.end(),
                                   [&](const char* name) { return body.find(name) != body.npos; });
  StreamChunk chunk;
  try {
    if (has_any) chunk = read_stream_chunk(body);
  } catch (const base::Error&) {
    // The answer is not JSON, but for example audio.
  }
  chunk.usage = usage_in(body);
  return chunk;
}

AnswerFault aborted(const std::string& reason) {
  return {.kind = AnswerFault::Kind::kAborted,
          .reason = "the engine ended the answer with " + base::quoted(reason)};
}

http::Fields forwarded_headers(const http::Fields& headers) {
  // Connection names more headers that belong to the connection (RFC 9110, section 7.6.1).
  std::string named = ",";
  for (const auto& [name, value] : headers) {
    if (base::equal_ignoring_case(name, "connection")) named += text::lower(value) + ",";
  }
  std::erase_if(named, [](char c) { return c == ' ' || c == '\t'; });
  http::Fields kept;
  for (const auto& [name, value] : headers) {
    const std::string lower = text::lower(name);
    const bool is_named = named.find("," + lower + ",") != named.npos;
    if (!is_named && !text::is_one_of(lower, kDroppedHeaders)) kept.emplace_back(name, value);
  }
  return kept;
}

}  // namespace

Exchange::Exchange(const ClientRequest& request, const Limits& limits)
    : request_(request),
      choices_(std::clamp<std::uint64_t>(request.choices, 1, kMaxChoices)),
      wanted_mode_(!request.is_streamed                                            ? Mode::kWhole
                   : request.api == Api::kChat || request.api == Api::kCompletions ? Mode::kChunks
                                                                                   : Mode::kOther),
      limits_(limits) {
  if (request.resume && request.resume->refusal.empty()) resumption_.emplace(request);
}

void Exchange::begin_attempt() {
  state_ = State::kWaiting;
  mode_ = Mode::kWhole;
  fault_.reset();
  head_ = {};
  kv_snapshot_.clear();
  events_ = http::SseReader(limits_.first_event);
  other_.reset();
  named_tokens_ = 0;
  is_delivering_ = is_cut_short_ = false;
  error_body_.clear();
  attempt_tokens_ = 0;
  finished_.clear();
  if (form_ == RequestForm::kContinuation) {
    // Text that the last attempt received before its fault is still to be delivered.
    resumption_->begin_continuation();
    return;
  }
  held_.clear();
  held_tokens_ = 0;
  whole_.reset();
  if (form_ != RequestForm::kResumable) return;
  resumption_->begin();
  if (!is_stream()) whole_.emplace();
}

void Exchange::fail(AnswerFault fault) {
  if (state_ == State::kDone) return;
  // Once every choice has its finish_reason, what becomes of the engine does not matter.
  if (is_finished()) return complete();
  state_ = State::kFailed;
  fault_ = std::move(fault);
  // Another attempt may replace an answer of which nothing was delivered.
  is_delivering_ = is_delivered_;
}

void Exchange::complete() {
  if (state_ == State::kDone) return;
  // Its last events may have an error, which does not matter any more.
  state_ = State::kDone;
  if (form_ != RequestForm::kAsGiven) set_usage(resumption_->usage());
  held_tokens_ = std::max(named_tokens_, tokens()) - delivered_tokens_;
  // The engine has named no tokens, and no event was known to bring a piece: each event counts.
  if (other_ && tokens() == 0) held_tokens_ = attempt_tokens_;
  if (form_ != RequestForm::kAsGiven && mode_ == Mode::kChunks) add_events(resumption_->closing());
  if (whole_ && mode_ == Mode::kChunks) {
    held_ = whole_->json();
    std::erase_if(head_.headers, [](const auto& field) {
      return base::equal_ignoring_case(field.first, "content-type");
    });
    head_.headers.emplace_back("content-type", "application/json");
  } else if (mode_ == Mode::kChunks) {
    held_ += http::format_sse(kDone);
  }
  is_delivering_ = true;
}

void Exchange::on_head(http::ResponseHead head) {
  state_ = State::kReading;
  head_.status = head.status;
  head_.headers = forwarded_headers(head.headers);
  kv_snapshot_ = head.header(kKvSnapshotHeader).value_or("");
  mode_ = Mode::kWhole;
  if (head.status < 400 && is_event_stream(head)) {
    const bool is_unread = wanted_mode_ == Mode::kWhole && form_ == RequestForm::kAsGiven;
    mode_ = is_unread ? Mode::kOther : is_stream() ? wanted_mode_ : Mode::kChunks;
  }
  const bool is_other = form_ == RequestForm::kContinuation && mode_ == Mode::kWhole;
  if (is_other && head.status < 400) {
    fail({.kind = AnswerFault::Kind::kInvalid, .reason = "the answer is not a stream"});
  }
}

void Exchange::on_body(std::string_view bytes) {
  if (state_ != State::kReading) return;
  if (mode_ == Mode::kChunks) {
    read_events(bytes);
    return;
  }
  if (head_.status >= 400) {
    error_body_ += bytes.substr(0, kMaxErrorBytes - error_body_.size());
    return;
  }
  held_ += bytes;
  if (mode_ == Mode::kOther) {
    if (!other_) other_.emplace(limits_.first_event);
    const OtherStream::Progress progress = other_->on_bytes(bytes);
    held_tokens_ += progress.pieces;
    // The events before the first piece of the answer come at once, and its computation may last.
    if (progress.pieces > 0 || attempt_tokens_ > 0) attempt_tokens_ += progress.events;
    set_usage(other_->usage());
    is_delivering_ = true;
  } else if (held_.size() > limits_.held) {
    is_delivering_ = true;
  }
}

void Exchange::read_events(std::string_view bytes) {
  // Most bytes go on to the client.
  if (!whole_) held_.reserve(held_.size() + bytes.size());
  try {
    while (state_ == State::kReading) {
      const std::optional<http::SseEvent> event = events_.next(bytes);
      if (!event) return;
      on_event(*event);
    }
  } catch (const base::Error& error) {
    fail({.kind = AnswerFault::Kind::kInvalid, .reason = error.what()});
  }
}

void Exchange::on_event(const http::SseEvent& event) {
  if (event.data == kDone) return on_end();
  const StreamChunk chunk = read_stream_chunk(event.data);
  if (chunk.is_error) {
    fail({.kind = AnswerFault::Kind::kErrorFrame,
          .error_code = chunk.error_status.value_or(0),
          .reason = base::one_line(chunk.error_message, kMaxReasonBytes)});
    error_body_ = event.data;
    return;
  }
  if (const std::string reason = abort_reason(chunk); !reason.empty()) return fail(aborted(reason));
  if (form_ != RequestForm::kAsGiven) return on_resumable(event.data, chunk);
  for (const StreamChunk::Finish& ending : chunk.finishes) finish(ending.choice);
  // Without its id: a stream of several attempts has no place to return to, and an id, which stays
  // in force for all later events, would be written with each of them.
  held_ += http::format_sse(http::SseEvent{event.type, event.data, {}});
  held_tokens_ += chunk.tokens;
  attempt_tokens_ += chunk.tokens;
  set_usage(chunk.usage);
  if (chunk.has_content || is_finished()) {
    events_.set_limit(limits_.event);
    is_delivering_ = true;
  } else if (!is_delivering_) {
    check_held(held_.size());
  }
}

void Exchange::on_resumable(std::string_view data, const StreamChunk& chunk) {
  Resumption::Output output = resumption_->on_event(data, chunk);
  if (!output.mismatch.empty()) {
    fail({.kind = AnswerFault::Kind::kInvalid, .reason = std::move(output.mismatch)});
    return;
  }
  add_events(output.events);
  if (state_ != State::kReading) return;
  held_tokens_ += output.tokens;
  attempt_tokens_ += chunk.tokens;
  for (const StreamChunk::Finish& ending : chunk.finishes) finish(ending.choice);
  if (output.is_complete) {
    is_cut_short_ = true;
    complete();
  } else if (output.tokens > 0 || is_finished()) {
    events_.set_limit(limits_.event);
    is_delivering_ = !whole_;
  } else {
    check_held(held_.size() + resumption_->held_bytes());
  }
}

void Exchange::add_events(const std::string& events) {
  if (!whole_) {
    held_ += events;
    return;
  }
  try {
    whole_->feed(events);
  } catch (const fo::json::Misfit& misfit) {
    fail({.kind = AnswerFault::Kind::kInvalid, .reason = misfit.what()});
    return;
  }
  if (whole_->size() <= limits_.whole) return;
  is_too_long_ = true;
  fail({.kind = AnswerFault::Kind::kTooLong,
        .reason = "the answer is longer than " + base::format_size(limits_.whole)});
}

void Exchange::set_usage(const std::optional<Usage>& usage) {
  if (!usage) return;
  named_tokens_ = usage->completion_tokens;
  if (usage->prompt_tokens > 0) prompt_tokens_ = usage->prompt_tokens;
}

std::optional<std::uint64_t> Exchange::prompt_tokens() const {
  const bool is_named = resumption_ && !resumption_->transcript().prompt().empty();
  return is_named ? resumption_->transcript().prompt().size() : prompt_tokens_;
}

bool Exchange::has_part() const {
  if (is_delivered_) return true;
  if (form_ == RequestForm::kAsGiven) return false;
  // To continue after a text is not exact.
  const bool is_exact = whole_ || !resumption_->lacks_token_ids();
  return is_exact && resumption_->has_part() && resumption_->refusal().empty();
}

// Checks the size of the events without content.
void Exchange::check_held(std::size_t bytes) {
  if (bytes <= limits_.first_event + limits_.event) return;
  fail({.kind = AnswerFault::Kind::kInvalid,
        .reason = "no content in " + base::format_size(bytes) + " of the stream"});
}

std::string Exchange::resume_refusal() const {
  if (is_too_long_) return "it is too long";
  if (form_ != RequestForm::kAsGiven) return resumption_->refusal();
  const bool is_refused = request_.resume && !request_.resume->refusal.empty();
  return is_refused ? request_.resume->refusal : "token ids were not requested from the worker";
}

bool Exchange::finish_here() {
  if (form_ == RequestForm::kAsGiven) return false;
  std::optional<Resumption::Output> output = resumption_->finish_here();
  if (!output) return false;
  add_events(output->events);
  held_tokens_ += output->tokens;
  mode_ = Mode::kChunks;
  complete();
  return true;
}

void Exchange::finish(std::uint64_t choice) {
  if (std::find(finished_.begin(), finished_.end(), choice) != finished_.end()) return;
  if (finished_.size() < choices_) finished_.push_back(choice);
}

bool Exchange::is_long(std::string_view bytes) const {
  // The line end that completes a long event; JSON has none.
  return mode_ == Mode::kChunks && events_.stored() >= kLongBytes &&
         bytes.find_first_of("\r\n") != bytes.npos;
}

bool Exchange::has_long_end() const {
  return mode_ == Mode::kWhole && !is_delivering_ && held_.size() >= kLongBytes;
}

void Exchange::on_end() {
  if (state_ != State::kReading) return;
  if (head_.status >= 400) {
    fail(fault_of_status(head_.status, error_body_));
  } else if (mode_ == Mode::kChunks && !is_finished()) {
    fail({.kind = AnswerFault::Kind::kTruncated,
          .reason = "the stream ended without a finish_reason"});
  } else if (mode_ == Mode::kWhole && !is_delivering_) {
    const StreamChunk answer = read_whole(held_);
    set_usage(answer.usage);
    const std::string reason = abort_reason(answer);
    reason.empty() ? complete() : fail(aborted(reason));
  } else {
    complete();
  }
}

void Exchange::on_broken(const std::string& reason) {
  if (state_ == State::kDone || state_ == State::kFailed) return;
  if (state_ == State::kReading && head_.status >= 400) {
    on_end();
  } else {
    fail({.kind = AnswerFault::Kind::kTruncated, .reason = reason});
  }
}

std::string Exchange::take_output() {
  if (!is_delivering_) return {};
  is_delivered_ = true;
  delivered_tokens_ += std::exchange(held_tokens_, 0);
  return std::exchange(held_, {});
}

http::Response Exchange::failed_answer(bool should_retry) const {
  http::Response response;
  const int status = fault_->status != 0 ? fault_->status : fault_->error_code;
  response.status = status >= 400 ? status : 500;
  response.body = error_body_;
  for (const auto& [name, value] : head_.headers) {
    if (base::equal_ignoring_case(name, "content-type")) {
      if (fault_->kind == AnswerFault::Kind::kStatus) response.content_type = value;
    } else {
      response.headers.emplace_back(name, value);
    }
  }
  if (!should_retry) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

}  // namespace fo::route
