// Reads a stream of events in another format than that of chats and completions, such as
// /v1/responses or Anthropic's /v1/messages: its progress, its usage, and the id of the response.
// The client gets the stream's bytes unchanged, whether or not they can be read. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"
#include "http/sse.h"
#include "route/answer/stream_chunk.h"

namespace fo::route {

class OtherStream {
 public:
  /// Events beyond `max_event_bytes` are not read, nor is anything after them.
  explicit OtherStream(base::ByteCount max_event_bytes) : events_(max_event_bytes) {}

  struct Progress {
    /// Comments are not counted.
    std::uint64_t events = 0;
    /// The events that bring a piece of the answer: those with a type that ends with "delta", or
    /// without a type.
    std::uint64_t pieces = 0;
  };
  /// Reads the next bytes of the stream. If they cannot be read, they are one event and one piece.
  Progress on_bytes(std::string_view bytes);

  /// The last counts that the stream named, if any.
  [[nodiscard]] const std::optional<Usage>& usage() const { return usage_; }
  /// The id of the response; empty as long as none was named.
  [[nodiscard]] const std::string& response_id() const { return response_id_; }

 private:
  void on_event(const http::SseEvent& event);

  http::SseReader events_;
  bool is_readable_ = true;
  std::optional<Usage> usage_;
  std::string response_id_;
};

}  // namespace fo::route
