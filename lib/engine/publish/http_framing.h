// The boundaries of requests and responses on one HTTP/1.1 connection. It sees the bytes that are
// forwarded and never changes them. After a message that it cannot parse, or that ends only with
// the connection, the stream is opaque, and so never between two requests. With a judge, it
// determines which of the client's bytes may be forwarded: only judged requests. Pure.
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
  /// Limit of a message's head, of its trailers, and of the size line of a chunk; longer ones are
  /// opaque.
  static constexpr std::size_t kMaxHeadBytes = std::size_t{64} * 1024;
  /// Maximum number of requests without a response; with more the stream is opaque.
  static constexpr std::size_t kMaxPipelined = 1024;

  /// Returns 0 if the request with this target may be forwarded, otherwise the status to refuse it
  /// with.
  using Judge = std::function<int(std::string_view target)>;

  /// Makes a framing without a judge.
  HttpFraming() = default;
  /// `judge` must outlive this object; an empty one judges nothing. With a judge, the client's
  /// bytes never become opaque because of the client: a request that cannot be parsed is refused
  /// with 400.
  explicit HttpFraming(const Judge& judge) : judge_(judge ? &judge : nullptr) {}

  /// Parses the next bytes of `side`. Returns how many it consumed: all, or those up to the end
  /// of a request or of its response; pass the rest in another call. The client's bytes must be
  /// passed before the engine's answer to them.
  std::size_t see(Side side, std::string_view bytes);

  /// The number of following bytes of `side` that need not be parsed: the rest of a body or of a
  /// chunk, everything if it is opaque.
  [[nodiscard]] std::uint64_t unseen(Side side) const;

  /// Skips `count` bytes, at most unseen().
  void pass(Side side, std::uint64_t count);

  /// True if every request is complete and has its complete response, and the connection can carry
  /// another request.
  [[nodiscard]] bool is_between_requests() const;

  /// True if a message from `side` has begun and is incomplete. Always true if it is opaque.
  [[nodiscard]] bool is_in_message(Side side) const;

  /// True if a request is complete, and its response is not.
  [[nodiscard]] bool awaits_answer() const;

  /// Returns the number of the client's last bytes that must be withheld, counted from the end of
  /// the last call and including bytes withheld before: the beginning of an incomplete head, or, if
  /// is_over(), bytes that must never be forwarded.
  [[nodiscard]] std::size_t withheld() const { return withheld_; }

  /// True if all further bytes of the client must be discarded: its last request is complete, or a
  /// request was refused.
  [[nodiscard]] bool is_over() const { return is_ended_ || refusal_; }

  /// The status for refusing a request in place of the engine. It is the last answer on this
  /// connection, and must follow the answers to earlier requests (is_answered).
  [[nodiscard]] std::optional<int> refusal() const { return refusal_; }

  /// True if every forwarded request has its complete response.
  [[nodiscard]] bool is_answered() const {
    return requests_.empty() && !is_in_message(Side::kEngine);
  }

  [[nodiscard]] bool is_opaque() const { return opaque_[0] && opaque_[1]; }

 private:
  enum class Step { kStart, kFields, kBody, kChunkSize, kChunkData, kChunkEnd, kTrailers };
  enum class Request { kOther, kHead, kConnect };

  struct Direction {
    Step step = Step::kStart;
    /// An incomplete line.
    std::string line;
    std::size_t head_bytes = 0;
    /// The rest of the body or the chunk.
    std::uint64_t left = 0;
    // Values from the head:
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
  // These return true at the end of a request or of a final response; stop(), stop_both() and
  // refuse() always return false. read_request_line() and read_status_line() return whether the
  // line is valid.
  bool see_piece(Side side, std::string_view piece);
  bool take_line(Side side, std::string_view line);
  bool end_head(Side side);
  bool end_message(Side side);
  bool begin_body(Side side);

  bool read_request_line(Direction& head, std::string_view line);
  bool read_status_line(Direction& head, std::string_view line);
  bool stop(Side side);
  bool stop_both();
  bool refuse(int status);
  [[nodiscard]] bool judges(Side side) const { return judge_ && side == Side::kClient; }
  [[nodiscard]] bool is_in_head(Side side) const;
  /// Whether the client is sending a body.
  [[nodiscard]] bool is_in_body() const;

  const Judge* judge_ = nullptr;
  std::array<Direction, 2> directions_;
  /// Requests without a response, in order.
  std::deque<Request> requests_;
  std::array<bool, 2> opaque_{};
  std::size_t withheld_ = 0;
  bool is_ended_ = false;
  std::optional<int> refusal_;
};

}  // namespace fo::engine
