#include "refengine/model/tokens.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fo::refengine {
namespace {

ModelConfig config_of(std::uint32_t vocab) { return {.vocab_size = vocab, .bos = {}, .eos = {}}; }

std::vector<TokenId> bytes_of(std::string_view text) { return encode_text(text, config_of(256)); }

TEST(Tokens, TextIsItsBytesAfterTheBos) {
  ModelConfig config = config_of(258);
  EXPECT_EQ(encode_text("a\xFF", config), (std::vector<TokenId>{97, 255}));
  config.bos = 256;
  EXPECT_EQ(encode_text("a", config), (std::vector<TokenId>{256, 97}));
  EXPECT_EQ(encode_text("", config), (std::vector<TokenId>{256}));
  EXPECT_EQ(encode_text("a", config, false), (std::vector<TokenId>{97}));
}

TEST(Tokens, AByteOutsideTheVocabularyIsRefused) {
  EXPECT_THROW(encode_text("\x80", config_of(128)), base::Error);
  EXPECT_EQ(encode_text("\x7f", config_of(128)).size(), 1u);
}

TEST(Tokens, ValidTextComesBack) {
  const std::string text = "aé€😀\xF4\x8F\xBF\xBF\xED\x9F\xBF";
  EXPECT_EQ(decode_tokens(bytes_of(text)), text);
}

TEST(Tokens, CharactersAreHeldBackUntilTheyAreWhole) {
  TextDecoder decoder;
  EXPECT_EQ(decoder.feed(0xF0), "");
  EXPECT_EQ(decoder.feed(0x9F), "");
  EXPECT_EQ(decoder.feed(0x98), "");
  EXPECT_EQ(decoder.feed(0x80), "😀");
  EXPECT_EQ(decoder.feed(0xE2), "");
  EXPECT_EQ(decoder.feed('x'), "\uFFFDx");
  EXPECT_EQ(decoder.feed(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

// Unicode chapter 3, tables 3-8 to 3-11.
TEST(Tokens, EachMaximalPartIsReplacedOnce) {
  EXPECT_EQ(decode_tokens(bytes_of("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41")),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(decode_tokens(bytes_of("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41")),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(decode_tokens(bytes_of("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42")),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(decode_tokens(bytes_of("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41")),
            "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Tokens, SpecialTokensHaveNoTextAndAreSkipped) {
  const std::vector<TokenId> tokens{'a', 256, 0xC3, 300, 0xA9, 'b'};
  EXPECT_EQ(decode_tokens(tokens), "aéb");
}

}  // namespace
}  // namespace fo::refengine
