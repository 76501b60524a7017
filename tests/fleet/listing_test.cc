#include "fleet/record/listing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "fleet/record/instance.h"
#include "fleet/registry/records.h"

namespace fo::fleet {
namespace {

using test::id_number;
using test::record_number;

TEST(Listing, HasARowForEachInstance) {
  EXPECT_EQ(
      to_text({record_number(1), record_number(2, Life::kSpare)}),
      "ID                                ENDPOINT               LIFE   URL                    "
      "MODEL  HOST\n" +
          id_number(1) + "  llama/worker/generate  ready  http://127.0.0.1:8001  llama\n" +
          id_number(2) + "  llama/worker/generate  spare  http://127.0.0.1:8001  llama\n");
  EXPECT_EQ(to_text({}), "");
}

TEST(Listing, PrintsOtherRecordsAsTheyAre) {
  EXPECT_EQ(to_text({{"weights/llama", R"({"a":1})"}}), "weights/llama  {\"a\":1}\n");
  // A worker's record that lacks its URL is shown, too.
  const std::string key = record_number(1).key;
  EXPECT_EQ(to_text({{key, "{}"}}), key + "  {}\n");
}

TEST(Listing, EscapesControlCharacters) {
  Instance instance;
  instance.id = id_number(1);
  instance.url = "http://127.0.0.1:1\x1b[2J";
  instance.host = "a\nb";
  const std::string text = to_text({{test::kEndpoint + instance.id, encode(instance)}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("  a\\x0ab\n"), std::string::npos) << text;
}

TEST(Listing, JsonHasEachRecordByItsKey) {
  const auto all = nlohmann::json::parse(to_json({record_number(1), {"cards/x", R"({"a":1})"}}));
  EXPECT_EQ(all.at("version"), 1);
  EXPECT_EQ(all.at("records").size(), 2U);
  EXPECT_EQ(all.at("records").at("cards/x").at("a"), 1);
  EXPECT_EQ(to_json(std::vector<Record>{}), R"({"records":{},"version":1})");
}

TEST(Listing, JsonOfAChangeNamesTheEvent) {
  using Kind = RegistryChange::Kind;
  const auto line = [](RegistryChange change) { return to_json(change); };
  EXPECT_EQ(line({Kind::kPut, {"cards/x", R"({"a":1})"}}),
            R"({"event":"put","key":"cards/x","record":{"a":1}})");
  EXPECT_EQ(line({Kind::kGone, {"cards/x", ""}}), R"({"event":"gone","key":"cards/x"})");
  EXPECT_EQ(line({Kind::kStale, {"cards/x", ""}}), R"({"event":"stale","key":"cards/x"})");
  EXPECT_EQ(line({Kind::kListed}), R"({"event":"listed"})");
}

}  // namespace
}  // namespace fo::fleet
