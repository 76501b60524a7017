// The text of an answer for its client: valid UTF-8, cut at the first stop string. Bytes that may
// become a character or a stop string are held back.
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

  /// The text that became certain with this token; often empty. Not when stopped().
  std::string feed(TokenId token);
  /// The rest, at the end.
  std::string finish();

  /// Whether a stop string ended it: the first complete one; the longest of several.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The offset, in characters, of the last token's character.
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
