// The text of an answer that a stop string may end, as in vLLM's incremental detokenizer: text that
// may become a stop string is held back. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::refengine {

class StopText {
 public:
  struct Options {
    /// The one that is complete first ends the text; of several that are complete at the same
    /// character, the first in this list. None is empty.
    std::vector<std::string> stops = {};
    /// The text includes the stop string that ends it.
    bool include_stop = false;
    /// Stop strings in the text of the first `min_tokens` tokens do not count.
    std::size_t min_tokens = 0;
  };
  explicit StopText(Options options);

  /// Adds the text that the next token completes; empty if it completes none. Must not be called
  /// after a stop string was found.
  void add(std::string_view text);

  /// The text since the last call that is final; at the end all of it.
  std::string take(bool is_finished);

  /// The stop string that ended the text; nullopt if none has.
  [[nodiscard]] const std::optional<std::string>& stop() const { return stop_; }

 private:
  void find_stop(std::size_t added);

  Options options_;
  // Maximum number of characters that are held back for a stop string.
  std::size_t held_characters_ = 0;
  std::string text_;
  std::size_t taken_ = 0;
  std::size_t tokens_ = 0;
  std::optional<std::string> stop_;
};

}  // namespace fo::refengine
