#include "refengine/api/stop_text.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace fo::refengine {
namespace {

// The offset at which the last `count` characters of `text` begin.
std::size_t last_characters(std::string_view text, std::size_t count) {
  std::size_t at = text.size();
  while (at > 0 && count > 0) {
    if (base::begins_character(text[--at])) --count;
  }
  return at;
}

}  // namespace

StopText::StopText(Options options) : options_(std::move(options)) {
  if (options_.include_stop) return;
  for (const std::string& stop : options_.stops) {
    held_characters_ = std::max(held_characters_, base::count_characters(stop) - 1);
  }
}

void StopText::add(std::string_view text) {
  ++tokens_;
  text_ += text;
  if (tokens_ > options_.min_tokens) find_stop(text.size());
}

void StopText::find_stop(std::size_t added) {
  if (added == 0) return;
  std::size_t end = std::string::npos;
  for (const std::string& stop : options_.stops) {
    const std::size_t window = std::min(text_.size(), added + stop.size() - 1);
    const std::size_t at = text_.find(stop, text_.size() - window);
    if (at == std::string::npos || at + stop.size() >= end) continue;
    end = at + stop.size();
    stop_ = stop;
  }
  if (stop_) text_.resize(options_.include_stop ? end : end - stop_->size());
}

std::string StopText::take(bool is_finished) {
  const std::size_t end = is_finished ? text_.size() : last_characters(text_, held_characters_);
  if (end <= taken_) return {};
  const std::size_t begin = std::exchange(taken_, end);
  return text_.substr(begin, end - begin);
}

}  // namespace fo::refengine
