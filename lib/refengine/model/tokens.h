// Byte-level tokens: ids 0–255 are bytes, higher ids have no text. The output is always valid
// UTF-8, in one piece or streamed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/model/model_config.h"

namespace fo::refengine {

inline constexpr TokenId kByteTokens = 256;

/// `text` as tokens; with `add_special`, the bos of `config`, if it has one, is before them. Throws
/// Error(kBadData) for a byte outside the vocabulary.
std::vector<TokenId> encode_text(std::string_view text, const ModelConfig& config,
                                 bool add_special = true);

/// Converts tokens to UTF-8 and holds back bytes that may still become a character. Invalid bytes
/// become U+FFFD, one for each maximal part, as Unicode recommends. Tokens without text are
/// skipped. The joined output does not depend on how the tokens are split.
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

/// The text of `tokens`, incomplete characters at its end included.
std::string decode_tokens(std::span<const TokenId> tokens);

}  // namespace fo::refengine
