// Byte-level tokens: ids 0–255 are the bytes, everything above has no text. Whatever the model
// says becomes valid UTF-8 on the way out, in one piece or streamed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "refengine/model_config.h"

namespace fo::refengine {

inline constexpr TokenId kByteTokens = 256;

/// `text` as tokens, the config's bos first where it has one. Throws Error(kBadData) when a byte
/// is outside the vocabulary.
std::vector<TokenId> encode_text(std::string_view text, const ModelConfig& config);

/// Turns tokens into UTF-8, holding back what may still become a character; what can't is U+FFFD,
/// as many as Unicode recommends (one for each maximal part). The pieces joined are the same
/// however the tokens were handed in.
class TextDecoder {
 public:
  /// The text that is complete with this token; often empty.
  std::string feed(TokenId token);
  /// The rest, at the end.
  std::string finish();
  /// Whether the beginning of a character is held back.
  [[nodiscard]] bool holds_back() const { return !pending_.empty(); }

 private:
  std::string pending_;
};

}  // namespace fo::refengine
