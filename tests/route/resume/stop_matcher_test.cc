#include "route/resume/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "oracle/model/output_text.h"
#include "oracle/model/vocabulary.h"

namespace fo::test {
namespace {

using route::StopMatcher;

using Strings = std::vector<std::string>;

TEST(StopMatcher, TheTextEndsBeforeAStopString) {
  StopMatcher matcher({"END"}, false);
  EXPECT_EQ(matcher.feed("one END two", true), "one ");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "END");
  EXPECT_EQ(matcher.feed("three", true), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, TheTextEndsAfterAStopStringThatIsIncluded) {
  StopMatcher matcher({"END"}, true);
  EXPECT_EQ(matcher.feed("one E", true), "one E");
  EXPECT_EQ(matcher.held(), 0U);
  EXPECT_EQ(matcher.feed("ND two", true), "ND");
  EXPECT_EQ(matcher.matched(), "END");
}

TEST(StopMatcher, OnlyATailThatMayBeginAStopStringIsHeld) {
  StopMatcher matcher({"abc", "bd"}, false);
  EXPECT_EQ(matcher.feed("xa", true), "x");
  EXPECT_EQ(matcher.held(), 1U);
  EXPECT_EQ(matcher.feed("b", true), "");
  EXPECT_EQ(matcher.held(), 2U);
  // Neither "ab" nor "b" goes on.
  EXPECT_EQ(matcher.feed("a", true), "ab");
  EXPECT_EQ(matcher.feed("y", true), "ay");
  EXPECT_EQ(matcher.held(), 0U);
  EXPECT_EQ(matcher.feed("ab", true), "");
  EXPECT_EQ(matcher.feed("d", true), "a");
  EXPECT_EQ(matcher.matched(), "bd");
}

TEST(StopMatcher, WhatIsHeldIsDeliveredAtTheEnd) {
  StopMatcher matcher({"abc"}, false);
  EXPECT_EQ(matcher.feed("xab", true), "x");
  EXPECT_EQ(matcher.flush(), "ab");
  EXPECT_EQ(matcher.held(), 0U);
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, WithoutStopStringsNothingIsHeld) {
  StopMatcher matcher({}, false);
  EXPECT_EQ(matcher.feed("anything", true), "anything");
  EXPECT_EQ(matcher.feed("", true), "");
  EXPECT_EQ(matcher.held(), 0U);
}

TEST(StopMatcher, TheFirstToBeCompleteWins) {
  for (const Strings& stops : {Strings{"r", "the"}, Strings{"the", "r"}}) {
    StopMatcher matcher(stops, false);
    EXPECT_EQ(matcher.feed("so there", true), "so ");
    EXPECT_EQ(matcher.matched(), "the");
  }
}

TEST(StopMatcher, OfThoseCompleteAtOnceTheFirstInTheListWins) {
  StopMatcher shorter({"he", "the"}, false);
  EXPECT_EQ(shorter.feed("there", true), "t");
  StopMatcher longer({"the", "he"}, false);
  EXPECT_EQ(longer.feed("there", true), "");
  EXPECT_EQ(longer.matched(), "the");
}

TEST(StopMatcher, AStopStringThatEndsInEarlyTextIsIgnored) {
  StopMatcher matcher({"ab"}, false);
  EXPECT_EQ(matcher.feed("xaby", false), "xaby");
  EXPECT_FALSE(matcher.stopped());
  // One that begins there is not.
  EXPECT_EQ(matcher.feed("za", false), "z");
  EXPECT_EQ(matcher.feed("bc", true), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, TheEndOfAnIgnoredStopStringCanBeginAnother) {
  StopMatcher matcher({"aa"}, false);
  EXPECT_EQ(matcher.feed("aa", false), "a");
  EXPECT_EQ(matcher.feed("a", true), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, CharactersBeyondAsciiAreCutWhole) {
  StopMatcher matcher({"é."}, false);
  EXPECT_EQ(matcher.feed("caf\u00e8", true), "caf\u00e8");
  EXPECT_EQ(matcher.feed("é", true), "");
  EXPECT_EQ(matcher.feed("!é.", true), "é!");
  EXPECT_EQ(matcher.matched(), "é.");
}

// The rules in their simplest form, applied to a whole text. `early` is how much does not count.
struct Model {
  std::string delivered;
  std::string matched;

  Model(const std::string& text, std::size_t early, const Strings& stops, bool include)
      : delivered(text) {
    for (std::size_t end = early + 1; end <= text.size(); ++end) {
      for (const std::string& stop : stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        matched = stop;
        delivered = text.substr(0, include ? end : end - stop.size());
        return;
      }
    }
  }
};

std::size_t longest_beginning(const std::string& text, const Strings& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t size = 1; size < stop.size(); ++size) {
      if (text.ends_with(stop.substr(0, size))) longest = std::max(longest, size);
    }
  }
  return longest;
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  // From 0 to `max`.
  std::size_t number(std::size_t max) {
    return std::uniform_int_distribution<std::size_t>(0, max)(engine_);
  }
  std::string text(std::size_t size, std::size_t letters) {
    std::string text;
    while (text.size() < size) text += static_cast<char>('a' + number(letters - 1));
    return text;
  }

 private:
  std::mt19937 engine_;
};

TEST(StopMatcher, EveryChunkingGivesWhatTheRulesSay) {
  Random random(7);
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::size_t letters = 2 + random.number(1);
    Strings stops;
    for (std::size_t count = random.number(3); count > 0; --count) {
      stops.push_back(random.text(1 + random.number(6), letters));
    }
    const bool include = random.number(1) == 1;
    const std::string text = random.text(random.number(40), letters);
    const std::size_t early = random.number(2) == 0 ? random.number(text.size()) : 0;
    const Model model(text, early, stops, include);

    StopMatcher matcher(stops, include);
    std::string delivered;
    std::size_t at = 0;
    while (at < text.size() && !matcher.stopped()) {
      // A chunk does not straddle the end of the early text.
      const std::size_t end = at < early ? early : text.size();
      const std::size_t size = std::min(1 + random.number(7), end - at);
      delivered += matcher.feed(text.substr(at, size), at >= early);
      at += size;
      if (matcher.stopped()) break;
      const std::size_t held = include ? 0 : longest_beginning(text.substr(0, at), stops);
      ASSERT_EQ(matcher.held(), held) << text << " at " << at;
      ASSERT_EQ(delivered + text.substr(at - held, held), text.substr(0, at));
    }
    delivered += matcher.flush();
    ASSERT_EQ(delivered, model.delivered) << text;
    ASSERT_EQ(matcher.matched(), model.matched) << text;
    stopped += matcher.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 4500);
}

TEST(StopMatcher, ATextInTokensEndsWhereTheEngineEndsIt) {
  Random random(8);
  int stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<oracle::TokenId> tokens;
    for (int i = 0; i < 30; ++i) {
      tokens.push_back(static_cast<oracle::TokenId>(random.number(oracle::vocabulary_size() - 1)));
    }
    // A part of the text, so that it is often found.
    const std::string text = oracle::text_of(tokens, oracle::SpecialTokens::kSkipped);
    const std::string stop = text.substr(random.number(text.size() - 1), 1 + random.number(4));
    oracle::OutputText::Options options;
    options.stops = {stop};
    options.include_stop = random.number(1) == 1;
    options.min_tokens = random.number(20);
    oracle::OutputText engine(options);
    oracle::OutputText unstopped({});
    StopMatcher matcher(options.stops, options.include_stop);
    std::string expected;
    std::string delivered;
    for (std::size_t i = 0; i < tokens.size() && !matcher.stopped(); ++i) {
      ASSERT_FALSE(engine.stop());
      engine.add(tokens[i]);
      unstopped.add(tokens[i]);
      delivered += matcher.feed(unstopped.take(false), i >= options.min_tokens);
    }
    expected = engine.take(true);
    delivered += matcher.flush();
    ASSERT_EQ(delivered, expected);
    ASSERT_EQ(matcher.matched(), engine.stop().value_or(""));
    stopped += matcher.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 2000);
}

}  // namespace
}  // namespace fo::test
