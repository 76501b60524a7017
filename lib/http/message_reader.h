// Parsers from bytes to HTTP/1.1 messages: the requests of a server, and the answers of a client.
// Pure. A reader stores bytes that have arrived and are not parsed yet; the caller limits their
// number, because it reads no more than prepare() has space for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/strong.h"
#include "http/message.h"

namespace fo::http {

/// Bytes that have arrived and are not consumed yet. The last few need no allocation.
class UnreadBytes {
 public:
  /// Space for more bytes: little, since most connections wait for a head or a token, and more
  /// after a read that has filled it.
  std::span<char> prepare();
  /// Appends the first `count` bytes of the prepared space.
  void commit(std::size_t count);
  void consume(std::size_t count);
  [[nodiscard]] std::string_view view() const {
    return {(bytes_.empty() ? rest_.data() : bytes_.data()) + begin_, size()};
  }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }

 private:
  static constexpr std::size_t kSmallPiece = std::size_t{4} * 1024;
  static constexpr std::size_t kLargePiece = std::size_t{16} * 1024;

  static std::vector<char>& spare();

  std::vector<char> bytes_;
  // The bytes while `bytes_` is empty. Between two chunks of a stream, the end of the first one is
  // not consumed.
  std::array<char, 16> rest_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // Size of the space for a read: of the next one, and of the last one.
  std::size_t piece_ = kSmallPiece;
  std::size_t space_ = 0;
};

class ResponseReader {
 public:
  struct Limits {
    /// Limit of a head, of the trailers, and of the first line of a chunk.
    std::uint32_t head_bytes = 64 * 1024;
    /// Maximum number of headers and trailers together.
    std::size_t fields = 256;
  };

  explicit ResponseReader(const Limits& limits);
  ~ResponseReader();
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  /// Begins the next answer. `to_head`: it answers a HEAD request and has no body.
  void begin(bool to_head);

  /// Space for the next bytes, which commit() appends. Read them when a call below needs more
  /// bytes.
  std::span<char> prepare() { return unread_.prepare(); }
  void commit(std::size_t count);
  /// Marks the end of the stream.
  void end() { has_ended_ = true; }

  /// Returns the head once; nullopt if more bytes are needed. Skips interim answers (1xx). Throws
  /// Error(kProtocol) for an invalid answer or one beyond a limit, Error(kUnavailable) if the
  /// stream ends too early; so does read_body().
  std::optional<ResponseHead> read_head();

  /// After the head: copies the next available bytes of the body to `space` (not empty) and returns
  /// their number; 0 at the end of the body, nullopt if more bytes are needed.
  std::optional<std::size_t> read_body(std::span<char> space);

  /// True if a byte of the answer, or of an interim answer, has arrived.
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  /// True if the whole answer was read.
  [[nodiscard]] bool is_complete() const;
  /// After the end of the answer: whether another request may follow on this connection. False if
  /// the server has sent more than this answer.
  [[nodiscard]] bool keeps_alive() const;

 private:
  class Parser;
  // True once `is_done` is; false if more bytes are needed.
  template <typename IsDone>
  bool parse_until(IsDone is_done);

  Limits limits_;
  UnreadBytes unread_;
  std::unique_ptr<Parser> parser_;
  bool to_head_ = false;
  bool has_begun_ = false;
  bool has_ended_ = false;
  std::size_t interim_answers_ = 0;
};

class RequestReader {
 public:
  struct Limits {
    /// Limit of the request line and the headers.
    std::uint32_t head_bytes = 16 * 1024;
    base::ByteCount body_bytes = 16 * base::kMiB;
    friend bool operator==(const Limits&, const Limits&) = default;
  };
  enum class Step { kNeedsMore, kDone, kRefused };

  explicit RequestReader(const Limits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Begins the next request.
  void begin();
  /// Sets the limits of the next request and later ones. Not during a request.
  void set_limits(const Limits& limits);

  /// The same as ResponseReader::prepare().
  std::span<char> prepare() { return unread_.prepare(); }
  void commit(std::size_t count) { unread_.commit(count); }
  /// The number of received bytes that belong to later requests.
  [[nodiscard]] std::size_t unread() const { return unread_.size(); }

  /// Parses the bytes that have arrived. kNeedsMore: call it again after commit(). kRefused: the
  /// request is invalid or exceeds a limit. The target is split into path and query.
  Step read_head();
  /// The same for the body, once the head is done.
  Step read_body();

  /// After the head: the request without its body.
  [[nodiscard]] const Request& head() const;
  [[nodiscard]] bool has_body() const;
  /// True if the client waits for "100 Continue" before it sends the body.
  [[nodiscard]] bool wants_continue() const;
  [[nodiscard]] bool is_http11() const;
  [[nodiscard]] bool is_head() const;
  /// True if the client may send further requests.
  [[nodiscard]] bool keeps_alive() const;
  /// The bytes of the body that were read.
  [[nodiscard]] std::size_t body_size() const;
  /// After the body: moves the request out. Call once. If the request was refused, moves out the
  /// parts that were read; it has headers if its head was valid.
  Request take();

  /// The status and the message to answer a refused request with.
  [[nodiscard]] int refusal_status() const { return refusal_status_; }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  class Parser;
  template <typename IsDone>
  Step parse_until(IsDone is_done);
  Step refuse(int status, std::string reason);

  Limits limits_;
  UnreadBytes unread_;
  std::unique_ptr<Parser> parser_;
  bool may_skip_line_ = true;
  int refusal_status_ = 0;
  std::string refusal_;
};

}  // namespace fo::http
