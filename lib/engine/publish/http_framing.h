// Where the requests and the responses on one HTTP/1.1 connection begin and end. It is shown the
// bytes as they pass and never alters them: what it does not understand, or what ends only with the
// connection, it calls opaque from then on, and so never between two requests. With a judge, it
// says which of the client's bytes may be passed on: no request that was not judged. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fo::engine {

enum class Side { kClient, kEngine };

class HttpFraming {
 public:
  /// The head of one message, the trailers of one, the size line of a chunk; longer is opaque.
  static constexpr std::size_t kMostHeadBytes = std::size_t{64} * 1024;
  /// Requests that wait for their responses; more is opaque.
  static constexpr std::size_t kMostPipelined = 1024;

  /// Of the target in a request line: 0 for one to be passed on, or the status to refuse it with.
  using Judge = std::function<int(std::string_view target)>;

  /// Judges nothing.
  HttpFraming() = default;
  /// `judge` outlives it; an empty one judges nothing. Else a client is never opaque of its own
  /// doing: a request that is not understood is refused with 400.
  explicit HttpFraming(const Judge& judge) : judge_(judge ? &judge : nullptr) {}

  /// What `side` says next. Returns how much of it was taken: all, or up to the end of a request or
  /// of its response; the rest is to be shown again. The client's bytes are shown before the
  /// engine's answer to them.
  std::size_t see(Side side, std::string_view bytes);

  /// How many bytes of `side` need not be shown: what is left of a body or of a chunk, everything
  /// when opaque.
  [[nodiscard]] std::uint64_t unseen(Side side) const;

  /// So many of them passed; at most unseen().
  void pass(Side side, std::uint64_t count);

  /// Every request that has begun is complete and has its complete response, and the connection
  /// can take another one.
  [[nodiscard]] bool is_between_requests() const;

  /// A message from `side` has begun and is not complete. Always when opaque.
  [[nodiscard]] bool is_in_message(Side side) const;

  /// A request is complete, and its response is not.
  [[nodiscard]] bool awaits_answer() const;

  /// Of the bytes that the client was last seen to say, and of those before them that were
  /// withheld: how many at the end are to be withheld. They are the beginning of a head that is not
  /// complete; or they are over.
  [[nodiscard]] std::size_t withheld() const { return withheld_; }

  /// Whatever the client says from now on is to be thrown away: its last request is complete, or
  /// one was refused.
  [[nodiscard]] bool is_over() const { return is_ended_ || refusal_; }

  /// The status with which a request is to be answered here, in place of the engine, and the last
  /// one on this connection; the requests before it come first (is_answered).
  [[nodiscard]] std::optional<int> refusal() const { return refusal_; }

  /// Every request that was passed on has its complete response.
  [[nodiscard]] bool is_answered() const {
    return requests_.empty() && !is_in_message(Side::kEngine);
  }

  [[nodiscard]] bool is_opaque() const { return opaque_[0] && opaque_[1]; }

 private:
  enum class Step { kStart, kFields, kBody, kChunkSize, kChunkData, kChunkEnd, kTrailers };
  enum class Request { kOther, kHead, kConnect };

  struct Direction {
    Step step = Step::kStart;
    /// What there is of a line whose end has not come.
    std::string line;
    std::size_t head_bytes = 0;
    /// Of the body or the chunk.
    std::uint64_t left = 0;
    // Of the head:
    Request request = Request::kOther;
    int status = 0;
    bool is_http10 = false;
    bool keeps_alive = false;
    bool closes = false;
    bool is_last = false;
    bool is_chunked = false;
    std::optional<std::uint64_t> length;
  };

  Direction& of(Side side) { return directions_[static_cast<std::size_t>(side)]; }
  [[nodiscard]] const Direction& of(Side side) const {
    return directions_[static_cast<std::size_t>(side)];
  }
  // These return true at the end of a request or of a final response.
  bool see_piece(Side side, std::string_view piece);
  bool take_line(Side side, std::string_view line);
  bool end_head(Side side);
  bool end_message(Side side);
  bool begin_body(Side side);

  bool read_request_line(Direction& head, std::string_view line);
  bool read_status_line(Direction& head, std::string_view line);
  bool give_up(Side side);
  bool give_up_both();
  bool refuse(int status);
  [[nodiscard]] bool judges(Side side) const { return judge_ && side == Side::kClient; }
  [[nodiscard]] bool is_in_head(Side side) const;
  /// The client is.
  [[nodiscard]] bool is_in_body() const;

  const Judge* judge_ = nullptr;
  std::array<Direction, 2> directions_;
  /// Not yet answered, in their order.
  std::deque<Request> requests_;
  std::array<bool, 2> opaque_{};
  std::size_t withheld_ = 0;
  bool is_ended_ = false;
  std::optional<int> refusal_;
};

}  // namespace fo::engine
