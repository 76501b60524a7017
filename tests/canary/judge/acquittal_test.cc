#include "canary/judge/acquittal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "fleet/registry/uri.h"
#include "loop/test_loop.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::canary {
namespace {

using fo::test::soon;

constexpr char kConvict[] = "00112233445566778899aabbccddeeff";
const text::WallTime kConvictedAt = *text::parse_time("2026-11-21T05:33:00.123Z");

fleet::Verdict a_conviction() {
  fleet::Verdict verdict;
  verdict.id = kConvict;
  verdict.health = fleet::HealthState::kConvicted;
  verdict.weight = 0;
  verdict.reason = "wrong tokens";
  verdict.since = kConvictedAt;
  return verdict;
}

TEST(Acquittal, NamesTheConvictionAndCountsForNobody) {
  const text::WallTime now = kConvictedAt + std::chrono::hours(1);
  const std::string text = acquitted(a_conviction(), now);
  EXPECT_EQ(acquits_since(text), kConvictedAt);
  const fleet::Verdict verdict =
      fleet::decode_verdict({.key = fleet::verdict_key(kConvict, "a"), .text = text});
  EXPECT_FALSE(verdict.is_conviction());
  EXPECT_FALSE(verdict.counts(now));
}

TEST(Acquittal, IsNoOtherVerdict) {
  EXPECT_EQ(acquits_since(fleet::encode(a_conviction())), std::nullopt);
  for (const char* const text : {"", "{", "[]", R"({"acquits":1})", R"({"acquits":"yesterday"})"}) {
    EXPECT_EQ(acquits_since(text), std::nullopt) << text;
  }
}

TEST(Acquittal, EndsTheConvictionsOfAllCanaries) {
  test::TempDir dir;
  test::TestLoop loop;
  const auto registry = fleet::make_registry("dir:" + dir.path("registry"));
  fleet::Verdict suspicion = a_conviction();
  suspicion.health = fleet::HealthState::kSuspicious;
  suspicion.expires = kConvictedAt;
  loop.run(
      registry->put({fleet::verdict_key(kConvict, "a"), fleet::encode(a_conviction())}, soon()));
  loop.run(
      registry->put({fleet::verdict_key(kConvict, "b"), fleet::encode(a_conviction())}, soon()));
  loop.run(registry->put({fleet::verdict_key(kConvict, "c"), fleet::encode(suspicion)}, soon()));
  EXPECT_EQ(loop.run(acquit(*registry, kConvict, soon())), 2U);
  EXPECT_EQ(loop.run(acquit(*registry, kConvict, soon())), 0U);
  const std::vector<fleet::Record> records = loop.run(registry->list("verdicts/", soon()));
  ASSERT_EQ(records.size(), 3U);
  for (const fleet::Record& record : records) {
    EXPECT_FALSE(fleet::decode_verdict(record).is_conviction()) << record.key;
  }
  EXPECT_EQ(acquits_since(records[2].text), std::nullopt);
}

}  // namespace
}  // namespace fo::canary
