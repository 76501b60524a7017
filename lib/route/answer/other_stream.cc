#include "route/answer/other_stream.h"

#include "base/error.h"
#include "json/object.h"
#include "json/scanner.h"
#include "route/request/response_ids.h"

namespace fo::route {
namespace {

using fo::json::Scanner;

// Adds the token counts of an event: those of /v1/responses are in its "response", and those of
// /v1/messages in its "message" or at the top level. An event may have only some of the counts.
void add_usage(Scanner& scanner, std::optional<Usage>& usage) {
  scanner.object([&](std::string_view name) {
    const bool is_object = scanner.kind() == Scanner::Kind::kObject;
    if (is_object && name == "usage") {
      if (!usage) usage.emplace();
      read_usage(scanner, *usage);
    } else if (is_object && (name == "response" || name == "message")) {
      add_usage(scanner, usage);
    } else {
      scanner.skip();
    }
  });
}

}  // namespace

OtherStream::Progress OtherStream::on_bytes(std::string_view bytes) {
  Progress progress;
  try {
    while (is_readable_) {
      const std::optional<http::SseEvent> event = events_.next(bytes);
      if (!event) return progress;
      ++progress.events;
      if (event->type == "message" || event->type.ends_with("delta")) ++progress.pieces;
      on_event(*event);
    }
  } catch (const base::Error&) {
    is_readable_ = false;
    events_ = http::SseReader();
  }
  return {.events = progress.events + 1, .pieces = progress.pieces + 1};
}

void OtherStream::on_event(const http::SseEvent& event) {
  if (response_id_.empty()) response_id_ = find_response_id(event.data);
  // This cannot match within a longer string, whose quotes are escaped.
  if (event.data.find("\"usage\"") == event.data.npos) return;
  try {
    Scanner scanner(event.data);
    if (scanner.kind() == Scanner::Kind::kObject) add_usage(scanner, usage_);
  } catch (const fo::json::Misfit&) {
    // The client gets the malformed event unchanged.
  }
}

}  // namespace fo::route
