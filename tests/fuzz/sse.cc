// A stream of server-sent events, in pieces. The events must not depend on the pieces, never exceed
// the limit, and be the same after they are written and read again.
#include "http/sse.h"

#include <string>
#include <vector>

#include "fuzz.h"

namespace fo::http {
namespace {

using fuzz::require;
using Events = std::vector<SseEvent>;

constexpr base::ByteCount kMaxBytes = 200;

// Appends the events of a piece; false once the stream is refused.
bool read(SseReader& reader, std::string_view piece, Events& events) {
  return fuzz::unless_refused({base::ExitStatus::kProtocol},
                              [&] {
                                while (!piece.empty()) {
                                  const std::size_t before = piece.size();
                                  auto event = reader.next(piece);
                                  require(piece.size() < before, "something is taken");
                                  require(event.has_value() || piece.empty(),
                                          "without an event, everything is taken");
                                  if (!event) break;
                                  require(event->data.size() <= kMaxBytes,
                                          "no event is beyond the limit");
                                  events.push_back(*std::move(event));
                                }
                                return true;
                              })
      .value_or(false);
}

Events read_whole(std::string_view stream) {
  SseReader reader(kMaxBytes);
  Events events;
  read(reader, stream, events);
  return events;
}

void fuzz_one(fuzz::Input input) {
  std::string stream;
  SseReader in_pieces(kMaxBytes);
  Events events;
  for (bool is_good = true; is_good && !input.empty();) {
    const std::string_view piece = input.text(input.byte() + 1u);
    stream += piece;
    is_good = read(in_pieces, piece, events);
  }
  require(read_whole(stream) == events, "cutting changes nothing");

  SseReader by_bytes(kMaxBytes);
  Events of_bytes;
  for (std::size_t at = 0; at < stream.size(); ++at) {
    const bool is_good = read(by_bytes, std::string_view(stream).substr(at, 1), of_bytes);
    if (!is_good) break;
  }
  require(of_bytes == events, "cutting everywhere changes nothing");

  std::string written;
  for (const SseEvent& event : events) {
    // format_sse() does not write an empty id, which ends the previous one.
    written += "id\n" + format_sse(event);
  }
  SseReader again(10 * kMaxBytes + written.size());
  Events of_written;
  require(read(again, written, of_written), "what is written is read");
  require(of_written == events, "and is the same");
}

}  // namespace
}  // namespace fo::http

FO_FUZZER(fo::http::fuzz_one)
