// The text of an answer as vLLM's incremental detokenizer gives it: a token that ends with an
// incomplete character gives its text when a later token completes it, and text that may become a
// stop string is held back. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "refengine/api/stop_text.h"
#include "refengine/model/tokens.h"

namespace fo::refengine {

class OutputText {
 public:
  using Options = StopText::Options;
  /// The answer follows `prompt`, and completes a character that is incomplete at the prompt's end.
  explicit OutputText(Options options, std::span<const TokenId> prompt = {});

  /// Adds a token. Must not be called after a stop string was found.
  void add(TokenId token);
  /// Adds a token that ends the answer and is not part of its text.
  void add_hidden();

  /// The text since the last call that is final; at the end all of it. Invalid bytes and an
  /// incomplete character at the end are dropped.
  std::string take(bool is_finished) { return text_.take(is_finished); }

  /// The stop string that ended the text; nullopt if none has.
  [[nodiscard]] const std::optional<std::string>& stop() const { return text_.stop(); }
  /// The offset, in characters, of the last token's character.
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  std::string decode(TokenId token);

  StopText text_;
  TextDecoder decoder_;
  // Text that ends with an invalid byte. It is complete when a valid character follows.
  std::string pending_;
  // Length of the whole text before a stop string cuts it, with pending_.
  std::size_t characters_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace fo::refengine
