#include "route/answer/other_stream.h"

#include "base/error.h"
#include "json/object.h"
#include "json/scanner.h"
#include "route/request/response_ids.h"

namespace fo::route {
namespace {

using fo::json::Scanner;

// Adds the counts of an event of /v1/responses, which are in its "response", or of /v1/messages,
// in its "message" or beside it. Each event may name some of them.
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
  // In a string, the quotes are escaped.
  if (event.data.find("\"usage\"") == event.data.npos) return;
  try {
    Scanner scanner(event.data);
    if (scanner.kind() == Scanner::Kind::kObject) add_usage(scanner, usage_);
  } catch (const fo::json::Misfit&) {
    // The client gets it as it is.
  }
}

}  // namespace fo::route
