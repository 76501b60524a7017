#include "refengine/model/tokens.h"

#include "base/error.h"
#include "base/utf8.h"

namespace fo::refengine {
namespace {

// Unicode's table 3-7: the length of a sequence by its first byte (0: invalid), and the range of
// its second byte, which excludes overlong forms, surrogates and code points over U+10FFFF.
struct Lead {
  std::size_t length;
  unsigned char low;
  unsigned char high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

bool continues(const std::string& sequence, unsigned char byte) {
  const Lead lead = lead_of(static_cast<unsigned char>(sequence.front()));
  if (sequence.size() == 1) return byte >= lead.low && byte <= lead.high;
  return byte >= 0x80 && byte <= 0xBF;
}

}  // namespace

std::vector<TokenId> encode_text(std::string_view text, const ModelConfig& config,
                                 bool add_special) {
  std::vector<TokenId> tokens;
  tokens.reserve(text.size() + 1);
  if (add_special && config.bos) tokens.push_back(*config.bos);
  for (const char c : text) {
    const TokenId token = static_cast<unsigned char>(c);
    if (token >= config.vocab_size) {
      throw base::Error(base::ExitStatus::kBadData, "encode text: byte " + std::to_string(token) +
                                                        " is outside the vocabulary of " +
                                                        std::to_string(config.vocab_size));
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string TextDecoder::feed(TokenId token) {
  if (token >= kByteTokens) return {};
  const auto byte = static_cast<unsigned char>(token);
  std::string text;
  if (!pending_.empty() && !continues(pending_, byte)) text = finish();
  if (pending_.empty() && lead_of(byte).length == 0) return text += base::kReplacement;
  pending_ += static_cast<char>(byte);
  if (pending_.size() == lead_of(static_cast<unsigned char>(pending_.front())).length) {
    text += pending_;
    pending_.clear();
  }
  return text;
}

std::string TextDecoder::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(base::kReplacement);
}

std::string decode_tokens(std::span<const TokenId> tokens) {
  TextDecoder decoder;
  std::string text;
  for (const TokenId token : tokens) text += decoder.feed(token);
  return text + decoder.finish();
}

}  // namespace fo::refengine
