#include "json/scanner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "json/object.h"

namespace fo::test {
namespace {

using fo::json::change_members;
using fo::json::Edit;
using fo::json::MemberChange;
using fo::json::MemberCuts;
using fo::json::Misfit;
using fo::json::Scanner;
using namespace std::string_literals;

bool is_accepted(std::string_view text, Scanner::Halves halves = Scanner::Halves::kKept) {
  Scanner scanner(text, halves);
  try {
    scanner.skip();
    scanner.end();
    return true;
  } catch (const Misfit&) {
    return false;
  }
}

std::string decoded(const std::string& text) { return Scanner(text).text(); }

TEST(Scanner, AcceptsWhatIsJson) {
  for (const std::string& text :
       {"null"s, " true "s, "false"s, "0"s, "-0"s, "-12.50e+7"s, "1E-3"s, "\"\""s, "[]"s, "[ ]"s,
        "{ }"s, "{\"a\":1,\"a\":[2,{}]}"s, "\"\\ud83d\""s, "\"\\ude00\\u0000\\b\\/\""s,
        "\"\xf0\x9f\x98\x80\xe2\x82\xac\x7f\""s}) {
    EXPECT_TRUE(is_accepted(text)) << text;
  }
  for (const std::string& text : {""s,
                                  " "s,
                                  "nul"s,
                                  "nulll"s,
                                  "01"s,
                                  "1."s,
                                  ".5"s,
                                  "+1"s,
                                  "1e"s,
                                  "-"s,
                                  "0x1"s,
                                  "NaN"s,
                                  "\""s,
                                  "\"\n\""s,
                                  "\"\\x\""s,
                                  "\"\\u12g4\""s,
                                  "\"\\u123"s,
                                  "\"\\"s,
                                  "[1,]"s,
                                  "[,1]"s,
                                  "[1 2]"s,
                                  "[1"s,
                                  "{"s,
                                  "{a:1}"s,
                                  "{\"a\"}"s,
                                  "{\"a\":}"s,
                                  "{\"a\":1,}"s,
                                  "{\"a\":1]"s,
                                  "{} {}"s,
                                  "\"\xff\""s,
                                  "\"\xc0\x80\""s,
                                  "\"\xe2\x82\""s,
                                  "\"\xed\xa0\x80\""s,
                                  "\"\xf4\x90\x80\x80\""s,
                                  "\0"s,
                                  "{\"a\":1}\0"s}) {
    EXPECT_FALSE(is_accepted(text)) << text;
  }
}

TEST(Scanner, PassesOverShortNumbersAtOnce) {
  const auto read = [](const std::string& text) {
    Scanner scanner(text);
    std::vector<std::uint32_t> numbers{7};
    const bool is_read = scanner.short_numbers(numbers);
    if (is_read) {
      scanner.end();
    } else {
      EXPECT_EQ(scanner.position(), 0U) << text;
      numbers.clear();
    }
    return numbers;
  };
  EXPECT_EQ(read("[0]"), (std::vector<std::uint32_t>{7, 0}));
  EXPECT_EQ(read(" [1,22, 333,999999999]"),
            (std::vector<std::uint32_t>{7, 1, 22, 333, 999'999'999}));
  for (const char* text :
       {"[]",           "[1 ,2]",  "[1,  2]", "[1,2 ]",  "[01]", "[-1]", "[1.5]", "[1e3]",
        "[1234567890]", "[1,]",    "[,1]",    "[1,,2]",  "[1",   "[1,",  "[",     "1",
        "{}",           "[\"1\"]", "[[1]]",   "[1,null]"}) {
    EXPECT_TRUE(read(text).empty()) << text;
  }
  // Within as many lists as there may be.
  const std::string deep = std::string(fo::json::kMaxDepth, '[') + "[1]";
  Scanner scanner(deep);
  bool is_read = false;
  const std::function<void(int)> enter = [&](int depth) {
    scanner.list([&] {
      std::vector<std::uint32_t> numbers;
      if (depth < fo::json::kMaxDepth) return enter(depth + 1);
      is_read = scanner.short_numbers(numbers);
      throw Misfit("the end of the test");
    });
  };
  EXPECT_THROW(enter(1), Misfit);
  EXPECT_FALSE(is_read);
}

// Nesting beyond the limit is refused, and not a crash.
TEST(Scanner, LimitsNesting) {
  const std::string open(fo::json::kMaxDepth, '[');
  const std::string close(fo::json::kMaxDepth, ']');
  EXPECT_TRUE(is_accepted(open + close));
  EXPECT_FALSE(is_accepted("[" + open + close + "]"));
  EXPECT_FALSE(is_accepted(std::string(1 << 20, '[')));
}

// Of random changes of a valid text, it accepts those that the JSON library accepts.
TEST(Scanner, AgreesWithTheLibrary) {
  std::mt19937 random(7);
  const std::string valid =
      R"({"id":"x\u00e9","choices":[{"index":0,"text":" aé😀\n","logprobs":null,)"
      R"("finish_reason":null,"token_ids":[1,22,-3.5e2]}],"usage":{"a":true,"b":false}})";
  const std::string alphabet = "{}[]\",:\\ue+-.0159 \n\x01\x80\xc3ntf";
  int accepted = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text = valid;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int change = 0; change < changes; ++change) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1);
      }
    }
    // A lone surrogate is refused there.
    if (text.find("\\ud") != text.npos) continue;
    const bool expected = nlohmann::json::accept(text);
    accepted += expected ? 1 : 0;
    ASSERT_EQ(is_accepted(text), expected) << text;
  }
  EXPECT_GT(accepted, 1'000);
}

TEST(Scanner, ReadsNamesAndValues) {
  const std::string text = R"( { "a" : "x" , "b\n":[ 1 , 20],"c":{"a":-1},"d":1.5 } )";
  Scanner scanner(text);
  std::vector<std::string> names;
  std::vector<std::optional<std::uint64_t>> numbers;
  std::string value;
  scanner.object([&](std::string_view name) {
    names.emplace_back(name);
    if (name == "a") {
      EXPECT_EQ(scanner.kind(), Scanner::Kind::kText);
      EXPECT_EQ(text.substr(scanner.member_begin(), 3), "\"a\"");
      value = scanner.text();
    } else if (name == "b\n") {
      EXPECT_EQ(scanner.kind(), Scanner::Kind::kList);
      scanner.list([&] { numbers.push_back(scanner.number()); });
    } else if (name == "d") {
      numbers.push_back(scanner.number());
    } else {
      EXPECT_EQ(scanner.kind(), Scanner::Kind::kObject);
      EXPECT_EQ(scanner.skip(), R"({"a":-1})");
    }
  });
  scanner.end();
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b\n", "c", "d"}));
  EXPECT_EQ(value, "x");
  EXPECT_EQ(numbers, (std::vector<std::optional<std::uint64_t>>{1, 20, std::nullopt}));
  const std::string other = "[1]";
  Scanner list(other);
  EXPECT_THROW(list.object([](std::string_view) {}), Misfit);
}

TEST(Scanner, NumbersAreThoseOf64Bits) {
  const auto number_of = [](const std::string& text) { return Scanner(text).number(); };
  EXPECT_EQ(number_of("18446744073709551615"), 18446744073709551615ULL);
  for (const char* text : {"18446744073709551616", "-1", "1.0", "1e2"}) {
    EXPECT_EQ(number_of(text), std::nullopt) << text;
  }
}

TEST(Scanner, HalvesOfACharacterAreJoined) {
  EXPECT_EQ(decoded(R"("a\u00e9\u20ac\ud83d\ude00\"\\\/\b\f\n\r\t")"),
            "a\u00e9\u20ac\U0001F600\"\\/\b\f\n\r\t");
  const std::string high = decoded(R"("x\ud83d")");
  const std::string low = decoded(R"("\ude00y")");
  EXPECT_TRUE(fo::json::ends_with_half(high));
  EXPECT_FALSE(fo::json::ends_with_half(low));
  EXPECT_FALSE(fo::json::ends_with_half("\U0001F600"));
  std::string joined = high;
  fo::json::join_halves(joined, low);
  EXPECT_EQ(joined, "x\U0001F600y");
  EXPECT_EQ(fo::json::without_halves(high + low + high), "x\ufffd\ufffdyx\ufffd");
  // Halves that do not make a pair stay as they are.
  EXPECT_EQ(fo::json::quoted(high), R"("x\ud83d")");
  EXPECT_EQ(fo::json::quoted(low), R"("\ude00y")");
  std::string reversed = low;
  fo::json::join_halves(reversed, high);
  EXPECT_EQ(fo::json::quoted(reversed), R"("\ude00yx\ud83d")");
  EXPECT_EQ(fo::json::quoted(decoded(R"("\ud83d\ud83d\ude00")")), "\"\\ud83d\U0001F600\"");
}

TEST(Scanner, RefusesHalvesAsTheLibraryDoes) {
  const std::vector<std::string> parts{"\\ud83d", "\\ude00", "\\uD83D", "\\uDBFF",
                                       "\\uDFFF", "\\ud7ff", "\\ue000", "\\n",
                                       "\\u",     "z",       "\\ud8",   "\\\\"};
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "\"";
    for (auto count = random() % 5; count > 0; --count) text += parts[random() % parts.size()];
    text += "\"";
    const bool expected = nlohmann::json::accept(text);
    accepted += expected ? 1 : 0;
    ASSERT_EQ(is_accepted(text, Scanner::Halves::kRefused), expected) << text;
  }
  EXPECT_GT(accepted, 1'000);
}

TEST(Scanner, DescribesValues) {
  for (const auto& [text, expected] : {std::pair("{\"a\":1}", "an object"),
                                       {"[", "a list"},
                                       {" \"x\"", "text"},
                                       {"null", "null"},
                                       {"true", "a boolean"},
                                       {"false", "a boolean"},
                                       {"7", "a number"},
                                       {"-7", "a negative number"},
                                       {"7.0", "a number that is not a non-negative integer"}}) {
    EXPECT_STREQ(Scanner(text).describe(), expected) << text;
  }
  for (const char* text : {"", "x", "nul", "-", "\"x"}) {
    EXPECT_THROW(Scanner(text).describe(), Misfit) << text;
  }
}

TEST(ScanFile, RefusesWithTheNameAndTheReason) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      fo::json::scan_file(
          text, "f", [](Scanner& scanner) { scanner.skip(); }, "it is ");
    } catch (const base::Error& error) {
      EXPECT_EQ(error.status(), base::ExitStatus::kBadData) << text;
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("[1, \"\\ud83d\\ude00\"] "), "");
  EXPECT_EQ(refusal(""), "read 'f': it is not JSON at byte 1");
  EXPECT_EQ(refusal("[1] x"), "read 'f': it is not JSON at byte 5");
  EXPECT_EQ(refusal("nonsense"), "read 'f': it is not JSON at byte 2");
  EXPECT_EQ(refusal("\"\\ud83d\""), "read 'f': it is not JSON at byte 8");
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), "read 'f': it is nested too deeply");
}

TEST(Scanner, QuotesWhatItReads) {
  EXPECT_EQ(fo::json::quoted("a\"\\\n\x7f\u00e9"), "\"a\\\"\\\\\\u000a\x7f\u00e9\"");
  EXPECT_EQ(fo::json::quoted("\xff\xe2\x82"), "\"\ufffd\ufffd\ufffd\"");
  std::mt19937 random(3);
  for (int i = 0; i < 2'000; ++i) {
    std::string text = "\"";
    const int count = static_cast<int>(random() % 8);
    for (int k = 0; k < count; ++k) {
      constexpr std::string_view kHex = "0123456789abcdef";
      text += "\\u";
      text += random() % 2 == 0 ? "d8" : "dc";
      text += kHex[random() % 16];
      text += kHex[random() % 16];
      if (random() % 3 == 0) text += "z";
    }
    const std::string once = decoded(text + "\"");
    EXPECT_EQ(decoded(fo::json::quoted(once)), once) << text;
  }
}

TEST(Scanner, CutsMembersWithTheirCommas) {
  const std::string text = R"({"a":1, "b":[2] ,"c":{"x":3}})";
  for (unsigned kept = 0; kept < 8; ++kept) {
    Scanner scanner(text);
    MemberCuts cuts;
    unsigned bit = 1;
    scanner.object([&](std::string_view) {
      const std::size_t begin = scanner.member_begin();
      scanner.skip();
      cuts.add(begin, scanner.position(), (kept & bit) == 0);
      bit <<= 1;
    });
    std::vector<Edit> edits;
    cuts.finish(edits);
    const std::string cut = fo::json::edited(text, edits);
    nlohmann::json expected = nlohmann::json::parse(text);
    if ((kept & 1) == 0) expected.erase("a");
    if ((kept & 2) == 0) expected.erase("b");
    if ((kept & 4) == 0) expected.erase("c");
    EXPECT_EQ(nlohmann::json::parse(cut), expected) << cut;
  }
}

TEST(Scanner, EditsAPartOfAText) {
  const std::vector<Edit> edits{{1, 2, "X"}, {4, 4, "YZ"}, {6, 8}};
  EXPECT_EQ(fo::json::edited("abcdefgh", edits), "aXcdYZef");
  EXPECT_EQ(fo::json::edited("abcdefgh", edits, 2, 7), "cdYZefg");
}

TEST(ChangeMembers, KeepsTheRestByteForByte) {
  const std::vector<MemberChange> changes{{"stream", "true"}, {"stop", std::nullopt}, {"n", "1"}};
  EXPECT_EQ(change_members(R"({ "z":1.50,"stop":["x"],"a":1e400 })", changes),
            R"({ "z":1.50,"a":1e400 ,"stream":true,"n":1})");
  EXPECT_EQ(change_members("{}", changes), R"({"stream":true,"n":1})");
  // All members of a name go, also one that is written with escapes; nested ones stay.
  EXPECT_EQ(change_members(R"({"st\u006fp":1,"a":{"stop":2},"stop":3,"stream":false})", changes),
            R"({"a":{"stop":2},"stream":true,"n":1})");
  EXPECT_EQ(change_members(R"({"stop":1})", std::vector<MemberChange>{{"stop", std::nullopt}}),
            "{}");
  for (const char* text : {"[]", "{", "{} x", "1", ""}) {
    EXPECT_THROW(change_members(text, changes), Misfit) << text;
  }
}

}  // namespace
}  // namespace fo::test
