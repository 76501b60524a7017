#include "refengine/output_text.h"

#include <gtest/gtest.h>

namespace fo::refengine {
namespace {

// The output after each byte of `bytes`, and at the end.
std::vector<std::string> pieces(OutputText& text, std::string_view bytes) {
  std::vector<std::string> result;
  for (const char byte : bytes) {
    if (text.stopped()) break;
    result.push_back(text.feed(static_cast<unsigned char>(byte)));
  }
  result.push_back(text.finish());
  return result;
}

std::string whole(std::vector<std::string> stops, std::string_view bytes, bool stopped) {
  OutputText text(std::move(stops));
  std::string result;
  for (const std::string& piece : pieces(text, bytes)) result += piece;
  EXPECT_EQ(text.stopped(), stopped) << bytes;
  return result;
}

using Pieces = std::vector<std::string>;

TEST(OutputText, WithoutStopsItIsTheDecodedText) {
  OutputText text;
  EXPECT_EQ(pieces(text, "a\xC3\xA9\xE2x"), (Pieces{"a", "", "é", "", "\uFFFDx", ""}));
  EXPECT_FALSE(text.stopped());
}

TEST(OutputText, TokensSayWhichCharacterTheyBelongTo) {
  OutputText text({"é"});
  std::vector<std::size_t> offsets;
  for (const TokenId token :
       {'a' + 0u, 0xE2u, 0x82u, 0xACu, 0xE2u, 0xC3u, 0xFFu, 300u, 0xE2u, 300u, 'b' + 0u}) {
    text.feed(token);
    offsets.push_back(text.offset());
  }
  // "a", "€" of three bytes, three truncated characters, an invalid byte, tokens without text, "b".
  EXPECT_EQ(offsets, (std::vector<std::size_t>{0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6}));
}

TEST(OutputText, EndsBeforeAStopStringThatStraddlesTokens) {
  OutputText text({"END"});
  EXPECT_EQ(pieces(text, "abENDcd"), (Pieces{"a", "b", "", "", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST(OutputText, WhatOnlyLookedLikeOneIsLetOut) {
  OutputText text({"END"});
  EXPECT_EQ(pieces(text, "ENxEE"), (Pieces{"", "", "ENx", "", "E", "E"}));
  EXPECT_FALSE(text.stopped());
}

TEST(OutputText, AFalseStartMayHideATrueOne) {
  EXPECT_EQ(whole({"aab"}, "xaaaab!", true), "xaa");
  EXPECT_EQ(whole({"abac"}, "ababac", true), "ab");
  EXPECT_EQ(whole({"nano"}, "nananano", true), "nana");
}

TEST(OutputText, TheStopThatIsCompleteFirstCountsThenTheLongest) {
  EXPECT_EQ(whole({"abcd", "bc"}, "xabcd", true), "xa");
  EXPECT_EQ(whole({"c", "abc"}, "xabc", true), "x");
  EXPECT_EQ(whole({"abc", "abd"}, "xabd", true), "x");
}

TEST(OutputText, AStopAtTheVeryBeginningLeavesNothing) { EXPECT_EQ(whole({"a"}, "abc", true), ""); }

TEST(OutputText, StopsAreCharactersAndNotBytes) {
  OutputText text({"é"});
  EXPECT_EQ(pieces(text, "x\xC3\xA9y"), (Pieces{"x", "", "", ""}));
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(whole({"é"}, "x\xC3\xA8", false), "xè");
}

TEST(OutputText, SpecialTokensHaveNoTextAndHideNoStop) {
  OutputText text({"ab"});
  EXPECT_EQ(text.feed('a'), "");
  EXPECT_EQ(text.feed(300), "");
  EXPECT_EQ(text.feed('b'), "");
  EXPECT_TRUE(text.stopped());
}

TEST(OutputText, ACutCharacterAtTheEndMayBeAStopToo) {
  EXPECT_EQ(whole({"\uFFFD"}, "x\xC3", true), "x");
}

// For any text and stops, the result equals a search in the whole text.
TEST(OutputText, AgreesWithASearchInTheWholeText) {
  const std::vector<std::vector<std::string>> sets{
      {"aa"}, {"ab", "ba"}, {"aba", "bb"}, {"abab", "b"}, {"aaab", "baa", "bab", "bba"}};
  for (unsigned bits = 0; bits < 1u << 10; ++bits) {
    std::string bytes;
    for (unsigned i = 0; i < 10; ++i) bytes += (bits >> i & 1) != 0 ? 'b' : 'a';
    for (const auto& stops : sets) {
      std::size_t first_end = std::string::npos;
      std::size_t begin = std::string::npos;
      for (const std::string& stop : stops) {
        const std::size_t at = bytes.find(stop);
        if (at == std::string::npos) continue;
        const std::size_t end = at + stop.size();
        if (end > first_end || (end == first_end && at > begin)) continue;
        first_end = end;
        begin = at;
      }
      EXPECT_EQ(whole(stops, bytes, begin != std::string::npos), bytes.substr(0, begin));
    }
  }
}

}  // namespace
}  // namespace fo::refengine
