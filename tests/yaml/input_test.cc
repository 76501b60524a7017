#include "yaml/input.h"

#include <gtest/gtest.h>

namespace {

using fo::yaml::without_byte_order_marks;
using fo::yaml::without_surrogates;

TEST(WithoutByteOrderMarks, TakesThoseAtABeginning) {
  EXPECT_EQ(without_byte_order_marks("\xef\xbb\xbf"), "");
  EXPECT_EQ(without_byte_order_marks("\xef\xbb\xbf"
                                     "a\n--- # x\n\xef\xbb\xbf"
                                     "b"),
            "a\n--- # x\nb");
}

TEST(WithoutByteOrderMarks, LeavesOthers) {
  for (const char* text : {"",
                           "a\n\xef\xbb\xbf"
                           "b\n",
                           "a\xef\xbb\xbf"}) {
    EXPECT_EQ(without_byte_order_marks(text), text);
  }
}

TEST(WithoutSurrogates, HasTheCharacterThatJsonWritesInTwoEscapes) {
  EXPECT_EQ(without_surrogates("{\"\\ud83d\\ude00\":\n\"a\\uD83D\\uDE80\\u0041\\\"\\\\\"}"),
            "{\"😀\":\n\"a🚀\\u0041\\\"\\\\\"}");
  EXPECT_EQ(without_surrogates("\"\\udbff\\udfff\""), "\"\xf4\x8f\xbf\xbf\"");
}

TEST(WithoutSurrogates, LeavesWhatIsNone) {
  for (const char* text :
       {"", "{}", "[\"\\\\ud83d\\\\ude00\"]", "[\"\\ud7ff\\ue000\"]", "[\"\\ud83d\"]",
        "[\"\\ud83d\\u0041\"]", "[\"\\ude00\\ud83d\"]", "a: '\\ud83d\\ude00'\n",
        "a: \"\\ud83d\\ude00\"\n", "---\n[\"\\ud83d\\ude00\"]\n", "[\"\\ud83d\\ude00\"", "\\ud"}) {
    EXPECT_EQ(without_surrogates(text), text);
  }
}

}  // namespace
