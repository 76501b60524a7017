// Server-sent events, as the WHATWG HTML standard defines "text/event-stream" (section "Server-sent
// events"): a reader of bytes that come in any pieces, and a writer. Pure. Bytes are passed on as
// they are: whether they are UTF-8 is not looked at.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::http {

struct SseEvent {
  /// "message" where the stream names none.
  std::string type = "message";
  /// Its lines are joined by '\n'.
  std::string data;
  /// The last one that the stream has named, in this event or before it.
  std::string id;
  friend bool operator==(const SseEvent&, const SseEvent&) = default;
};

class SseReader {
 public:
  /// `most_bytes` of one event: what is kept of it, and of a line whose end has not come.
  explicit SseReader(base::ByteCount most_bytes = base::kMiB) : most_bytes_(most_bytes) {}

  void set_limit(base::ByteCount most_bytes) { most_bytes_ = most_bytes; }

  /// The next event. Takes from the front of `bytes` what it has looked at; nullopt when that was
  /// all, and no event has ended. An event that the end of the stream cuts off is none. Throws
  /// Error(kProtocol) for one beyond the limit; the reader is of no use then.
  std::optional<SseEvent> next(std::string_view& bytes);

  /// How long a client is to wait before it connects again, where the stream has said so.
  [[nodiscard]] std::optional<std::chrono::milliseconds> retry() const { return retry_; }

  /// Something has come of an event that has not ended.
  [[nodiscard]] bool is_in_event() const {
    return !line_.empty() || !data_.empty() || !type_.empty();
  }

 private:
  // True at the end of an event.
  bool take_line(std::string_view line);
  void take_field(std::string_view name, std::string_view value);
  void check_size(std::size_t more) const;

  base::ByteCount most_bytes_;
  // Of a line whose end has not come.
  std::string line_;
  bool is_first_line_ = true;
  bool last_was_cr_ = false;
  // Each line with a '\n'.
  std::string data_;
  std::string type_;
  std::string id_;
  std::optional<std::chrono::milliseconds> retry_;
};

/// An event without a type and an id: "data: …\n\n", with one such line for each of `data`'s, which
/// end with CR, LF or both.
std::string format_sse(std::string_view data);

/// With its type unless that is "message" or empty, and its id unless that is empty. Throws
/// Error(kSoftware) where one of them has a line end, or the id a NUL: those can't be written.
std::string format_sse(const SseEvent& event);

/// A line that readers skip, such as one that keeps a connection busy: ": text\n\n". A line end in
/// `text` begins another.
std::string format_sse_comment(std::string_view text);

/// "retry: …\n\n".
std::string format_sse_retry(std::chrono::milliseconds time);

}  // namespace fo::http
