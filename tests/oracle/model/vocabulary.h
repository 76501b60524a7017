// The oracle's tokenizer: a fixed vocabulary with everything that makes the tokens of real models
// awkward. Some bring several characters, some a part of a character, some no text. A text has
// several spellings in tokens, so tokenize(detokenize(ids)) need not be ids. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fo::oracle {

using TokenId = std::uint32_t;

/// Ids below are single bytes.
inline constexpr TokenId kBytes = 256;
/// The special tokens.
inline constexpr TokenId kBegin = 256;
inline constexpr TokenId kEnd = 257;
inline constexpr TokenId kSystem = 258;
inline constexpr TokenId kUser = 259;
inline constexpr TokenId kAssistant = 260;
inline constexpr TokenId kTool = 261;
/// Stands for an image or another part of a message that is not text.
inline constexpr TokenId kMedia = 262;
inline constexpr TokenId kThink = 263;
inline constexpr TokenId kEndThink = 264;
/// An ordinary token without text.
inline constexpr TokenId kEmpty = 265;
/// Tokens from here on are words, pieces of words and parts of characters.
inline constexpr TokenId kFirstWord = 266;

/// The number of tokens.
TokenId vocabulary_size();

inline bool is_special(TokenId token) { return token >= kBegin && token <= kEndThink; }

/// The bytes of a token, which need not be whole characters. `token` is below vocabulary_size().
std::string_view bytes_of(TokenId token);

/// The longest token at each position, also special ones where they are spelled out.
std::vector<TokenId> encode(std::string_view text);

/// `bytes` as UTF-8, with U+FFFD for each invalid part.
std::string valid_text(std::string_view bytes);

/// The text of an answer; special tokens have one only if they are not skipped.
enum class SpecialTokens { kSkipped, kShown };
std::string text_of(std::span<const TokenId> tokens, SpecialTokens special);

}  // namespace fo::oracle
