#include "fleet/verdict.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fo::test::failure_of;
using fo::test::status_of;
using std::chrono::seconds;
using text::WallTime;

constexpr char kWorker[] = "00112233445566778899aabbccddeeff";
constexpr char kOther[] = "ffeeddccbbaa99887766554433221100";
const WallTime kNow = *text::parse_time("2026-11-21T05:33:00.123Z");

Verdict suspicion(double weight = 0.5) {
  return {.id = kWorker,
          .health = weight > 0 ? HealthState::kSuspicious : HealthState::kUnhealthy,
          .weight = weight,
          .reason = "drift",
          .since = kNow - seconds(10),
          .expires = kNow + seconds(90)};
}

Verdict healthy(const std::string& id = kWorker) {
  Verdict verdict = suspicion(1);
  verdict.id = id;
  verdict.health = HealthState::kHealthy;
  verdict.reason = "";
  return verdict;
}

Verdict conviction(const std::string& id = kWorker) {
  Verdict verdict = suspicion(0);
  verdict.id = id;
  verdict.health = HealthState::kConvicted;
  verdict.reason = "wrong tokens";
  verdict.evidence = Evidence{.canary = "prime", .position = 7, .expected = "312", .got = "87"};
  verdict.expires.reset();
  return verdict;
}

Record verdict_record(std::string text) { return {verdict_key(kWorker, "c1"), std::move(text)}; }

TEST(Verdict, IsReadAsItWasWritten) {
  for (const Verdict& before : {suspicion(), conviction(), healthy()}) {
    const Verdict after = decode_verdict(verdict_record(encode(before)));
    EXPECT_EQ(encode(after), encode(before));
    EXPECT_EQ(after.id, before.id);
    EXPECT_EQ(after.health, before.health);
    EXPECT_EQ(after.weight, before.weight);
    EXPECT_EQ(after.reason, before.reason);
    EXPECT_EQ(after.since, before.since);
    EXPECT_EQ(after.expires, before.expires);
    EXPECT_EQ(after.evidence.has_value(), before.evidence.has_value());
  }
  EXPECT_EQ(decode_verdict(verdict_record(encode(conviction()))).evidence->got, "87");
  const auto object = nlohmann::json::parse(encode(conviction()));
  EXPECT_EQ(object.at("version"), 1);
  EXPECT_TRUE(object.at("expires").is_null());
  EXPECT_EQ(object.at("since"), "2026-11-21T05:32:50.123Z");
}

TEST(Verdict, ItsKeyHasTheNameOfItsWriterAsOneSegment) {
  EXPECT_EQ(verdict_key(kWorker, "node-1/canary"),
            "verdicts/" + std::string(kWorker) + "/node-1%2Fcanary");
  EXPECT_EQ(status_of([] { verdict_key(kWorker, ""); }), ExitStatus::kUsage);
}

TEST(Verdict, IgnoresUnknownMembers) {
  auto object = nlohmann::json::parse(encode(suspicion()));
  object["future"] = {1};
  EXPECT_EQ(decode_verdict(verdict_record(object.dump())).weight, 0.5);
}

// The reason why a verdict with this change is no record.
std::string reason_of(const Verdict& verdict, const nlohmann::json& patch) {
  auto object = nlohmann::json::parse(encode(verdict));
  for (const auto& [name, value] : patch.items()) object[name] = value;
  const std::string message =
      failure_of([&] { decode_verdict(verdict_record(object.dump())); }).message;
  const std::string begin = "record 'verdicts/" + std::string(kWorker) + "/c1': ";
  EXPECT_TRUE(message.starts_with(begin)) << message;
  return message.substr(begin.size());
}

TEST(Verdict, OtherTextsAreNone) {
  const Verdict verdict = suspicion();
  EXPECT_EQ(reason_of(verdict, {{"id", kOther}}), "its id is '" + std::string(kOther) + "'");
  EXPECT_EQ(reason_of(verdict, {{"health", nullptr}}), "missing health");
  EXPECT_EQ(reason_of(verdict, {{"health", "ill"}}), "health 'ill': unknown");
  EXPECT_EQ(reason_of(verdict, {{"weight", nullptr}}), "missing weight");
  for (const nlohmann::json& weight :
       {nlohmann::json(-0.1), nlohmann::json(1.5), nlohmann::json("1")}) {
    EXPECT_EQ(reason_of(verdict, {{"weight", weight}}), "weight is not a number from 0 to 1");
  }
  EXPECT_EQ(reason_of(verdict, {{"reason", 1}}), "reason: expected a string");
  EXPECT_EQ(reason_of(verdict, {{"evidence", "none"}}), "evidence: expected an object");
  EXPECT_EQ(reason_of(verdict, {{"evidence", {{"position", 1}}}}), "missing canary");
  EXPECT_EQ(reason_of(verdict, {{"evidence", {{"canary", "a"}, {"position", -1}}}}),
            "position: expected a non-negative integer");
  EXPECT_EQ(reason_of(verdict, {{"since", nullptr}}), "missing since");
  EXPECT_EQ(reason_of(verdict, {{"since", "today"}}), "since is 'today'");
  EXPECT_EQ(reason_of(verdict, {{"expires", "2026-02-31T00:00:00.000Z"}}),
            "expires is '2026-02-31T00:00:00.000Z'");
  EXPECT_EQ(reason_of(verdict, {{"expires", nullptr}}), "only a conviction does not expire");
  const char* const forever = "a conviction has weight 0 and does not expire";
  EXPECT_EQ(reason_of(conviction(), {{"weight", 0.5}}), forever);
  EXPECT_EQ(reason_of(conviction(), {{"expires", "2026-11-21T05:33:00.123Z"}}), forever);
}

TEST(Verdict, ARecordThatIsCutOffIsNone) {
  const std::string text = encode(conviction());
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(status_of([&] { decode_verdict(verdict_record(text.substr(0, length))); }),
              ExitStatus::kBadData);
  }
  // A missing member is not the null of a conviction.
  auto object = nlohmann::json::parse(text);
  object.erase("expires");
  EXPECT_EQ(failure_of([&] { decode_verdict(verdict_record(object.dump())); }).message,
            "record '" + verdict_record("").key + "': missing expires");
  EXPECT_EQ(status_of([&] { decode_verdict({"weights/a", text}); }), ExitStatus::kBadData);
}

class VerdictsTest : public testing::Test {
 protected:
  void put(const std::string& writer, const Verdict& verdict) {
    verdicts_.put({verdict_key(verdict.id, writer), encode(verdict)});
  }
  [[nodiscard]] JointVerdict joint(base::Duration after = seconds(0)) const {
    return verdicts_.on(kWorker, kNow + std::chrono::duration_cast<WallTime::duration>(after));
  }

  Verdicts verdicts_;
};

TEST_F(VerdictsTest, WithoutAVerdictAWorkerIsUnknown) {
  EXPECT_EQ(joint().health, std::nullopt);
  EXPECT_EQ(joint().weight, 1);
  put("c1", healthy(kOther));
  EXPECT_EQ(joint().health, std::nullopt);
  put("c1", healthy());
  EXPECT_EQ(joint().health, HealthState::kHealthy);
  EXPECT_EQ(joint().weight, 1);
}

TEST_F(VerdictsTest, TheLowestWeightDecidesWhileItCounts) {
  put("c1", healthy());
  put("c2", suspicion());
  Verdict brief = suspicion(0);
  brief.reason = "hung";
  brief.expires = kNow + seconds(30);
  put("c3", brief);
  EXPECT_EQ(joint().health, HealthState::kUnhealthy);
  EXPECT_EQ(joint().weight, 0);
  EXPECT_EQ(joint().reason, "hung");
  EXPECT_FALSE(joint().is_conviction());
  EXPECT_EQ(joint(seconds(29)).weight, 0);
  EXPECT_EQ(joint(seconds(30)).health, HealthState::kSuspicious);
  EXPECT_EQ(joint(seconds(30)).weight, 0.5);
  EXPECT_EQ(joint(seconds(30)).reason, "drift");
  EXPECT_EQ(joint(seconds(90)).health, std::nullopt) << "all canaries have ended";
  EXPECT_EQ(joint(seconds(90)).weight, 1);
  verdicts_.remove(verdict_key(kWorker, "c3"));
  EXPECT_EQ(joint().weight, 0.5);
}

TEST_F(VerdictsTest, AConvictionNeedsHalfOfTheWriters) {
  put("c1", conviction());
  EXPECT_TRUE(joint().is_conviction());
  put("c2", healthy(kOther));
  EXPECT_TRUE(joint().is_conviction()) << "one of two";
  put("c3", healthy());
  EXPECT_EQ(joint().health, HealthState::kSuspicious) << "one of three";
  EXPECT_EQ(joint().weight, 0.5);
  EXPECT_EQ(joint().reason, "wrong tokens");
  put("c2", conviction());
  EXPECT_TRUE(joint().is_conviction());
  EXPECT_EQ(joint().weight, 0);
  put("c4", healthy());
  EXPECT_TRUE(joint().is_conviction()) << "two of four";
  put("c5", healthy());
  EXPECT_FALSE(joint().is_conviction());
}

TEST_F(VerdictsTest, AWorseVerdictThanADoubtedConvictionDecides) {
  put("c1", conviction());
  put("c2", healthy());
  put("c3", suspicion(0));
  EXPECT_EQ(joint().health, HealthState::kUnhealthy);
  EXPECT_EQ(joint().weight, 0);
}

TEST_F(VerdictsTest, NoOtherVerdictReplacesAConviction) {
  put("c1", suspicion(0));
  put("c2", conviction());
  EXPECT_TRUE(joint().is_conviction());
  EXPECT_EQ(joint().reason, "wrong tokens");
}

TEST_F(VerdictsTest, AConvictionStaysUntilItsRecordIsRemoved) {
  put("c1", conviction());
  put("c2", healthy());
  EXPECT_TRUE(joint(std::chrono::hours(24 * 365)).is_conviction());
  verdicts_.remove(verdict_key(kWorker, "c1"));
  EXPECT_EQ(joint().health, HealthState::kHealthy);
  // There is no such record.
  verdicts_.remove(verdict_key(kOther, "c1"));
}

TEST_F(VerdictsTest, ACanaryThatHasEndedIsNoWriterAnyMore) {
  put("c1", conviction());
  put("c2", healthy());
  put("c3", healthy());
  EXPECT_FALSE(joint().is_conviction());
  EXPECT_TRUE(joint(seconds(90)).is_conviction()) << "the others have expired";
  // So are canaries that have only left convictions of other workers, which may be gone.
  for (int number = 0; number < 10; ++number) {
    put("old" + std::to_string(number), conviction(kOther));
  }
  EXPECT_TRUE(joint(seconds(90)).is_conviction());
}

TEST_F(VerdictsTest, AnInvalidRecordLeavesTheWritersLastVerdict) {
  put("c1", conviction());
  EXPECT_EQ(status_of([&] {
              verdicts_.put({verdict_key(kWorker, "c1"), "{}"});
            }),
            ExitStatus::kBadData);
  EXPECT_TRUE(joint().is_conviction());
}

}  // namespace
}  // namespace fo::fleet
