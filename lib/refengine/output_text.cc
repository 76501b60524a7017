#include "refengine/output_text.h"

#include <algorithm>
#include <utility>

namespace fo::refengine {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The length of the longest end of `text` that is a prefix of `stop`.
std::size_t overlap(std::string_view text, std::string_view stop) {
  std::size_t size = std::min(text.size(), stop.size() - 1);
  while (!stop.starts_with(text.substr(text.size() - size))) --size;
  return size;
}

}  // namespace

std::string OutputText::feed(TokenId token) {
  const std::string text = decoder_.feed(token);
  characters_ += static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
  const std::size_t begun = characters_ + (decoder_.holds_back() ? 1 : 0);
  offset_ = token < kByteTokens ? begun - 1 : begun;
  add(text);
  return take_certain();
}

std::string OutputText::finish() {
  if (!stopped_) add(decoder_.finish());
  return std::exchange(held_, {});
}

// Byte by byte, so that the result does not depend on the chunks.
void OutputText::add(std::string_view text) {
  for (const char byte : text) {
    held_ += byte;
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
      if (held_.ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest == 0) continue;
    held_.resize(held_.size() - longest);
    stopped_ = true;
    return;
  }
}

// A stop string can only begin inside the held text: earlier text was certain before.
std::string OutputText::take_certain() {
  std::size_t uncertain = 0;
  if (!stopped_) {
    for (const std::string& stop : stops_) uncertain = std::max(uncertain, overlap(held_, stop));
  }
  std::string certain = held_.substr(0, held_.size() - uncertain);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace fo::refengine
