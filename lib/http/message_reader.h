// Bytes in, HTTP/1.1 messages out, one after the other: the requests that a server gets, and the
// answers that a client gets. Pure. A reader keeps what has come and was not asked for, up to a
// limit: its caller reads no more than there is room for.
#pragma once

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

/// Bytes that have come and were not consumed.
class UnreadBytes {
 public:
  /// Room for `size` more.
  std::span<char> prepare(std::size_t size);
  /// So many of them have come.
  void commit(std::size_t count) { end_ += count; }
  void consume(std::size_t count);
  [[nodiscard]] std::string_view view() const { return {bytes_.data() + begin_, end_ - begin_}; }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }

 private:
  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

class ResponseReader {
 public:
  struct Limits {
    /// Of a head, of the trailers, and of the line that begins a chunk.
    std::uint32_t head_bytes = 64 * 1024;
    /// Headers and trailers.
    std::size_t fields = 256;
  };

  explicit ResponseReader(const Limits& limits);
  ~ResponseReader();
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  /// The next answer is read from now on; `to_head`: it is one to HEAD, which has no body.
  void begin(bool to_head);

  /// Room for bytes that come, to be committed. They may be read where a call below wants more.
  std::span<char> prepare();
  void commit(std::size_t count);
  /// None will come any more.
  void end() { has_ended_ = true; }

  /// Once; nullopt: more bytes are wanted. Interim answers (1xx) are passed over. Throws
  /// Error(kProtocol) for what is no answer or beyond a limit, and Error(kUnavailable) where it
  /// ends too early; so do the others.
  std::optional<ResponseHead> read_head();

  /// After the head: the next bytes of the body, as many as there are; 0 at its end, nullopt: more
  /// bytes are wanted. `space` is not empty.
  std::optional<std::size_t> read_body(std::span<char> space);

  /// The length of the body, where the head says it.
  [[nodiscard]] std::optional<std::uint64_t> length() const;
  /// A byte of the answer has come, or of an interim one.
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  /// The answer has come to its end.
  [[nodiscard]] bool is_complete() const;
  /// After its end: those of a body in chunks.
  [[nodiscard]] const Fields& trailers() const;
  /// After its end: whether another request may follow on this connection. Not where the server has
  /// sent more than was asked for.
  [[nodiscard]] bool keeps_alive() const;

 private:
  class Parser;
  // True once `is_done`; false: more bytes are wanted.
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
    /// Request line and headers.
    std::uint32_t head_bytes = 16 * 1024;
    base::ByteCount body_bytes = 16 * base::kMiB;
  };
  enum class Step { kWantsMore, kDone, kRefused };

  explicit RequestReader(const Limits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// The next request is read from now on.
  void begin();

  /// As those of ResponseReader.
  std::span<char> prepare();
  void commit(std::size_t count) { unread_.commit(count); }
  /// What has come of the requests that follow.
  [[nodiscard]] std::size_t unread() const { return unread_.size(); }

  Step read_head();
  /// After the head.
  Step read_body();

  /// After the head: the client waits for "100 Continue" before it sends the body.
  [[nodiscard]] bool wants_continue() const;
  [[nodiscard]] bool is_http11() const;
  [[nodiscard]] bool is_head() const;
  /// The client wants to send further requests.
  [[nodiscard]] bool keeps_alive() const;
  /// After the body: the request, once.
  Request take();

  /// Where it is refused: the status to answer with, and why.
  [[nodiscard]] int refusal_status() const { return refusal_status_; }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  class Parser;
  template <typename IsDone>
  Step parse_until(IsDone is_done);

  Limits limits_;
  UnreadBytes unread_;
  std::unique_ptr<Parser> parser_;
  int refusal_status_ = 0;
  std::string refusal_;
};

}  // namespace fo::http
