#include "http/sse.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "text/ascii.h"

namespace fo::http {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kDefaultType = "message";

// Maximum number of digits; a longer time cannot be meant.
constexpr std::size_t kMaxRetryDigits = 15;

// The offset of the end of the first line; npos if it is incomplete.
std::size_t find_line_end(std::string_view text) {
  // Most text has no CR: the search for each of them is short.
  constexpr std::size_t kWindow = 512;
  for (std::size_t begin = 0; begin < text.size(); begin += kWindow) {
    const std::string_view window = text.substr(begin, kWindow);
    const std::size_t line_feed = window.find('\n');
    const std::size_t end = std::min(window.substr(0, line_feed).find('\r'), line_feed);
    if (end != window.npos) return begin + end;
  }
  return text.npos;
}

// Appends each line of `text`, preceded by `begin`.
void append_lines(std::string& out, std::string_view begin, std::string_view text) {
  for (;;) {
    const std::size_t end = find_line_end(text);
    out += begin;
    out += text.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) return;
    const bool is_both = text.substr(end).starts_with("\r\n");
    text.remove_prefix(end + (is_both ? 2 : 1));
  }
}

void append_line(std::string& out, std::string_view name, std::string_view value) {
  const bool has_nul = name == "id" && value.find('\0') != std::string_view::npos;
  if (has_nul || find_line_end(value) != std::string_view::npos) {
    throw Error(ExitStatus::kSoftware, "write a server-sent event: " + std::string(name) +
                                           " contains a line end or a NUL");
  }
  out += name;
  out += ": ";
  out += value;
  out += '\n';
}

}  // namespace

std::optional<SseEvent> SseReader::next(std::string_view& bytes) {
  while (!bytes.empty()) {
    if (std::exchange(last_was_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = find_line_end(bytes);
    const std::string_view piece = bytes.substr(0, end);
    check_size(piece.size());
    if (end == std::string_view::npos) {
      line_ += piece;
      bytes = {};
      break;
    }
    last_was_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    bool is_end = false;
    if (line_.empty()) {
      is_end = take_line(piece);
    } else {
      line_ += piece;
      is_end = take_line(std::exchange(line_, {}));
    }
    if (!is_end) continue;
    SseEvent event;
    if (!type_.empty()) event.type = std::exchange(type_, {});
    event.data = std::exchange(data_, {});
    event.data.pop_back();
    event.id = id_;
    return event;
  }
  return std::nullopt;
}

bool SseReader::take_line(std::string_view line) {
  if (std::exchange(is_first_line_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  if (line.empty()) {
    if (!data_.empty()) return true;
    type_.clear();
    return false;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    take_field(line, "");
  } else {
    std::string_view value = line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    take_field(line.substr(0, colon), value);
  }
  return false;
}

// Comments are fields with an empty name.
void SseReader::take_field(std::string_view name, std::string_view value) {
  if (name == "data") {
    data_ += value;
    data_ += '\n';
  } else if (name == "event") {
    type_ = value;
  } else if (name == "id") {
    if (value.find('\0') == std::string_view::npos) id_ = value;
  } else if (name == "retry") {
    const bool is_number = !value.empty() && value.size() <= kMaxRetryDigits &&
                           std::all_of(value.begin(), value.end(), text::is_digit);
    if (is_number) retry_ = std::chrono::milliseconds(*base::parse_uint(value));
  }
}

void SseReader::check_size(std::size_t more) const {
  const base::ByteCount kept = line_.size() + data_.size() + type_.size();
  if (kept + more <= max_bytes_) return;
  throw Error(ExitStatus::kProtocol,
              "a server-sent event is longer than " + base::format_size(max_bytes_));
}

std::string format_sse(std::string_view data) {
  std::string text;
  text.reserve(data.size() + 16);
  append_lines(text, "data: ", data);
  text += '\n';
  return text;
}

std::string format_sse(const SseEvent& event) {
  std::string text;
  if (!event.type.empty() && event.type != kDefaultType) append_line(text, "event", event.type);
  if (!event.id.empty()) append_line(text, "id", event.id);
  return text + format_sse(event.data);
}

std::string format_sse_comment(std::string_view text) {
  std::string comment;
  append_lines(comment, ": ", text);
  return comment + '\n';
}

}  // namespace fo::http
