#include "fleet/card/card.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "fleet/card/digest.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

std::string digest(char digit) { return std::string(kDigestPrefix) + std::string(64, digit); }

Card full_card() {
  return {.name = "llama",
          .aliases = {"chat"},
          .architecture = "LlamaForCausalLM",
          .dtype = "bfloat16",
          .quantization = "fp8",
          .context_length = 8192,
          .config = digest('0'),
          .weights = digest('1'),
          .revision = "abc",
          .tokenizer = digest('2'),
          .chat_template = digest('3'),
          .generation_config = digest('4'),
          .parsers = {{"reasoning", "qwen3"}, {"tools", "hermes"}},
          .special_ids = {{"bos", 1}, {"eos", 2}},
          .draft = "tiny",
          .adapters = {{"sql", digest('5')}},
          .kv_abi = "nixl/fp8/16/NHD",
          .end_of_thinking = {151668},
          .stop_ids = {2, 3},
          .generation_defaults = {{"temperature", 0.6}, {"top_k", 20}}};
}

struct Change {
  const char* field;
  bool in_checksum;
  std::function<void(Card&)> apply;
};

// The table of model cards: each field, and whether it is in the checksum.
const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges{
      {"name", false, [](Card& card) { card.name = "other"; }},
      {"aliases", false, [](Card& card) { card.aliases.emplace_back("other"); }},
      {"architecture", true, [](Card& card) { card.architecture = "Other"; }},
      {"dtype", true, [](Card& card) { card.dtype = "float16"; }},
      {"quantization", true, [](Card& card) { card.quantization = ""; }},
      {"context_length", true, [](Card& card) { card.context_length = 4096; }},
      {"config", true, [](Card& card) { card.config = digest('f'); }},
      {"weights", true, [](Card& card) { card.weights = digest('f'); }},
      {"revision", false, [](Card& card) { card.revision = "def"; }},
      {"tokenizer", true, [](Card& card) { card.tokenizer = digest('f'); }},
      {"chat_template", true, [](Card& card) { card.chat_template = ""; }},
      {"generation_config", true, [](Card& card) { card.generation_config = digest('f'); }},
      {"parsers", true, [](Card& card) { card.parsers["tools"] = "pythonic"; }},
      {"special_ids", false, [](Card& card) { card.special_ids["pad"] = 0; }},
      {"draft", false, [](Card& card) { card.draft = ""; }},
      {"adapters", true, [](Card& card) { card.adapters["sql"] = digest('f'); }},
      {"kv_abi", false, [](Card& card) { card.kv_abi = "nixl/bf16/16/NHD"; }},
      {"end_of_thinking", false, [](Card& card) { card.end_of_thinking = {1}; }},
      {"stop_ids", false, [](Card& card) { card.stop_ids = {}; }},
      {"generation_defaults", false, [](Card& card) { card.generation_defaults["top_p"] = 0.9; }},
  };
  return kChanges;
}

TEST(Card, ChecksumHasTheFieldsOfTheTable) {
  const std::string sum = checksum(full_card());
  EXPECT_TRUE(is_digest(sum));
  std::set<std::string> sums{sum};
  std::set<std::string_view> names;
  for (const auto& [field, in_checksum, apply] : changes()) {
    Card card = full_card();
    apply(card);
    EXPECT_NE(card, full_card()) << field;
    EXPECT_EQ(checksum(card) != sum, in_checksum) << field;
    EXPECT_EQ(sums.insert(checksum(card)).second, in_checksum) << field;
    names.insert(field);
  }
  for (const CardField& field : fields_of(Card{})) EXPECT_TRUE(names.contains(field.name));
}

TEST(Card, ChecksumKeepsFieldsApart) {
  const auto sum_of = [](const std::string& architecture, const std::string& dtype) {
    Card card;
    card.architecture = architecture;
    card.dtype = dtype;
    return checksum(card);
  };
  const std::set<std::string> sums{sum_of("", ""),      sum_of("ab", "c"),
                                   sum_of("a", "bc"),   sum_of("abc", ""),
                                   sum_of("", "abc"),   sum_of("a\"", "bc"),
                                   sum_of("a", "\"bc"), sum_of("a\",\"dtype\":\"bc", "")};
  EXPECT_EQ(sums.size(), 8);
}

// The checksum is a key in registries: another version of this program must compute the same.
TEST(Card, ChecksumIsStable) {
  Card card;
  EXPECT_EQ(checksum(card),
            "sha256:739145a152677d670ecf888c4a5399a11ea549f274f481007444d1f8ebac3140");
  card.architecture = "LlamaForCausalLM";
  card.context_length = 8192;
  card.parsers["tools"] = "hermes";
  EXPECT_EQ(checksum(card),
            "sha256:6ea6d6653d9a767c6f2f4a8f7b0d347a41acac5678ac33ac5457a6eb0ba6f528");
}

TEST(Card, IsReadAsItWasWritten) {
  for (const Card& card : {full_card(), Card{}}) {
    EXPECT_EQ(parse_card(to_json(card).dump(), "f"), card);
  }
  const auto object = to_json(full_card());
  EXPECT_EQ(object["version"], 1);
  EXPECT_EQ(object["checksum"], checksum(full_card()));
  EXPECT_EQ(to_json(Card{}).size(), 2);
}

TEST(Card, IgnoresUnknownFieldsAndNulls) {
  auto object = to_json(full_card());
  object["color"] = "red";
  EXPECT_EQ(parse_card(object.dump(), "f"), full_card());
  EXPECT_EQ(parse_card(R"({"version": 1, "dtype": null})", "f"), Card{});
}

TEST(Card, RefusesWhatIsNoCard) {
  const auto reason = [](const std::string& text) {
    const test::Failure failure = test::failure_of([&] { parse_card(text, "f"); });
    EXPECT_EQ(failure.status, base::ExitStatus::kBadData);
    return failure.message;
  };
  EXPECT_EQ(reason(""), "read 'f': not JSON");
  EXPECT_EQ(reason("[]"), "read 'f': expected an object");
  EXPECT_EQ(reason(std::string(70'000, ' ')), "read 'f': too long");
  EXPECT_EQ(reason("{}"), "read 'f': field 'version': missing");
  EXPECT_EQ(reason(R"({"version": 2})"), "read 'f': field 'version': expected 1");
  const auto of = [&](const char* member) {
    return reason(std::string(R"({"version": 1, )") + member + "}");
  };
  EXPECT_EQ(of(R"("dtype": 1)"), "read 'f': field 'dtype': expected a string");
  EXPECT_EQ(of(R"("context_length": -1)"),
            "read 'f': field 'context_length': expected a non-negative integer");
  EXPECT_EQ(of(R"("context_length": 1.5)"),
            "read 'f': field 'context_length': expected a non-negative integer");
  EXPECT_EQ(of(R"("aliases": "a")"), "read 'f': field 'aliases': expected a list");
  EXPECT_EQ(of(R"("stop_ids": ["a"])"),
            "read 'f': field 'stop_ids': expected a non-negative integer");
  EXPECT_EQ(of(R"("parsers": [])"), "read 'f': field 'parsers': expected an object");
  EXPECT_EQ(of(R"("generation_defaults": {"top_p": "1"})"),
            "read 'f': field 'generation_defaults': expected a number");
  for (const char* field :
       {"config", "weights", "tokenizer", "chat_template", "generation_config"}) {
    EXPECT_EQ(of(("\"" + std::string(field) + "\": \"sha256:0\"").c_str()),
              "read 'f': field '" + std::string(field) + "': 'sha256:0' is not a digest");
  }
  EXPECT_EQ(of(R"("adapters": {"a": "b"})"), "read 'f': field 'adapters': 'b' is not a digest");
  EXPECT_EQ(of(R"("checksum": "sha256:0")"),
            "read 'f': field 'checksum': not that of the card, " + checksum(Card{}));
}

TEST(Card, EveryTruncatedTextIsRefused) {
  const std::string text = to_json(full_card()).dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(test::status_of([&] { parse_card(text.substr(0, size), "f"); }),
              base::ExitStatus::kBadData);
  }
}

}  // namespace
}  // namespace fo::fleet
