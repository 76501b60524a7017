#include "canary/judge/state_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/error.h"

namespace fo::canary {
namespace {

using fleet::HealthState;
using std::chrono::hours;

constexpr char kWorkerOfState[] = "0123456789abcdef0123456789abcdef";
const text::WallTime kStateTime = *text::parse_time("2026-11-21T05:33:00.123Z");

SavedWorkers one_saved() {
  SavedWorker worker{
      .health = {
          .state = HealthState::kUnhealthy,
          .failed_probations = 2,
          .cool_down_until = kStateTime + hours(1),
          .since = kStateTime,
          .cause = {.reason = "drift: \"\x01\"",
                    .evidence = fleet::Evidence{
                        .canary = "rivers", .position = 3, .expected = "-0.1", .got = "-0.4"}}}};
  worker.baselines = {.answer = {.average = 1.1, .count = 7},
                      .first_token = {.average = 0.03, .count = 9}};
  return {{kWorkerOfState, worker}};
}

// The reason for which this text is refused; empty if it is not.
std::string refusal_of(const std::string& text) {
  try {
    static_cast<void>(parse_state(text, "/s"));
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kBadData);
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with("read '/s': ")) << what;
    return what.substr(std::string("read '/s': ").size());
  }
  return {};
}

// The reason for which a state with one worker is refused that has `to` in place of `from`.
std::string refusal_with(const std::string& from, const std::string& to) {
  std::string text = encode(one_saved());
  const std::size_t at = text.find(from);
  if (at == text.npos) return "the state has no " + from;
  return refusal_of(text.replace(at, from.size(), to));
}

TEST(StateFile, IsReadAsItWasWritten) {
  const SavedWorkers read = parse_state(encode(one_saved()), "/s");
  ASSERT_EQ(read.size(), 1U);
  const auto& [id, worker] = *read.begin();
  EXPECT_EQ(id, kWorkerOfState);
  EXPECT_EQ(worker.health.state, HealthState::kUnhealthy);
  EXPECT_EQ(worker.health.failed_probations, 2U);
  EXPECT_EQ(worker.health.cool_down_until, kStateTime + hours(1));
  EXPECT_EQ(worker.health.since, kStateTime);
  EXPECT_EQ(worker.health.cause.reason, "drift: \"\x01\"");
  ASSERT_TRUE(worker.health.cause.evidence);
  EXPECT_EQ(worker.health.cause.evidence->position, 3U);
  EXPECT_EQ(worker.health.cause.evidence->expected, "-0.1");
  EXPECT_EQ(worker.baselines.answer.average, 1.1);
  EXPECT_EQ(worker.baselines.answer.count, 7U);
  EXPECT_EQ(worker.baselines.first_token.average, 0.03);
}

TEST(StateFile, KeepsWhatAWorkerOwesAndAnOlderFileHasNothingOwed) {
  SavedWorkers workers = one_saved();
  const SavedWorker older = parse_state(encode(workers), "/s").at(kWorkerOfState);
  EXPECT_FALSE(older.owes_answer);
  EXPECT_FALSE(older.owes_sampler);
  workers.at(kWorkerOfState).owes_answer = true;
  EXPECT_TRUE(parse_state(encode(workers), "/s").at(kWorkerOfState).owes_answer);
  EXPECT_FALSE(parse_state(encode(workers), "/s").at(kWorkerOfState).owes_sampler);
  workers.at(kWorkerOfState).owes_sampler = true;
  EXPECT_TRUE(parse_state(encode(workers), "/s").at(kWorkerOfState).owes_sampler);
  EXPECT_EQ(refusal_with("\"reason\"", "\"owes_answer\":1,\"reason\""),
            "worker '" + std::string(kWorkerOfState) + "': owes_answer: expected true or false");
}

TEST(StateFile, AHealthyWorkerHasNoCoolDownAndNoEvidence) {
  const SavedWorkers read = parse_state(encode(SavedWorkers{{kWorkerOfState, {}}}), "/s");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_FALSE(read.begin()->second.health.cool_down_until);
  EXPECT_FALSE(read.begin()->second.health.cause.evidence);
  // Not known since when.
  EXPECT_EQ(read.begin()->second.health.since, text::WallTime());
  EXPECT_TRUE(parse_state(encode(SavedWorkers{}), "/s").empty());
}

// Workers of other programs choose their ids.
TEST(StateFile, AnyIdOfARecordIsTheIdOfAWorker) {
  for (const char* const id :
       {"worker-1", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "10.0.0.1:8000"}) {
    const SavedWorkers read = parse_state(encode(SavedWorkers{{id, {}}}), "/s");
    EXPECT_TRUE(read.contains(id)) << id;
  }
}

TEST(StateFile, EachTruncationIsRefused) {
  const std::string whole = encode(one_saved());
  ASSERT_EQ(refusal_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(refusal_of(whole.substr(0, size)), "not JSON") << size;
  }
}

TEST(StateFile, AnotherVersionIsRefused) {
  for (const char* const version : {"0", "2", "-1", "\"1\"", "null", "true", "[1]"}) {
    EXPECT_EQ(refusal_with("\"version\":1", "\"version\":" + std::string(version)),
              "not the state of a canary")
        << version;
  }
}

TEST(StateFile, AnotherFileIsRefused) {
  for (const char* const text : {"{}", R"({"version":1})", R"({"version":1,"workers":[]})",
                                 R"({"version":1,"workers":null})"}) {
    EXPECT_EQ(refusal_of(text), "not the state of a canary") << text;
  }
  EXPECT_EQ(refusal_of("[]"), "expected an object");
  EXPECT_EQ(refusal_of(std::string(100'000, '[')), "nested too deep");
  EXPECT_EQ(refusal_of(R"({"version":1,"workers":{"../x":{}}})"),
            "'../x' is not the id of a worker");
}

TEST(StateFile, ARefusalNamesTheWorkerAndTheMember) {
  const std::string worker = "worker '" + std::string(kWorkerOfState) + "': ";
  EXPECT_EQ(refusal_of(R"({"version":1,"workers":{")" + std::string(kWorkerOfState) + R"(":5}})"),
            worker + "expected an object");
  EXPECT_EQ(refusal_with("\"unhealthy\"", "\"well\""), worker + "health: unknown");
  EXPECT_EQ(refusal_with("\"unhealthy\"", "{}"), worker + "health: expected a string");
  EXPECT_EQ(refusal_with("05:33:00.123Z\"", "05:33:61.123Z\""),
            worker + "since is '2026-11-21T05:33:61.123Z'");
  EXPECT_EQ(refusal_with("06:33:00.123Z\"", "06:33:61.123Z\""),
            worker + "cool_down_until is '2026-11-21T06:33:61.123Z'");
  EXPECT_EQ(refusal_with("\"failed_probations\":2", "\"failed_probations\":null"),
            worker + "missing failed_probations");
  for (const char* const number : {"-1", "1.5", "\"2\"", "1e30"}) {
    EXPECT_EQ(
        refusal_with("\"failed_probations\":2", "\"failed_probations\":" + std::string(number)),
        worker + "failed_probations: expected a non-negative integer")
        << number;
    EXPECT_EQ(refusal_with("\"position\":3", "\"position\":" + std::string(number)),
              worker + "position: expected a non-negative integer")
        << number;
  }
  EXPECT_EQ(refusal_with("\"failed_probations\":2", "\"failed_probations\":18446744073709551615"),
            "");
}

TEST(StateFile, ABaselineIsATimeAndACount) {
  const std::string reason =
      "worker '" + std::string(kWorkerOfState) + "': answer is not a baseline";
  for (const char* const average : {"-0.5", "null", "\"1.1\"", "[]"}) {
    EXPECT_EQ(refusal_with("\"average\":1.1", "\"average\":" + std::string(average)), reason)
        << average;
  }
  for (const char* const average : {"NaN", "1e999"}) {
    EXPECT_EQ(refusal_with("\"average\":1.1", "\"average\":" + std::string(average)), "not JSON");
  }
  EXPECT_EQ(refusal_with("\"count\":7", "\"count\":-7"), reason);
  EXPECT_EQ(refusal_with("\"count\":7", "\"count\":7.5"), reason);
}

TEST(StateFile, KeepsSinceWhenAWorkerIsGone) {
  SavedWorkers workers = one_saved();
  workers.at(kWorkerOfState).gone_since = kStateTime + hours(2);
  EXPECT_EQ(parse_state(encode(workers), "/s").at(kWorkerOfState).gone_since,
            kStateTime + hours(2));
  EXPECT_FALSE(parse_state(encode(one_saved()), "/s").at(kWorkerOfState).gone_since);
}

TEST(StateFile, AWorkerThatIsGoneIsForgottenAfterAWeek) {
  SavedWorkers workers{{"old", {}}, {"new", {}}, {"later", {}}, {"unknown", {}}};
  workers["old"].gone_since = kStateTime - kKeptFor - hours(1);
  workers["new"].gone_since = kStateTime - kKeptFor;
  workers["later"].gone_since = kStateTime + hours(1000);
  forget_gone(workers, kStateTime);
  EXPECT_FALSE(workers.contains("old"));
  EXPECT_EQ(workers.size(), 3U);
  EXPECT_EQ(workers.at("later").gone_since, kStateTime);
  EXPECT_EQ(workers.at("unknown").gone_since, kStateTime);
}

TEST(StateFile, AConvictedWorkerIsNotForgottenAfterAWeek) {
  SavedWorkers workers{{"guilty", {}}};
  workers["guilty"].health.state = HealthState::kConvicted;
  workers["guilty"].gone_since = kStateTime - 10 * kKeptFor;
  forget_gone(workers, kStateTime);
  EXPECT_TRUE(workers.contains("guilty"));
}

TEST(StateFile, BeyondTheLimitTheLongestGoneAreForgottenAndConvictionsLast) {
  SavedWorkers workers;
  for (std::size_t i = 0; i < kMaxGone; ++i) {
    workers[std::to_string(i)].gone_since = kStateTime - hours(1);
  }
  workers["first"].gone_since = kStateTime - hours(3);
  workers["second"].gone_since = kStateTime - hours(2);
  workers["guilty"].gone_since = kStateTime - hours(4);
  workers["guilty"].health.state = HealthState::kConvicted;
  forget_gone(workers, kStateTime);
  EXPECT_EQ(workers.size(), kMaxGone);
  EXPECT_FALSE(workers.contains("first"));
  EXPECT_FALSE(workers.contains("second"));
  EXPECT_TRUE(workers.contains("guilty"));
}

}  // namespace
}  // namespace fo::canary
