#include "engine/publish/http_framing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/hex.h"
#include "base/text.h"
#include "base/units.h"
#include "http/message.h"
#include "text/ascii.h"

namespace fo::engine {
namespace {

using http::has_control;
using http::is_token;

constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

std::string_view trimmed(std::string_view text) { return text::trimmed(text, " \t"); }

bool has_word(std::string_view list, std::string_view lower_case) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (base::equal_ignoring_case(trimmed(list.substr(0, comma)), lower_case)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

std::optional<std::uint64_t> parse_chunk_size(std::string_view line) {
  constexpr std::size_t kMaxDigits = 15;
  std::uint64_t size = 0;
  std::size_t digits = 0;
  for (; digits < line.size(); ++digits) {
    const int value = base::hex_value(line[digits]);
    if (value < 0) break;
    size = size * 16 + static_cast<std::uint64_t>(value);
    if (digits == kMaxDigits) return std::nullopt;
  }
  const std::string_view rest = trimmed(line.substr(digits));
  if (digits == 0 || (!rest.empty() && rest.front() != ';')) return std::nullopt;
  return size;
}

// True for the version "HTTP/1.0", false for "HTTP/1.1", nullopt for others.
std::optional<bool> parse_version(std::string_view text) {
  if (text == "HTTP/1.1") return false;
  if (text == "HTTP/1.0") return true;
  return std::nullopt;
}

}  // namespace

std::size_t HttpFraming::see(Side side, std::string_view bytes) {
  Direction& now = of(side);
  std::size_t at = 0;
  if (side == Side::kClient && is_over()) {
    withheld_ = bytes.size();
    return bytes.size();
  }
  while (at < bytes.size()) {
    const std::uint64_t skip = std::min<std::uint64_t>(unseen(side), bytes.size() - at);
    if (skip > 0) {
      pass(side, skip);
      at += skip;
      if (now.step == Step::kStart) break;  // the body has ended
      continue;
    }
    const std::size_t newline = bytes.find('\n', at);
    const std::string_view piece =
        bytes.substr(at, newline == std::string_view::npos ? newline : newline + 1 - at);
    at += piece.size();
    now.head_bytes += piece.size();
    if (judges(side)) withheld_ += piece.size();
    const bool is_end = see_piece(side, piece);
    if (judges(side)) {
      if (refusal_) {
        withheld_ += bytes.size() - at;
        return bytes.size();
      }
      if (!is_in_head(side)) withheld_ = 0;
    }
    if (is_end) break;
  }
  return at;
}

bool HttpFraming::see_piece(Side side, std::string_view piece) {
  Direction& now = of(side);
  if (now.head_bytes > kMaxHeadBytes) return stop(side);
  const bool is_line = piece.ends_with('\n');
  if (!is_line || !now.line.empty()) now.line += piece;
  if (!is_line) return false;
  const std::string joined = std::exchange(now.line, {});
  const std::string_view line = joined.empty() ? piece : joined;
  if (!line.ends_with("\r\n")) return stop(side);
  return take_line(side, line.substr(0, line.size() - 2));
}

bool HttpFraming::is_in_head(Side side) const {
  const Direction& now = of(side);
  return now.step == Step::kFields || (now.step == Step::kStart && !now.line.empty());
}

std::uint64_t HttpFraming::unseen(Side side) const {
  return opaque_[static_cast<std::size_t>(side)] ? kEverything : of(side).left;
}

void HttpFraming::pass(Side side, std::uint64_t count) {
  if (opaque_[static_cast<std::size_t>(side)]) return;
  Direction& now = of(side);
  now.left -= count;
  if (now.left > 0) return;
  if (now.step == Step::kBody) end_message(side);
  if (now.step == Step::kChunkData) now.step = Step::kChunkEnd;
}

bool HttpFraming::is_between_requests() const {
  return requests_.empty() && !is_in_message(Side::kClient) && !is_in_message(Side::kEngine) &&
         !is_over();
}

bool HttpFraming::awaits_answer() const {
  if (is_in_message(Side::kEngine)) return true;
  return requests_.size() > (is_in_body() ? 1U : 0U);
}

bool HttpFraming::is_in_body() const {
  const Step step = of(Side::kClient).step;
  return step != Step::kStart && step != Step::kFields;
}

bool HttpFraming::is_in_message(Side side) const {
  return opaque_[static_cast<std::size_t>(side)] || of(side).step != Step::kStart ||
         !of(side).line.empty();
}

bool HttpFraming::take_line(Side side, std::string_view line) {
  Direction& now = of(side);
  if (judges(side) && has_control(line)) return stop(side);
  switch (now.step) {
    case Step::kStart: {
      const bool is_request = side == Side::kClient;
      if (is_request && line.empty()) {  // allowed between requests: RFC 9112, 2.2
        now.head_bytes = 0;
        return false;
      }
      now.step = Step::kFields;
      const bool is_known = is_request ? read_request_line(now, line) : read_status_line(now, line);
      return is_known ? false : stop(side);
    }
    case Step::kFields: {
      if (line.empty()) return end_head(side);
      const std::size_t colon = line.find(':');
      const std::string_view name = line.substr(0, colon);
      if (colon == std::string_view::npos || !is_token(name)) return stop(side);
      const std::string_view value = trimmed(line.substr(colon + 1));
      if (base::equal_ignoring_case(name, "content-length")) {
        if (now.length) return stop(side);
        now.length = base::parse_uint(value);
        if (!now.length || *now.length == kEverything) return stop(side);
      } else if (base::equal_ignoring_case(name, "transfer-encoding")) {
        if (now.is_chunked || !base::equal_ignoring_case(value, "chunked")) return stop(side);
        now.is_chunked = true;
      } else if (base::equal_ignoring_case(name, "connection")) {
        now.closes |= has_word(value, "close");
        now.keeps_alive |= has_word(value, "keep-alive");
      }
      return false;
    }
    case Step::kChunkSize: {
      const std::optional<std::uint64_t> size = parse_chunk_size(line);
      if (!size) return stop(side);
      now.head_bytes = 0;
      now.left = *size;
      now.step = *size == 0 ? Step::kTrailers : Step::kChunkData;
      return false;
    }
    case Step::kChunkEnd:
      if (!line.empty()) return stop(side);
      now.head_bytes = 0;
      now.step = Step::kChunkSize;
      return false;
    case Step::kTrailers:
      return line.empty() && end_message(side);
    case Step::kBody:
    case Step::kChunkData:
      break;  // these steps have no lines
  }
  return stop(side);
}

bool HttpFraming::read_request_line(Direction& head, std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == last || !is_token(line.substr(0, first))) return false;
  const std::optional<bool> is_http10 = parse_version(line.substr(last + 1));
  if (!is_http10) return false;
  head.is_http10 = *is_http10;
  const int status = judge_ ? (*judge_)(line.substr(first + 1, last - first - 1)) : 0;
  if (status != 0) {
    refuse(status);
    return true;
  }
  if (line.starts_with("HEAD ")) head.request = Request::kHead;
  if (line.starts_with("CONNECT ")) head.request = Request::kConnect;
  return true;
}

bool HttpFraming::read_status_line(Direction& head, std::string_view line) {
  // After a response without a request, such as "408 Request Timeout", the connection ends.
  if (requests_.empty()) return false;
  const std::optional<bool> is_http10 = parse_version(line.substr(0, 8));
  const std::optional<std::uint64_t> status =
      line.size() < 12 ? std::nullopt : base::parse_uint(line.substr(9, 3));
  const bool is_apart =
      line.size() >= 12 && line[8] == ' ' && (line.size() == 12 || line[12] == ' ');
  if (!is_http10 || !status || *status < 100 || !is_apart) return false;
  head.is_http10 = *is_http10;
  head.status = static_cast<int>(*status);
  return true;
}

bool HttpFraming::end_head(Side side) {
  Direction& head = of(side);
  head.is_last = head.closes || (head.is_http10 && !head.keeps_alive);
  if (head.is_last && !judges(side)) return stop(side);
  if (head.is_chunked && (head.length || head.is_http10)) return stop(side);
  if (side == Side::kClient) {
    if (requests_.size() == kMaxPipelined) return stop(side);
    requests_.push_back(head.request);
    return begin_body(side);
  }
  const Request request = requests_.front();
  const bool is_success = head.status >= 200 && head.status < 300;
  if (head.status == 101 || (request == Request::kConnect && is_success)) return stop_both();
  if (head.status < 200) {
    head = {};  // the final response follows
    return false;
  }
  if (request == Request::kHead || head.status == 204 || head.status == 304) {
    return end_message(side);
  }
  if (!head.is_chunked && !head.length) return stop(side);  // the body ends with the connection
  return begin_body(side);
}

bool HttpFraming::begin_body(Side side) {
  Direction& head = of(side);
  head.head_bytes = 0;
  head.step = head.is_chunked ? Step::kChunkSize : Step::kBody;
  head.left = head.length.value_or(0);
  return head.step == Step::kBody && head.left == 0 && end_message(side);
}

bool HttpFraming::end_message(Side side) {
  if (side == Side::kEngine) requests_.pop_front();
  if (judges(side)) is_ended_ = of(side).is_last;
  of(side) = {};
  return true;
}

bool HttpFraming::stop(Side side) {
  if (judge_ == nullptr) return stop_both();
  if (side == Side::kClient) return refuse(400);
  opaque_[static_cast<std::size_t>(side)] = true;
  of(side) = {};
  return false;
}

bool HttpFraming::stop_both() {
  opaque_ = {true, true};
  directions_ = {};
  requests_ = {};
  withheld_ = 0;
  return false;
}

bool HttpFraming::refuse(int status) {
  refusal_ = status;
  // The engine has received only part of this request.
  if (is_in_body() && !requests_.empty()) requests_.pop_back();
  of(Side::kClient) = {};
  return false;
}

}  // namespace fo::engine
