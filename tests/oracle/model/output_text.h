// The text of an answer as vLLM's incremental detokenizer gives it: a token whose characters are
// incomplete brings no text until a later one completes them, and what may become a stop string is
// held back. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "oracle/model/vocabulary.h"
#include "refengine/api/stop_text.h"

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
  explicit OutputText(const Options& options);

  /// Adds a token. Not when a stop string has been found.
  void add(TokenId token);

  /// The text since the last call that cannot change any more; at the end all of it. An incomplete
  /// character at the end is dropped.
  std::string take(bool is_finished) { return text_.take(is_finished); }

  /// The stop string that ended the text.
  [[nodiscard]] const std::optional<std::string>& stop() const { return text_.stop(); }

 private:
  SpecialTokens special_;
  /// Bytes of incomplete characters.
  std::string pending_;
  refengine::StopText text_;
};

}  // namespace fo::oracle
