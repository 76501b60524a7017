#include "refengine/api/output_text.h"

#include <gtest/gtest.h>

namespace fo::refengine {
namespace {

// The output after each byte of `bytes`, and at the end.
std::vector<std::string> pieces(OutputText& text, std::string_view bytes) {
  std::vector<std::string> result;
  for (const char byte : bytes) {
    if (text.stop()) break;
    text.add(static_cast<unsigned char>(byte));
    result.push_back(text.take(false));
  }
  result.push_back(text.take(true));
  return result;
}

std::string whole(const std::vector<std::string>& stops, std::string_view bytes, bool stopped,
                  bool include_stop = false, std::size_t min_tokens = 0) {
  OutputText text({stops, include_stop, min_tokens});
  std::string result;
  for (const std::string& piece : pieces(text, bytes)) result += piece;
  EXPECT_EQ(text.stop().has_value(), stopped) << bytes;
  return result;
}

using Pieces = std::vector<std::string>;

TEST(OutputText, TextEndsWhereACharacterDoes) {
  OutputText text({});
  EXPECT_EQ(pieces(text, "a\xC3\xA9\xE2\xFFxy"),
            (Pieces{"a", "", "é", "", "", "\uFFFD\uFFFDx", "y", ""}));
  EXPECT_FALSE(text.stop());
}

TEST(OutputText, WhatIsIncompleteOrInvalidAtTheEndIsDropped) {
  for (const char* end : {"\xE2", "\xFF", "\xE2\xFF", "\xF0\x9F"}) {
    EXPECT_EQ(whole({}, std::string("ab") + end, false), "ab");
  }
}

TEST(OutputText, CompletesTheLastCharacterOfThePrompt) {
  const std::vector<TokenId> prompt{'a', 0xF0, 0x9F};
  OutputText text({}, prompt);
  EXPECT_EQ(pieces(text, "\x98\x80!"), (Pieces{"", "😀", "!", ""}));
  OutputText broken({}, prompt);
  EXPECT_EQ(pieces(broken, "b"), (Pieces{"\uFFFDb", ""}));
}

// Any piece of the text can be the end of a prompt, whose continuation is the rest.
TEST(OutputText, ContinuesAfterEveryToken) {
  const std::string bytes = "a\xC3\xA9\xFF\xFE\xF0\x9F\x98\x80\xE2\x82z\xE2\x82\xAC\xF0";
  OutputText undisturbed({});
  const Pieces all = pieces(undisturbed, bytes);
  std::vector<TokenId> prompt;
  for (std::size_t k = 0; k <= bytes.size(); ++k) {
    OutputText text({}, prompt);
    EXPECT_EQ(pieces(text, bytes.substr(k)), Pieces(all.begin() + static_cast<long>(k), all.end()))
        << k;
    if (k < bytes.size()) prompt.push_back(static_cast<unsigned char>(bytes[k]));
  }
}

TEST(OutputText, TokensSayWhichCharacterTheyBelongTo) {
  OutputText text({{"é"}});
  std::vector<std::size_t> offsets;
  for (const TokenId token :
       {'a' + 0u, 0xE2u, 0x82u, 0xACu, 0xE2u, 0xC3u, 0xFFu, 300u, 0xE2u, 300u, 'b' + 0u}) {
    text.add(token);
    offsets.push_back(text.offset());
  }
  text.add_hidden();
  offsets.push_back(text.offset());
  // "a", "€" of three bytes, two truncated characters, an invalid byte, a token without text, a
  // truncated character with one inside, "b", the hidden token.
  EXPECT_EQ(offsets, (std::vector<std::size_t>{0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6, 7}));
}

TEST(OutputText, EndsBeforeAStopStringThatStraddlesTokens) {
  OutputText text({{"END"}});
  EXPECT_EQ(pieces(text, "abENDcd"), (Pieces{"", "", "a", "b", "", ""}));
  EXPECT_EQ(text.stop(), "END");
}

TEST(OutputText, HoldsBackWhatMayBecomeAStopString) {
  OutputText text({{"END", "é"}});
  EXPECT_EQ(pieces(text, "ENxEE"), (Pieces{"", "", "E", "N", "x", "EE"}));
  EXPECT_FALSE(text.stop());
}

TEST(OutputText, AnIncludedStopStringHoldsNothingBack) {
  OutputText text({{"END"}, true});
  EXPECT_EQ(pieces(text, "abENDcd"), (Pieces{"a", "b", "E", "N", "D", ""}));
  EXPECT_EQ(text.stop(), "END");
  EXPECT_EQ(whole({"b"}, "ab", true, true), "ab");
}

TEST(OutputText, StopStringsInTheFirstTokensDoNotCount) {
  EXPECT_EQ(whole({"b"}, "abcbd", true, false, 2), "abc");
  EXPECT_EQ(whole({"bc"}, "abcbd", true, false, 2), "a") << "it ends after the first tokens";
  EXPECT_EQ(whole({"b"}, "ab", false, false, 2), "ab");
}

TEST(OutputText, AFalseStartMayHideATrueOne) {
  EXPECT_EQ(whole({"aab"}, "xaaaab!", true), "xaa");
  EXPECT_EQ(whole({"abac"}, "ababac", true), "ab");
  EXPECT_EQ(whole({"nano"}, "nananano", true), "nana");
}

TEST(OutputText, TheStopThatIsCompleteFirstCountsThenTheFirstInTheList) {
  EXPECT_EQ(whole({"abcd", "bc"}, "xabcd", true), "xa");
  EXPECT_EQ(whole({"c", "abc"}, "xabc", true), "xab");
  EXPECT_EQ(whole({"abc", "c"}, "xabc", true), "x");
  EXPECT_EQ(whole({"abc", "abd"}, "xabd", true), "x");
  // The last token completes three characters.
  EXPECT_EQ(whole({"b", "\uFFFD"}, "a\xE2\xFF\x62", true), "a");
}

TEST(OutputText, AStopAtTheVeryBeginningLeavesNothing) { EXPECT_EQ(whole({"a"}, "abc", true), ""); }

TEST(OutputText, StopsAreCharactersAndNotBytes) {
  OutputText text({{"é"}});
  EXPECT_EQ(pieces(text, "x\xC3\xA9y"), (Pieces{"x", "", "", ""}));
  EXPECT_EQ(text.stop(), "é");
  EXPECT_EQ(whole({"é"}, "x\xC3\xA8", false), "xè");
}

TEST(OutputText, SpecialTokensHaveNoTextAndHideNoStop) {
  OutputText text({{"ab"}});
  text.add('a');
  text.add(300);
  EXPECT_EQ(text.take(false), "");
  text.add('b');
  EXPECT_TRUE(text.stop());
}

TEST(OutputText, AHiddenTokenEndsTheText) {
  OutputText text({{"ab"}});
  text.add('a');
  EXPECT_EQ(text.take(false), "");
  text.add_hidden();
  EXPECT_EQ(text.take(true), "a");
  EXPECT_FALSE(text.stop());
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
        if (at == std::string::npos || at + stop.size() >= first_end) continue;
        first_end = at + stop.size();
        begin = at;
      }
      EXPECT_EQ(whole(stops, bytes, begin != std::string::npos), bytes.substr(0, begin));
    }
  }
}

}  // namespace
}  // namespace fo::refengine
