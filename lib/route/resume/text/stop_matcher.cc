#include "route/resume/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace fo::route {

StopMatcher::Pattern::Pattern(std::string text) : text_(std::move(text)), borders_(2, 0) {
  std::size_t border = 0;
  for (std::size_t at = 1; at < text_.size(); ++at) {
    while (border > 0 && text_[border] != text_[at]) border = borders_[border];
    if (text_[border] == text_[at]) ++border;
    borders_.push_back(static_cast<std::uint32_t>(border));
  }
}

bool StopMatcher::Pattern::advance(char byte) {
  while (begun_ > 0 && text_[begun_] != byte) begun_ = borders_[begun_];
  if (text_[begun_] == byte) ++begun_;
  const bool is_complete = begun_ == text_.size();
  if (is_complete) begun_ = borders_[begun_];
  return is_complete;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stops, bool include) : include_(include) {
  for (const std::string& stop : stops) patterns_.emplace_back(stop);
}

std::string StopMatcher::feed(std::string_view text, bool counts) {
  if (stopped()) return {};
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (Pattern& pattern : patterns_) {
      if (!pattern.advance(text[at]) || !counts || stopped()) continue;
      matched_ = pattern.text();
    }
    if (!stopped()) continue;
    std::string rest = flush();
    rest += text.substr(0, at + 1);
    if (!include_) rest.resize(rest.size() - matched_.size());
    return rest;
  }
  held_ += text;
  std::size_t held = 0;
  for (const Pattern& pattern : patterns_) held = std::max(held, pattern.begun());
  std::string released = std::exchange(held_, {});
  if (!include_) {
    held_ = released.substr(released.size() - held);
    released.resize(released.size() - held);
  }
  return released;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace fo::route
