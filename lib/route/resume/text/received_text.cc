#include "route/resume/text/received_text.h"

#include <functional>

#include "route/resume/make_room.h"

namespace fo::route {
namespace {

// The hash of `block` and the text before it, whose hash is `before`. It need not resist attacks:
// a worker that has another text for its tokens does not search for an equal hash.
std::uint64_t hash_with(std::uint64_t before, std::string_view block) {
  return (before ^ std::hash<std::string_view>{}(block)) * 0x9e3779b97f4a7c15U;
}

}  // namespace

void ReceivedText::append(std::string_view text) {
  make_room(rest_, text.size());
  rest_ += text;
}

void ReceivedText::condense() {
  if (rest_.size() < 2 * kBlockBytes) return;
  std::size_t count = 0;
  for (; rest_.size() - count >= 2 * kBlockBytes; count += kBlockBytes) {
    hash_ = hash_with(hash_, std::string_view(rest_).substr(count, kBlockBytes));
  }
  condensed_ += count;
  // The memory of a long event is released, too.
  rest_ = rest_.substr(count);
}

bool ReceivedText::starts_with(std::string_view beginning) const {
  if (beginning.size() < condensed_) return false;
  std::uint64_t hash = 0;
  for (std::size_t at = 0; at < condensed_; at += kBlockBytes) {
    hash = hash_with(hash, beginning.substr(at, kBlockBytes));
  }
  return hash == hash_ && rest_.starts_with(beginning.substr(condensed_));
}

bool ReceivedText::has_before_end(std::size_t back, std::string_view piece) const {
  if (back > rest_.size()) return false;
  return std::string_view(rest_).substr(rest_.size() - back).starts_with(piece);
}

}  // namespace fo::route
