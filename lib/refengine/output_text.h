// The text of one answer as its client gets to see it: valid UTF-8, ended before the first stop
// string, and so far as it is certain: what may become a character or a stop string is held back.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/tokens.h"

namespace fo::refengine {

class OutputText {
 public:
  /// None of `stops` is empty.
  explicit OutputText(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  /// The text that is certain with this token; often empty. Not when stopped().
  std::string feed(TokenId token);
  /// The rest, at the end.
  std::string finish();

  /// Whether a stop string ended it: the one that was complete first, of several the longest.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// Where the last token's character is, or would be if it had one: so many characters after the
  /// beginning.
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  void add(std::string_view text);
  std::string take_certain();

  std::vector<std::string> stops_;
  TextDecoder decoder_;
  std::string held_;
  std::size_t characters_ = 0;
  std::size_t offset_ = 0;
  bool stopped_ = false;
};

}  // namespace fo::refengine
