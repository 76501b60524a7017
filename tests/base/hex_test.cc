#include "base/hex.h"

#include <gtest/gtest.h>

#include <array>

namespace fo::base {
namespace {

TEST(Hex, BytesAreTwoLowerCaseDigitsEach) {
  EXPECT_EQ(to_hex({}), "");
  EXPECT_EQ(to_hex(std::array{std::byte{0}, std::byte{0x0a}, std::byte{0xf1}, std::byte{0xff}}),
            "000af1ff");
}

TEST(Hex, UuidsAreFiveGroups) {
  std::array<std::byte, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 17);
  EXPECT_EQ(uuid_text(bytes), "00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Hex, NothingElseIsHex) {
  EXPECT_TRUE(is_hex("0123456789abcdef"));
  for (const char* text : {"A", "0g", "0 ", "-1"}) EXPECT_FALSE(is_hex(text)) << text;
}

TEST(Hex, AValueIsThatOfOneDigit) {
  EXPECT_EQ(hex_value('0'), 0);
  EXPECT_EQ(hex_value('9'), 9);
  EXPECT_EQ(hex_value('a'), 10);
  EXPECT_EQ(hex_value('F'), 15);
  for (const char c : {'g', '/', ':', '@', '`', '\0'}) EXPECT_EQ(hex_value(c), -1);
}

}  // namespace
}  // namespace fo::base
