// The text of an answer as vLLM's incremental detokenizer gives it: a token whose characters are
// incomplete brings no text until a later one completes them, and what may become a stop string is
// held back. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "oracle/vocabulary.h"

namespace fo::oracle {

class OutputText {
 public:
  struct Options {
    /// The first in this list that the text has ends it. None is empty.
    std::vector<std::string> stops = {};
    /// The text includes the stop string that ends it.
    bool include_stop = false;
    /// Stop strings in the text of the first `min_tokens` tokens do not count.
    std::size_t min_tokens = 0;
    SpecialTokens special = SpecialTokens::kSkipped;
  };
  explicit OutputText(Options options);

  /// Adds a token. Not when a stop string has been found.
  void add(TokenId token);
  /// Adds a token that ends the answer and is not part of its text.
  void add_hidden() { ++tokens_; }

  /// The text since the last call that cannot change any more; at the end all of it. An incomplete
  /// character at the end is dropped.
  std::string take(bool is_finished);

  /// The stop string that ended the text.
  [[nodiscard]] const std::optional<std::string>& stop() const { return stop_; }

 private:
  void find_stop(std::size_t added);

  Options options_;
  /// Characters that are held back.
  std::size_t held_characters_ = 0;
  /// Bytes of incomplete characters.
  std::string pending_;
  std::string text_;
  std::size_t taken_ = 0;
  std::size_t tokens_ = 0;
  std::optional<std::string> stop_;
};

}  // namespace fo::oracle
