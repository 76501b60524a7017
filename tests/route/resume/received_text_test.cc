#include "route/resume/text/received_text.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::test {
namespace {

using route::ReceivedText;

constexpr std::size_t kBlock = ReceivedText::kBlockBytes;

// A text of this length that does not repeat itself early.
std::string long_text(std::size_t size) {
  std::string text;
  for (std::size_t number = 0; text.size() < size; ++number) text += std::to_string(number) + " ";
  text.resize(size);
  return text;
}

TEST(ReceivedText, IsWholeUntilItIsCondensed) {
  ReceivedText received;
  const std::string text = long_text(5 * kBlock);
  received.append(text);
  EXPECT_TRUE(received.is_whole());
  EXPECT_EQ(received.whole(), text);
  received.condense();
  EXPECT_FALSE(received.is_whole());
  EXPECT_EQ(received.size(), text.size());
}

TEST(ReceivedText, AShortTextStaysWhole) {
  ReceivedText received;
  received.append(long_text(2 * kBlock - 1));
  received.condense();
  EXPECT_TRUE(received.is_whole());
}

TEST(ReceivedText, BeginsWithItsOwnTextHoweverItArrived) {
  const std::string text = long_text(7 * kBlock + 100);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{333}, 3 * kBlock}) {
    ReceivedText received;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      received.append(text.substr(at, piece));
      received.condense();
    }
    EXPECT_TRUE(received.starts_with(text)) << piece;
    EXPECT_TRUE(received.starts_with(text.substr(0, text.size() - kBlock))) << piece;
    EXPECT_FALSE(received.starts_with(text + "x")) << piece;
    EXPECT_FALSE(received.starts_with("")) << piece;
    for (const std::size_t place : {std::size_t{0}, kBlock, 3 * kBlock - 1, text.size() - 1}) {
      std::string other = text;
      other[place] = 'x';
      EXPECT_FALSE(received.starts_with(other)) << piece << ", byte " << place;
    }
  }
}

TEST(ReceivedText, TwoBlocksInTheOtherOrderAreAnotherText) {
  const std::string text = long_text(4 * kBlock);
  ReceivedText received;
  received.append(text);
  received.condense();
  const std::string other =
      text.substr(kBlock, kBlock) + text.substr(0, kBlock) + text.substr(2 * kBlock);
  EXPECT_FALSE(received.starts_with(other));
}

TEST(ReceivedText, KnowsItsEnd) {
  ReceivedText received;
  const std::string text = long_text(6 * kBlock + 17);
  received.append(text);
  received.condense();
  for (const std::size_t back : {std::size_t{0}, std::size_t{1}, kBlock}) {
    const std::string end = text.substr(text.size() - back);
    EXPECT_TRUE(received.has_before_end(back, end)) << back;
    EXPECT_TRUE(received.has_before_end(back, end.substr(0, back / 2))) << back;
    EXPECT_FALSE(received.has_before_end(back, end + "x")) << back;
  }
  EXPECT_FALSE(received.has_before_end(text.size() + 1, ""));
}

}  // namespace
}  // namespace fo::test
