#include "oracle/model/output_text.h"

#include <gtest/gtest.h>

namespace fo::oracle {
namespace {

// The text that each token brings; at the end what was held back.
std::vector<std::string> pieces(const std::vector<TokenId>& tokens, OutputText::Options options) {
  OutputText text(std::move(options));
  std::vector<std::string> got;
  for (const TokenId token : tokens) {
    text.add(token);
    got.push_back(text.take(text.stop().has_value()));
    if (text.stop()) return got;
  }
  got.push_back(text.take(true));
  return got;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

std::vector<TokenId> bytes_as_tokens(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

using Pieces = std::vector<std::string>;

TEST(OracleOutputText, ACharacterComesWithItsLastByte) {
  EXPECT_EQ(pieces(bytes_as_tokens("é🙂x"), {}), (Pieces{"", "é", "", "", "", "🙂", "x", ""}));
}

TEST(OracleOutputText, ATokenWithHalfACharacterIsHeldBackWhole) {
  const std::vector<TokenId> tokens = encode(" \xF0\x9F");
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(pieces({tokens[0], 0x99, 0x82, '!'}, {}), (Pieces{"", "", " 🙂", "!", ""}));
}

TEST(OracleOutputText, AnInvalidByteComesWithTheNextCharacter) {
  EXPECT_EQ(pieces({'a', 0x80, 0x80, 'b'}, {}), (Pieces{"a", "", "", "\uFFFD\uFFFDb", ""}));
}

TEST(OracleOutputText, AnIncompleteCharacterAtTheEndIsDropped) {
  EXPECT_EQ(joined(pieces({'a', 0xF0, 0x9F}, {})), "a");
}

TEST(OracleOutputText, EmptyAndSpecialTokensBringNoText) {
  EXPECT_EQ(pieces({'a', kEmpty, kUser, 'b'}, {}), (Pieces{"a", "", "", "b", ""}));
  EXPECT_EQ(joined(pieces({'a', kUser}, {.special = SpecialTokens::kShown})), "a<|user|>");
}

TEST(OracleOutputText, StopStringsEndTheTextWhereverTheyAreSplit) {
  const std::string text = "ab🙂END!";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    std::vector<TokenId> tokens = encode(text.substr(0, cut));
    for (const TokenId token : encode(text.substr(cut))) tokens.push_back(token);
    EXPECT_EQ(joined(pieces(tokens, {.stops = {"🙂E"}})), "ab") << cut;
    EXPECT_EQ(joined(pieces(tokens, {.stops = {"🙂E"}, .include_stop = true})), "ab🙂E") << cut;
    EXPECT_EQ(joined(pieces(tokens, {.stops = {"x", "END?"}})), text) << cut;
  }
}

TEST(OracleOutputText, AsManyCharactersAreHeldBackAsMayBeginAStopString) {
  EXPECT_EQ(pieces(bytes_as_tokens("abcd"), {.stops = {"xyz"}}), (Pieces{"", "", "a", "b", "cd"}));
}

TEST(OracleOutputText, TheFirstStopStringOfTheListCounts) {
  const std::vector<TokenId> one = encode("END");
  ASSERT_EQ(one.size(), 1u);
  OutputText text({.stops = {"ND", "END"}});
  text.add(one[0]);
  EXPECT_EQ(text.stop(), "ND");
  EXPECT_EQ(text.take(true), "E");
}

TEST(OracleOutputText, StopStringsInTheFirstTokensDoNotCount) {
  EXPECT_EQ(joined(pieces(bytes_as_tokens("a.b.c"), {.stops = {"."}, .min_tokens = 2})), "a.b");
}

}  // namespace
}  // namespace fo::oracle
