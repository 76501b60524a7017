#include "json/canonical.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::json {
namespace {

using nlohmann::json;

std::string canonical_of(const char* text) { return canonical(json::parse(text)); }

// RFC 8785, section 3.2.2 and figure 2 to 4.
TEST(CanonicalJson, WritesTheExampleOfTheRfc) {
  EXPECT_EQ(canonical_of(R"({
    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
    "literals": [null, true, false]
  })"),
            "{\"literals\":[null,true,false],"
            "\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
            "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
}

// RFC 8785, section 3.2.3: the order is that of UTF-16 code units, so that U+1F600, a surrogate
// pair, comes before U+FB33.
TEST(CanonicalJson, SortsKeysByUtf16) {
  EXPECT_EQ(canonical_of(R"({
    "\u20ac": "Euro Sign",
    "\r": "Carriage Return",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One",
    "\ud83d\ude00": "Emoji: Grinning Face",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis"
  })"),
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
            "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro Sign\","
            "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
            "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

// RFC 8785, appendix B.
TEST(CanonicalJson, WritesNumbersAsEcmaScriptDoes) {
  struct Vector {
    std::uint64_t bits;
    const char* text;
  };
  constexpr Vector kVectors[] = {
      {0x0000000000000000, "0"},
      {0x8000000000000000, "0"},
      {0x0000000000000001, "5e-324"},
      {0x8000000000000001, "-5e-324"},
      {0x7fefffffffffffff, "1.7976931348623157e+308"},
      {0xffefffffffffffff, "-1.7976931348623157e+308"},
      {0x4340000000000000, "9007199254740992"},
      {0xc340000000000000, "-9007199254740992"},
      {0x4430000000000000, "295147905179352830000"},
      {0x44b52d02c7e14af5, "9.999999999999997e+22"},
      {0x44b52d02c7e14af6, "1e+23"},
      {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
      {0x444b1ae4d6e2ef4e, "999999999999999700000"},
      {0x444b1ae4d6e2ef4f, "999999999999999900000"},
      {0x444b1ae4d6e2ef50, "1e+21"},
      {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
      {0x3eb0c6f7a0b5ed8d, "0.000001"},
      {0x41b3de4355555553, "333333333.3333332"},
      {0x41b3de4355555554, "333333333.33333325"},
      {0x41b3de4355555555, "333333333.3333333"},
      {0x41b3de4355555556, "333333333.3333334"},
      {0x41b3de4355555557, "333333333.33333343"},
      {0xbecbf647612f3696, "-0.0000033333333333333333"},
      {0x43143ff3c1cb0959, "1424953923781206.2"},
  };
  for (const auto& [bits, text] : kVectors) {
    EXPECT_EQ(canonical(json(std::bit_cast<double>(bits))), text);
  }
  for (const std::uint64_t bits : {0x7fffffffffffffffU, 0x7ff0000000000000U}) {
    EXPECT_THROW(canonical(json(std::bit_cast<double>(bits))), Misfit);
  }
}

TEST(CanonicalJson, WritesIntegersAsDoubles) {
  EXPECT_EQ(canonical_of("[0, -0, -0.0, 10, -17, 1.0, 1e2, 100e-2]"), "[0,0,0,10,-17,1,100,1]");
  EXPECT_EQ(canonical_of("[9007199254740993, 18446744073709551615]"),
            "[9007199254740992,18446744073709552000]");
}

TEST(CanonicalJson, EscapesOnlyWhatMustBe) {
  EXPECT_EQ(canonical_of(R"("\b\f\u0000\u001f\u007f\u2028<")"),
            "\"\\b\\f\\u0000\\u001f\x7f\xe2\x80\xa8<\"");
  EXPECT_THROW(canonical(json("\xff")), Misfit);
  EXPECT_THROW(canonical(json{{"\xed\xa0\x80", 1}}), Misfit);  // a surrogate
}

TEST(CanonicalJson, WritesNestedAndEmptyValues) {
  EXPECT_EQ(canonical_of(R"( { "b" : [ { } , [ ] ] , "a" : { "d" : { } , "c" : "" } } )"),
            R"({"a":{"c":"","d":{}},"b":[{},[]]})");
}

}  // namespace
}  // namespace fo::json
