// Finds a client's stop strings in streamed text, as the engine would (vLLM's detokenizer): the one
// that is complete first ends the answer; of several that are complete at the same character, the
// first in the list. So the result does not depend on how the text was cut into chunks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fo::route {

class StopMatcher {
 public:
  /// None of `stops` is empty. With `include`, the text ends after the stop string, else before it.
  StopMatcher(const std::vector<std::string>& stops, bool include);

  /// Adds text, and returns what can be delivered: all that precedes the end of the answer, except
  /// a tail that may turn out to begin a stop string (with `include`, nothing is held back). A
  /// stop string that ends in text that does not count, that of the first "min_tokens" tokens, does
  /// not end the answer. Once stopped(), text is dropped.
  std::string feed(std::string_view text, bool counts);
  /// Returns the text that is held back, for an answer that ends without a stop string.
  std::string flush();

  [[nodiscard]] bool stopped() const { return !matched_.empty(); }
  /// The stop string that ended the answer; empty if there is none yet.
  [[nodiscard]] const std::string& matched() const { return matched_; }
  /// The number of bytes that are held back.
  [[nodiscard]] std::size_t held() const { return held_.size(); }

 private:
  // The automaton of Knuth, Morris and Pratt: each byte is looked at once for each string.
  class Pattern {
   public:
    explicit Pattern(std::string text);
    /// Whether the string ends with this byte.
    bool advance(char byte);
    [[nodiscard]] const std::string& text() const { return text_; }
    /// The longest end of the bytes so far that begins the string, without being all of it.
    [[nodiscard]] std::size_t begun() const { return begun_; }

   private:
    std::string text_;
    /// For each length, that of the longest proper prefix of the string's beginning of this length
    /// that is also its end.
    std::vector<std::uint32_t> borders_;
    std::size_t begun_ = 0;
  };

  std::vector<Pattern> patterns_;
  bool include_;
  std::string held_;
  std::string matched_;
};

}  // namespace fo::route
