#include "text/base64.h"

#include <gtest/gtest.h>

#include <utility>

namespace fo::text {
namespace {

TEST(Base64, SpellsAsTheStandardDoes) {
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"},
                                    {{"\xff\xfe\0\xfb", 4}, "//4A+w=="}}) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
}

TEST(Base64, KeepsEveryByteAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    for (std::size_t size = 1; size < 8; ++size) {
      std::string bytes(size, 'x');
      for (char& one : bytes) {
        const char before = std::exchange(one, static_cast<char>(byte));
        EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
        one = before;
      }
    }
  }
}

TEST(Base64, RefusesEveryOtherSpelling) {
  for (const char* text : {"Z", "Zg", "Zg=", "=", "====", "Z===", "Zg==Zg==", "Zm9v\n", "Zm 9",
                           "Zm9-", "Zm9_", "Zh==", "Zm9=", "Zg=v", "=Zg=", "Zm9v===="}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace fo::text
