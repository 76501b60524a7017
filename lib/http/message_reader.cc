#include "http/message_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using base::Error;
using base::ExitStatus;
using beast::error_code;
using HttpError = beast::http::error;

constexpr std::size_t kMaxInterimAnswers = 16;

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

// The common part of requests and answers: the head, and the rule that their framing is
// unambiguous.
template <bool kIsRequest>
class MessageParser : public beast::http::basic_parser<kIsRequest> {
 public:
  explicit MessageParser(std::size_t max_fields) : max_fields_(max_fields) {}

  [[nodiscard]] Fields& headers() { return headers_; }
  // HTTP/1.0 has no chunks, so a peer that sends them does not agree with us where its message
  // ends.
  [[nodiscard]] bool keeps_alive() const {
    return this->keep_alive() && !(version_ < 11 && this->chunked());
  }
  [[nodiscard]] bool is_http11() const { return version_ >= 11; }

  // True if `bytes` cannot be parsed yet. The last chunk has at least five bytes, "0\r\n\r\n", and
  // Beast asserts that it gets all five once it has seen the first three.
  [[nodiscard]] bool needs_more_than(std::string_view bytes) const {
    if (bytes.empty()) return true;
    const bool is_at_chunk = has_head_ && this->chunked() && chunk_left_ == 0;
    return is_at_chunk && bytes.size() < 5 && bytes.front() == '0';
  }

 protected:
  void set_version(int version) { version_ = version; }
  // Consumes bytes of `body`; returns their number.
  virtual std::size_t take(beast::string_view body) = 0;

 private:
  void on_field_impl(beast::http::field name, beast::string_view name_text,
                     beast::string_view value, error_code& error) override {
    if (fields_++ == max_fields_) {
      error = HttpError::header_limit;
      return;
    }
    if (name == beast::http::field::transfer_encoding) {
      const bool is_plain = base::equal_ignoring_case(text_of(value), "chunked");
      // Requests are parsed more strictly: if two parsers disagree, one of them may read a body as
      // a request.
      if (!is_plain || (kIsRequest && version_ < 11)) {
        error = HttpError::bad_transfer_encoding;
        return;
      }
    }
    // Trailers are checked, and not kept.
    if (!has_head_) headers_.emplace_back(text_of(name_text), text_of(value));
  }
  void on_header_impl(error_code&) override { has_head_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view body, error_code&) override { return take(body); }
  void on_chunk_header_impl(std::uint64_t size, beast::string_view, error_code&) override {
    chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body, error_code&) override {
    const std::size_t count = take(body);
    chunk_left_ -= count;
    return count;
  }
  void on_finish_impl(error_code&) override {}

  std::size_t max_fields_;
  std::size_t fields_ = 0;
  Fields headers_;
  int version_ = 11;
  bool has_head_ = false;
  std::uint64_t chunk_left_ = 0;
};

asio::const_buffer buffer_of(std::string_view text) { return {text.data(), text.size()}; }

// A field's value that continues on the next line. Beast joins the lines, but not every parser
// does.
bool has_folded_line(std::string_view head) {
  return head.find("\n ") != head.npos || head.find("\n\t") != head.npos;
}

}  // namespace

// Most reads are parsed before the next one begins, so that all readers of a thread use the same
// memory in turn.
std::vector<char>& UnreadBytes::spare() {
  static thread_local std::vector<char> bytes;
  return bytes;
}

std::span<char> UnreadBytes::prepare() {
  if (bytes_.empty()) {
    bytes_.swap(spare());
    if (bytes_.size() < rest_.size()) bytes_.resize(kSmallPiece);
    std::copy(rest_.begin(), rest_.end(), bytes_.begin());
  }
  const auto has_space = [this] { return bytes_.size() - end_ >= piece_ / 2; };
  if (!has_space()) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
    end_ -= std::exchange(begin_, 0);
  }
  if (!has_space()) bytes_.resize(end_ + piece_);
  space_ = std::min(piece_, bytes_.size() - end_);
  return std::span(bytes_).subspan(end_, space_);
}

void UnreadBytes::commit(std::size_t count) {
  end_ += count;
  piece_ = count < space_ ? kSmallPiece : kLargePiece;
}

void UnreadBytes::consume(std::size_t count) {
  begin_ += count;
  if (bytes_.empty() || size() > rest_.size()) return;
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), size(), rest_.begin());
  end_ = size();
  begin_ = 0;
  if (bytes_.size() <= 2 * kLargePiece) spare() = std::move(bytes_);
  bytes_ = {};
}

class ResponseReader::Parser final : public MessageParser<false> {
 public:
  explicit Parser(const Limits& limits, bool to_head) : MessageParser(limits.fields) {
    header_limit(limits.head_bytes);
    body_limit(boost::none);
    skip(to_head);
  }

  [[nodiscard]] int status() const { return status_; }
  // Sets the destination of the following body bytes.
  void set_space(std::span<char> space) {
    space_ = space;
    filled_ = 0;
  }
  [[nodiscard]] std::size_t filled() const { return filled_; }
  [[nodiscard]] bool is_full() const { return filled_ == space_.size(); }

  // An error after valid bytes of the body, to be reported once those have been returned.
  std::optional<Error> failure;

 private:
  void on_request_impl(beast::http::verb, beast::string_view, beast::string_view, int,
                       error_code&) override {}
  void on_response_impl(int status, beast::string_view, int version, error_code& error) override {
    set_version(version);
    status_ = status;
    if (status < 100) error = HttpError::bad_status;
  }
  std::size_t take(beast::string_view body) override {
    const std::size_t count = std::min(body.size(), space_.size() - filled_);
    std::copy_n(body.data(), count, space_.data() + filled_);
    filled_ += count;
    return count;
  }

  int status_ = 0;
  std::span<char> space_;
  std::size_t filled_ = 0;
};

ResponseReader::ResponseReader(const Limits& limits) : limits_(limits) { begin(false); }
ResponseReader::~ResponseReader() = default;

void ResponseReader::begin(bool to_head) {
  parser_ = std::make_unique<Parser>(limits_, to_head);
  to_head_ = to_head;
  has_begun_ = unread_.size() > 0;
  interim_answers_ = 0;
}

void ResponseReader::commit(std::size_t count) {
  has_begun_ |= count > 0;
  unread_.commit(count);
}

template <typename IsDone>
bool ResponseReader::parse_until(IsDone is_done) {
  while (!is_done()) {
    error_code error = HttpError::need_more;
    const std::string_view bytes = unread_.view();
    if (!parser_->needs_more_than(bytes)) unread_.consume(parser_->put(buffer_of(bytes), error));
    if (!error) continue;
    if (error == HttpError::need_more && has_ended_) {
      error = HttpError::partial_message;
      if (parser_->got_some()) parser_->put_eof(error);
      if (!error) continue;
      throw Error(ExitStatus::kUnavailable, "the connection ended early");
    }
    if (error != HttpError::need_more) throw Error(ExitStatus::kProtocol, error.message());
    // More bytes are needed, but the head has a limit.
    if (unread_.size() <= limits_.head_bytes) return false;
    error = HttpError::header_limit;
    throw Error(ExitStatus::kProtocol, error.message());
  }
  return true;
}

std::optional<ResponseHead> ResponseReader::read_head() {
  for (;;) {
    const bool is_read = parse_until([this] { return parser_->is_header_done(); });
    if (!is_read) return std::nullopt;
    const int status = parser_->status();
    if (status >= 200) return ResponseHead{status, std::move(parser_->headers())};
    if (status == 101 || ++interim_answers_ > kMaxInterimAnswers) {
      throw Error(ExitStatus::kProtocol, "status " + std::to_string(status) + " is unexpected");
    }
    parser_ = std::make_unique<Parser>(limits_, to_head_);
  }
}

std::optional<std::size_t> ResponseReader::read_body(std::span<char> space) {
  if (parser_->failure) throw Error(*parser_->failure);
  parser_->set_space(space);
  bool is_over = false;
  try {
    is_over = parse_until([this] { return parser_->is_full() || parser_->is_done(); });
  } catch (const Error& error) {
    if (parser_->filled() == 0) throw;
    parser_->failure = error;
  }
  if (parser_->filled() == 0 && !is_over) return std::nullopt;
  return parser_->filled();
}

bool ResponseReader::is_complete() const { return parser_->is_done(); }

bool ResponseReader::keeps_alive() const {
  return is_complete() && parser_->keeps_alive() && unread_.size() == 0 && !has_ended_;
}

class RequestReader::Parser final : public MessageParser<true> {
 public:
  explicit Parser(const Limits& limits) : MessageParser(limits.head_bytes) {
    header_limit(limits.head_bytes);
    body_limit(limits.body_bytes);
  }

  Request request;

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, error_code&) override {
    set_version(version);
    request.method = text_of(method);
    request.target = text_of(target);
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}
  std::size_t take(beast::string_view body) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
};

RequestReader::RequestReader(const Limits& limits) : limits_(limits) { begin(); }
RequestReader::~RequestReader() = default;

void RequestReader::begin() {
  parser_ = std::make_unique<Parser>(limits_);
  may_skip_line_ = true;
}

void RequestReader::set_limits(const Limits& limits) {
  if (limits == limits_) return;
  limits_ = limits;
  begin();
}

template <typename IsDone>
RequestReader::Step RequestReader::parse_until(IsDone is_done) {
  while (!is_done()) {
    error_code error = HttpError::need_more;
    const std::string_view bytes = unread_.view();
    if (!parser_->needs_more_than(bytes)) {
      const bool is_in_head = !parser_->is_header_done();
      const std::size_t count = parser_->put(buffer_of(bytes), error);
      if (is_in_head && has_folded_line(bytes.substr(0, count))) error = HttpError::bad_field;
      unread_.consume(count);
    }
    if (!error) continue;
    if (error == HttpError::need_more) {
      if (unread_.size() <= limits_.head_bytes) return Step::kNeedsMore;
      error = HttpError::header_limit;
    }
    int status = 400;
    if (error == HttpError::header_limit) status = 431;
    if (error == HttpError::body_limit) status = 413;
    return refuse(status, error.message());
  }
  return Step::kDone;
}

RequestReader::Step RequestReader::refuse(int status, std::string reason) {
  refusal_status_ = status;
  refusal_ = std::move(reason);
  return Step::kRefused;
}

RequestReader::Step RequestReader::read_head() {
  // Some clients send an empty line after a body (RFC 9112, section 2.2).
  const std::string_view bytes = unread_.view();
  if (may_skip_line_ && bytes == "\r") return Step::kNeedsMore;
  if (may_skip_line_ && bytes.starts_with("\r\n")) unread_.consume(2);
  if (!bytes.empty()) may_skip_line_ = false;
  const Step step = parse_until([this] { return parser_->is_header_done(); });
  // A body's length is checked after all fields are read.
  const bool is_read = step == Step::kDone || refusal_status_ == 413;
  Request& request = parser_->request;
  if (is_read) request.headers = std::move(parser_->headers());
  if (step != Step::kDone) return step;
  // Proxies that disagree about the host could be made to send requests to the wrong server (RFC
  // 9112, section 3.2).
  const auto hosts = std::count_if(
      request.headers.begin(), request.headers.end(),
      [](const auto& field) { return base::equal_ignoring_case(field.first, "Host"); });
  if (hosts > 1) return refuse(400, "several Host fields");
  if (hosts == 0 && is_http11()) return refuse(400, "missing Host field");
  if (!split_target(request.target, request.path, request.query)) {
    return refuse(400, "bad request target");
  }
  return step;
}

RequestReader::Step RequestReader::read_body() {
  return parse_until([this] { return parser_->is_done(); });
}

const Request& RequestReader::head() const { return parser_->request; }
bool RequestReader::has_body() const { return !parser_->is_done(); }

bool RequestReader::wants_continue() const {
  if (!has_body() || !is_http11()) return false;
  const auto expect = parser_->request.header("Expect");
  return expect && base::equal_ignoring_case(*expect, "100-continue");
}

bool RequestReader::is_http11() const { return parser_->is_http11(); }
bool RequestReader::is_head() const { return parser_->request.method == "HEAD"; }
bool RequestReader::keeps_alive() const { return parser_->keeps_alive(); }
std::size_t RequestReader::body_size() const { return parser_->request.body.size(); }
Request RequestReader::take() { return std::move(parser_->request); }

}  // namespace fo::http
