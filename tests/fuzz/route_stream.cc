// A worker's answer for the router, in pieces. What a client gets is the answer's whole events, up
// to its end or its fault, and none before there is content; the pieces must not change it.
#include <string>
#include <vector>

#include "fuzz.h"
#include "http/sse.h"
#include "json/object.h"
#include "json/scanner.h"
#include "route/answer/exchange.h"
#include "route/answer/stream_chunk.h"
#include "route/resume/whole_answer.h"

namespace fo::route {
namespace {

using fuzz::require;
using State = Exchange::State;

constexpr Exchange::Limits kLimits{.held = 100, .first_event = 400, .event = 200};

struct Answer {
  explicit Answer(const ClientRequest& request, const http::ResponseHead& head)
      : exchange(request, kLimits) {
    exchange.begin_attempt();
    exchange.on_head(head);
  }

  void take() {
    const bool has_head = exchange.has_head();
    const std::string piece = exchange.take_output();
    require(has_head || piece.empty(), "nothing comes before the head");
    output += piece;
  }
  void body(std::string_view bytes) {
    const bool is_over = exchange.state() != State::kReading;
    const std::size_t size = output.size();
    exchange.on_body(bytes);
    take();
    require(!is_over || output.size() == size, "nothing comes after the end");
  }
  void end(bool is_broken) {
    if (is_broken) {
      exchange.on_broken("reset");
    } else {
      exchange.on_end();
    }
    take();
    require(exchange.state() == State::kDone || exchange.state() == State::kFailed,
            "an answer ends");
    require(exchange.fault().has_value() == (exchange.state() == State::kFailed),
            "a failed answer has a fault");
    require(exchange.is_delivered() || output.empty(), "output is delivered");
    require(exchange.delivered_tokens() <= exchange.attempt_tokens(), "no token is invented");
  }

  Exchange exchange;
  std::string output;
};

std::vector<http::SseEvent> events_of(std::string_view stream) {
  http::SseReader reader(10 * kLimits.first_event + stream.size());
  std::vector<http::SseEvent> events;
  while (auto event = reader.next(stream)) {
    event->id.clear();
    events.push_back(*std::move(event));
  }
  return events;
}

// The events make an answer in one piece, unless their choices are something else.
void check_whole(std::string_view events) {
  WholeAnswer answer;
  try {
    answer.feed(events);
  } catch (const json::Misfit&) {
    return;
  }
  const std::string text = answer.json();
  json::Scanner scanner(text);
  require(scanner.kind() == json::Scanner::Kind::kObject, "an answer is an object");
  scanner.skip();
  scanner.end();
}

// The output of a stream of chunks is whole events of it, with content among them.
void check_events(std::string_view stream, const Answer& answer) {
  std::vector<http::SseEvent> events = events_of(answer.output);
  if (answer.exchange.state() == State::kDone) {
    require(!events.empty() && events.back().data == "[DONE]", "a complete answer says so");
    events.pop_back();
  }
  const std::vector<http::SseEvent> received = events_of(stream);
  require(events.size() <= received.size() &&
              std::equal(events.begin(), events.end(), received.begin()),
          "the output is the first events");
  bool has_content = false;
  for (const http::SseEvent& event : events) {
    const StreamChunk chunk = read_stream_chunk(event.data);
    require(!chunk.is_error, "no error frame is passed on");
    has_content |= chunk.has_content || !chunk.finishes.empty();
  }
  require(has_content || events.empty(), "content is delivered");
  check_whole(answer.output);
}

void fuzz_one(fuzz::Input input) {
  const std::uint8_t choice = input.byte();
  ClientRequest request;
  request.api = (choice & 1) != 0 ? Api::kChat : Api::kResponses;
  request.is_streamed = (choice & 2) == 0;
  request.choices = 1u + (choice >> 2) % 3;
  const bool is_broken = (choice & 16) != 0;
  const http::ResponseHead head{
      (choice & 0xe0) == 0xe0 ? 503 : 200,
      {{"content-type", (choice & 0xe0) == 0x20 ? "application/json" : "text/event-stream"}}};

  std::string stream;
  Answer cut(request, head);
  while (!input.empty()) {
    const std::string_view piece = input.text(input.byte() + 1u);
    if (piece.empty()) break;
    stream += piece;
    cut.body(piece);
  }
  cut.end(is_broken);

  Answer by_bytes(request, head);
  for (const char& c : stream) by_bytes.body({&c, 1});
  by_bytes.end(is_broken);

  require(cut.exchange.state() == by_bytes.exchange.state(), "pieces do not change the end");
  // Of a stream in another format, the pieces are counted.
  if (cut.exchange.is_chunk_stream()) {
    require(cut.exchange.attempt_tokens() == by_bytes.exchange.attempt_tokens(),
            "pieces do not change the tokens");
  }
  if (cut.exchange.fault()) {
    require(cut.exchange.fault()->kind == by_bytes.exchange.fault()->kind &&
                cut.exchange.fault()->status == by_bytes.exchange.fault()->status,
            "pieces do not change the fault");
  }
  // Content that arrives in one piece with a fault may not be delivered.
  require(cut.output == by_bytes.output || cut.output.empty(), "pieces do not change the output");
  if (cut.exchange.is_chunk_stream()) {
    check_events(stream, cut);
  } else if (cut.exchange.state() == State::kDone) {
    require(cut.output == stream, "an answer that is not read is passed on");
  }
}

}  // namespace
}  // namespace fo::route

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::route::fuzz_one({data, size});
  return 0;
}
