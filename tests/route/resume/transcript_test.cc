#include "route/resume/transcript.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fo::test {
namespace {

using route::TokenId;
using route::Transcript;
using Ids = std::vector<TokenId>;

// The halves of U+1F642, as WTF-8.
const std::string kHigh = "\xED\xA0\xBD";
const std::string kLow = "\xED\xB9\x82";
const std::string kSmile = "\xF0\x9F\x99\x82";

Transcript answer_to(Ids prompt) {
  Transcript transcript;
  transcript.set_prompt(std::move(prompt));
  return transcript;
}

TEST(Transcript, TheSafePointIsTheEndOfTheLastEventWithText) {
  Transcript transcript = answer_to({1, 2});
  EXPECT_EQ(transcript.safe_point(), 0U);
  EXPECT_EQ(transcript.add({10}, "a"), "a");
  EXPECT_EQ(transcript.add({11, 12}, "bc"), "bc");
  EXPECT_EQ(transcript.safe_point(), 3U);
  EXPECT_EQ(transcript.add({13}, ""), "");
  EXPECT_EQ(transcript.safe_point(), 3U);
  EXPECT_EQ(transcript.tokens(), 4U);
  EXPECT_EQ(transcript.add({14}, "d"), "d");
  EXPECT_EQ(transcript.safe_point(), 5U);
  EXPECT_EQ(transcript.answer(), (Ids{10, 11, 12, 13, 14}));
  EXPECT_EQ(transcript.all(), (Ids{1, 2, 10, 11, 12, 13, 14}));
}

TEST(Transcript, TextCountsOnceItDoesNotEndWithHalfACharacter) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "a"), "a");
  EXPECT_EQ(transcript.add({11}, "b" + kHigh), "");
  EXPECT_TRUE(transcript.has_half());
  EXPECT_EQ(transcript.safe_point(), 1U);
  EXPECT_EQ(transcript.add({12}, kLow + "c"), "b" + kSmile + "c");
  EXPECT_FALSE(transcript.has_half());
  EXPECT_EQ(transcript.safe_point(), 3U);
}

TEST(Transcript, AHalfOfADeadWorkerIsForgotten) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "a"), "a");
  EXPECT_EQ(transcript.add({11}, kHigh), "");
  transcript.rewind(1, 0);
  EXPECT_FALSE(transcript.has_half());
  EXPECT_EQ(transcript.answer(), Ids{10});
  EXPECT_EQ(transcript.add({11, 12}, kSmile), kSmile);
  EXPECT_EQ(transcript.tokens(), 3U);
}

TEST(Transcript, TextThatComesAgainIsLeftOut) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "ab"), "ab");
  EXPECT_EQ(transcript.add({11, 12}, "cde"), "cde");
  transcript.rewind(1, 3);
  EXPECT_EQ(transcript.answer(), Ids{10});
  // In other pieces than before.
  EXPECT_EQ(transcript.add({11}, "cd"), "");
  EXPECT_EQ(transcript.add({12}, "ef"), "f");
  EXPECT_EQ(transcript.add({13}, "g"), "g");
  EXPECT_EQ(transcript.answer(), (Ids{10, 11, 12, 13}));
  EXPECT_EQ(transcript.safe_point(), 4U);
}

TEST(Transcript, ASecondWorkerMayFailWhileTextComesAgain) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "ab"), "ab");
  EXPECT_EQ(transcript.add({11, 12}, "cde"), "cde");
  transcript.rewind(1, 3);
  EXPECT_EQ(transcript.add({11}, "cd"), "");
  // The text of G[0..2) is "abcd" there, so "e" was received beyond it.
  EXPECT_EQ(transcript.safe_point(), 2U);
  EXPECT_EQ(transcript.match_seam("P", "Pabcd"), 1U);
  transcript.rewind(2, 1);
  EXPECT_EQ(transcript.add({12}, "ef"), "f");
}

TEST(Transcript, OtherTextThanBeforeIsRefusedWithItsTokens) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "ab"), "ab");
  EXPECT_EQ(transcript.add({11}, "cd"), "cd");
  transcript.rewind(1, 2);
  EXPECT_EQ(transcript.add({99}, "cx"), std::nullopt);
  EXPECT_EQ(transcript.answer(), Ids{10});
  EXPECT_EQ(transcript.match_seam("", "ab"), 2U);
}

TEST(Transcript, TheSeamHasSomeContext) {
  Ids prompt;
  for (TokenId id = 1; id <= 20; ++id) prompt.push_back(id);
  Transcript transcript = answer_to(prompt);
  EXPECT_EQ(transcript.add({30, 31}, "ab"), "ab");
  EXPECT_EQ(transcript.seam_ids(0, {}), (Ids{13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(transcript.seam_ids(2, {}), (Ids{13, 14, 15, 16, 17, 18, 19, 20, 30, 31}));
  EXPECT_EQ(transcript.seam_ids(1, {14, 20, 30}), (Ids{13, 15, 16, 17, 18, 19}));
  EXPECT_EQ(answer_to({1}).seam_ids(0, {}), Ids{1});
}

TEST(Transcript, TheSeamMayBeginAfterTheThinking) {
  Transcript transcript = answer_to({1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(transcript.add({20, 21, 22}, ""), "");
  EXPECT_EQ(transcript.add({23}, "first"), "first");
  transcript.begin_seam();
  EXPECT_EQ(transcript.seam_begin(), 4U);
  EXPECT_EQ(transcript.safe_point(), 4U);
  EXPECT_EQ(transcript.add({24}, " second"), " second");
  EXPECT_EQ(transcript.seam_ids(5, {}), (Ids{6, 7, 8, 9, 20, 21, 22, 23, 24}));
  EXPECT_EQ(transcript.match_seam("first", "first second"), 0U);
  EXPECT_TRUE(transcript.contains({21, 22}));
  EXPECT_FALSE(transcript.contains({22, 21}));
}

TEST(Transcript, TheIdsWithoutTextAreThoseAfterTheSeamAndNotMany) {
  Transcript transcript = answer_to({1});
  for (TokenId id = 100; id < 200; ++id) EXPECT_EQ(transcript.add({id}, ""), "");
  EXPECT_EQ(transcript.silent().size(), Transcript::kMaxSilent);
  EXPECT_EQ(transcript.add({10}, "a"), "a");
  transcript.begin_seam();
  EXPECT_TRUE(transcript.silent().empty());
  EXPECT_EQ(transcript.add({11, 12}, ""), "");
  EXPECT_EQ(transcript.silent(), (std::set<TokenId>{11, 12}));
}

TEST(Transcript, TheSeamOfALongTextIsComparedWithAllOfIt) {
  Transcript transcript = answer_to({1});
  std::string text;
  for (TokenId id = 1; text.size() < 3 * route::ReceivedText::kBlockBytes; ++id) {
    const std::string more = std::to_string(id) + " ";
    EXPECT_EQ(transcript.add({id}, more), more);
    text += more;
  }
  EXPECT_EQ(transcript.match_seam("x ", "x " + text), 0U);
  EXPECT_EQ(transcript.match_seam("x ", "x " + text.substr(0, text.size() - 4)), 4U);
  std::string other = text;
  other.front() = 'x';
  EXPECT_EQ(transcript.match_seam("x ", "x " + other), std::nullopt);
  // The last tokens come again.
  transcript.rewind(transcript.tokens() - 1, 4);
  EXPECT_EQ(transcript.add({1}, text.substr(text.size() - 4) + "y"), "y");
  EXPECT_EQ(transcript.match_seam("", text + "y"), 0U);
}

TEST(Transcript, ATextWithoutTokensStaysWhole) {
  Transcript transcript;
  const std::string text(10 * route::ReceivedText::kBlockBytes, 'a');
  EXPECT_EQ(transcript.add({}, text), text);
  EXPECT_EQ(transcript.text().whole(), text);
}

TEST(Transcript, TheSeamMatchesTheBeginningOfWhatWasReceived) {
  Transcript transcript = answer_to({1});
  EXPECT_EQ(transcript.add({10}, "abcd"), "abcd");
  EXPECT_EQ(transcript.match_seam("x ", "x abcd"), 0U);
  EXPECT_EQ(transcript.match_seam("x ", "x ab"), 2U);
  EXPECT_EQ(transcript.match_seam("x ", "x "), 4U);
  EXPECT_EQ(transcript.match_seam("x ", "x abcde"), std::nullopt);
  EXPECT_EQ(transcript.match_seam("x ", "x abd"), std::nullopt);
  EXPECT_EQ(transcript.match_seam("x ", "y abcd"), std::nullopt);
}

}  // namespace
}  // namespace fo::test
