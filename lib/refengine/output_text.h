// The text of an answer as vLLM's incremental detokenizer gives it: a token whose characters are
// incomplete brings no text until a later one completes them, and what may become a stop string is
// held back. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "refengine/tokens.h"

namespace fo::refengine {

class OutputText {
 public:
  struct Options {
    /// The first in this list that the text has ends it. None is empty.
    std::vector<std::string> stops = {};
    /// The text includes the stop string that ends it.
    bool include_stop = false;
    /// Stop strings in the text of the first `min_tokens` tokens do not count.
    std::size_t min_tokens = 0;
  };
  /// The answer follows `prompt`, and completes a character that is incomplete at the prompt's end.
  explicit OutputText(Options options, std::span<const TokenId> prompt = {});

  /// Adds a token. Not when a stop string has been found.
  void add(TokenId token);
  /// Adds a token that ends the answer and is not part of its text.
  void add_hidden();

  /// The text since the last call that cannot change any more; at the end all of it. Invalid bytes
  /// and an incomplete character at the end are dropped.
  std::string take(bool is_finished);

  /// The stop string that ended the text.
  [[nodiscard]] const std::optional<std::string>& stop() const { return stop_; }
  /// The offset, in characters, of the last token's character.
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  std::string decode(TokenId token);
  void find_stop(std::size_t added);

  Options options_;
  // Maximum number of characters that are held back for a stop string.
  std::size_t held_characters_ = 0;
  TextDecoder decoder_;
  // Characters after which an invalid byte was the last one.
  std::string pending_;
  std::string text_;
  std::size_t taken_ = 0;
  std::size_t tokens_ = 0;
  std::optional<std::string> stop_;
  // Of text_ before it is cut, and pending_.
  std::size_t characters_ = 0;
  std::size_t offset_ = 0;
};

/// The number of characters in valid UTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace fo::refengine
