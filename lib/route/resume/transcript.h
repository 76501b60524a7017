// The tokens and the text of one answer so far, from all workers that produced it. Pure.
//
//     P = prompt()     G = the tokens of the answer     k = safe_point()
//
// A continuation asks for what follows P + G[0..k): k is the end of the last event that brought
// text, because after it an engine may hold a part of a character, or text that has not become
// certain. Text is WTF-8 (json/scanner.h); it counts once it does not end with half a character.
//
// Before that, the worker that will continue is asked for the text of G[0..k). It is compared with
// the text that was received (the seam): an engine with another tokenizer, or a token that brought
// only a part of its text, would lose or repeat characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "route/answer/stream_chunk.h"
#include "route/resume/text/received_text.h"

namespace fo::route {

class Transcript {
 public:
  /// The largest number of silent() ids, whose texts a seam asks for one by one.
  static constexpr std::size_t kMaxSilent = 32;

  void set_prompt(std::vector<TokenId> ids) { prompt_ = std::move(ids); }
  /// Empty if the engine has not named its tokens.
  [[nodiscard]] const std::vector<TokenId>& prompt() const { return prompt_; }

  /// Adds an event of the answer. Returns the text that has become certain, which may include that
  /// of earlier events; empty if none has. Returns nullopt if the event should repeat text that was
  /// received before a rewind(), and does not: then the tokens after the safe point are forgotten.
  std::optional<std::string> add(const std::vector<TokenId>& ids, std::string_view text);
  /// The tokens so far lie before the text that is compared at a seam: those of the thinking, whose
  /// text is not a part of the answer's.
  void begin_seam();

  /// The ids of events without text after the seam's beginning, the first kMaxSilent of them: an
  /// engine leaves them out of the text, or they are a part of a character.
  [[nodiscard]] const std::set<TokenId>& silent() const { return silent_; }
  /// The number of tokens, also after the safe point.
  [[nodiscard]] std::size_t tokens() const { return tokens_.size(); }
  /// Whether the answer contains these ids, one after the other.
  [[nodiscard]] bool contains(const std::vector<std::uint64_t>& ids) const;
  [[nodiscard]] std::size_t safe_point() const { return safe_; }
  /// The certain text from the seam's beginning on.
  [[nodiscard]] const ReceivedText& text() const { return text_; }
  /// True if the last text ended with half a character.
  [[nodiscard]] bool has_half() const { return !uncertain_.empty(); }
  /// G, also after the safe point.
  [[nodiscard]] const std::vector<TokenId>& answer() const { return tokens_; }
  /// P + G.
  [[nodiscard]] std::vector<TokenId> all() const;

  /// The ids whose text is compared at a seam after G[0..end): some tokens of context, on which the
  /// text of the first compared token may depend, and those up to `end`. Ids of `special` are left
  /// out, because their text is not a part of the answer's. With `end` = seam_begin() it is the
  /// context alone.
  [[nodiscard]] std::vector<TokenId> seam_ids(std::size_t end,
                                              const std::set<TokenId>& special) const;
  [[nodiscard]] std::size_t seam_begin() const { return seam_begin_; }
  /// Whether the seam begins within a character, so that the answer can't continue: an event with
  /// text may have the first token of the next character. `context` is the text of the context.
  [[nodiscard]] bool begins_in_character(std::string_view context) const;
  /// Returns the number of bytes of the text that were received after the end of `compared`:
  /// `compared` is the text of seam_ids(end) and `context` that of the context alone. nullopt if it
  /// is not the beginning of what was received.
  [[nodiscard]] std::optional<std::size_t> match_seam(std::string_view context,
                                                      std::string_view compared) const;

  /// Forgets the tokens after G[0..end), which will be produced again; `end` is at most the safe
  /// point. `repeated` is the number of bytes of text that they bring again, from match_seam().
  void rewind(std::size_t end, std::size_t repeated);

 private:
  void add_silent(const std::vector<TokenId>& ids);

  std::vector<TokenId> prompt_;
  std::vector<TokenId> tokens_;
  std::set<TokenId> silent_;
  std::size_t safe_ = 0;
  ReceivedText text_;
  /// Text after it that ends with half a character, and is not certain yet.
  std::string uncertain_;
  std::size_t seam_begin_ = 0;
  /// Number of the last bytes of text_ that will arrive again.
  std::size_t repeated_ = 0;
};

}  // namespace fo::route
