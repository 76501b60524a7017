#include "fleet/card/card_comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::fleet {
namespace {

Card llama() {
  Card card;
  card.name = "llama";
  card.dtype = "bfloat16";
  card.revision = "abc";
  card.kv_abi = "nixl";
  return card;
}

TEST(CardComparison, OfEqualCardsAllowsAll) {
  const CardComparison same = compare(llama(), llama());
  EXPECT_TRUE(same.may_all());
  EXPECT_EQ(to_text(same),
            "may share traffic: they have a name in common\n"
            "may migrate: the checksums are equal\n"
            "may pair: the KV caches match\n");
  Card other = llama();
  other.revision = "def";
  EXPECT_TRUE(compare(llama(), other).may_all());
  EXPECT_EQ(compare(llama(), other).differences.size(), 1);
}

TEST(CardComparison, RefusesToMigrateBetweenChecksums) {
  Card other = llama();
  other.dtype = "float16";
  other.context_length = 4096;
  const CardComparison result = compare(llama(), other);
  EXPECT_TRUE(result.may_share_traffic);
  EXPECT_FALSE(result.may_migrate);
  EXPECT_FALSE(result.may_pair);
  EXPECT_EQ(to_text(result),
            "dtype: \"bfloat16\" and \"float16\"\n"
            "context_length: none and 4096\n"
            "may share traffic: they have a name in common\n"
            "may not migrate: the checksums differ by dtype, context_length\n"
            "may not pair: the checksums differ by dtype, context_length\n");
}

TEST(CardComparison, RefusesToPairDifferentKvCaches) {
  Card other = llama();
  other.kv_abi = "lmcache";
  const CardComparison result = compare(llama(), other);
  EXPECT_TRUE(result.may_share_traffic);
  EXPECT_TRUE(result.may_migrate);
  EXPECT_FALSE(result.may_pair);
  EXPECT_EQ(to_text(result),
            "kv_abi: \"nixl\" and \"lmcache\"\n"
            "may share traffic: they have a name in common\n"
            "may migrate: the checksums are equal\n"
            "may not pair: kv_abi differs\n");
}

TEST(CardComparison, SharesTrafficByNameOrAlias) {
  Card other = llama();
  other.name = "llama-2026";
  EXPECT_FALSE(compare(llama(), other).may_share_traffic);
  EXPECT_TRUE(compare(llama(), other).may_migrate);
  other.aliases = {"chat", "llama"};
  EXPECT_TRUE(compare(llama(), other).may_share_traffic);
  // Cards without a name have none in common.
  EXPECT_FALSE(compare(Card{}, Card{}).may_share_traffic);
}

TEST(CardComparison, IsOneObjectInJson) {
  Card other = llama();
  other.dtype = "";
  other.aliases = {"chat"};
  const auto object = nlohmann::json::parse(to_json(compare(llama(), other)));
  EXPECT_EQ(object, nlohmann::json::parse(R"({
    "differences": [
      {"field": "aliases", "in_checksum": false, "a": null, "b": ["chat"]},
      {"field": "dtype", "in_checksum": true, "a": "bfloat16", "b": null}],
    "may_share_traffic": true, "may_migrate": false, "may_pair": false})"));
}

}  // namespace
}  // namespace fo::fleet
