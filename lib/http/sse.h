// Server-sent events, as the WHATWG HTML standard defines "text/event-stream" (section "Server-sent
// events"): a reader that accepts bytes in any pieces, and a writer. Pure. Bytes are passed on
// unchanged; UTF-8 is not checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::http {

struct SseEvent {
  /// The type in the stream; "message" if there is none.
  std::string type = "message";
  /// The lines of data, joined by '\n'.
  std::string data;
  /// The last id in the stream, in this event or before it.
  std::string id;
  friend bool operator==(const SseEvent&, const SseEvent&) = default;
};

class SseReader {
 public:
  /// `max_bytes` limits the stored bytes of one event, and of an incomplete line.
  explicit SseReader(base::ByteCount max_bytes = base::kMiB) : max_bytes_(max_bytes) {}

  void set_limit(base::ByteCount max_bytes) { max_bytes_ = max_bytes; }

  /// Returns the next event and removes the parsed bytes from the front of `bytes`; nullopt if all
  /// were parsed and no event is complete. An event that the end of the stream truncates is
  /// dropped. Throws Error(kProtocol) for an event beyond the limit; then the reader must not be
  /// used any more.
  std::optional<SseEvent> next(std::string_view& bytes);

  /// The stream's reconnection time for clients; nullopt if it has sent none.
  [[nodiscard]] std::optional<std::chrono::milliseconds> retry() const { return retry_; }

  /// The stored bytes of an incomplete event.
  [[nodiscard]] std::size_t stored() const { return line_.size() + data_.size(); }
  /// True if part of an incomplete event has arrived.
  [[nodiscard]] bool is_in_event() const {
    return !line_.empty() || !data_.empty() || !type_.empty();
  }

 private:
  // Returns true at the end of an event.
  bool take_line(std::string_view line);
  void take_field(std::string_view name, std::string_view value);
  void check_size(std::size_t more) const;

  base::ByteCount max_bytes_;
  // An incomplete line.
  std::string line_;
  bool is_first_line_ = true;
  bool last_was_cr_ = false;
  // The lines of data, each followed by '\n'.
  std::string data_;
  std::string type_;
  std::string id_;
  std::optional<std::chrono::milliseconds> retry_;
};

/// An event without type and id: "data: …\n\n", with one such line for each line of `data`, which
/// may end with CR, LF or both.
std::string format_sse(std::string_view data);

/// Writes the type unless it is "message" or empty, and the id unless it is empty. Throws
/// Error(kSoftware) if the type or the id contains a line end, or the id a NUL, because the format
/// cannot express that.
std::string format_sse(const SseEvent& event);

/// A comment line, which readers skip; it can keep a connection busy: ": text\n\n". A line end in
/// `text` begins another comment line.
std::string format_sse_comment(std::string_view text);

}  // namespace fo::http
