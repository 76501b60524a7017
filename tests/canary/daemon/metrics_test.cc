#include "canary/daemon/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <sstream>
#include <string>

#include "base/error.h"
#include "canary/watched.h"

namespace fo::canary {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr char kFirstWorker[] = "00000000000000000000000000000001";
constexpr char kSecondWorker[] = "00000000000000000000000000000002";

class CanaryMetrics : public testing::Test {
 protected:
  CanaryMetrics() {
    for (const char* const id : {kFirstWorker, kSecondWorker}) {
      workers_.apply(instance_change(id, "the \"best\" \\ model"), at_);
    }
  }
  Worker& worker(const char* id) { return *workers_.all().at(id); }

  const Now at_{.steady = seconds(100), .wall = text::WallTime(std::chrono::hours(24 * 365 * 50))};
  Workers workers_ = no_workers();
  DaemonCounts counts_;
};

TEST_F(CanaryMetrics, EachSeriesAppearsOnce) {
  std::istringstream lines(to_text(workers_, counts_));
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second || line.starts_with('#'))
        << line;
  }
  EXPECT_GT(seen.size(), 100U);
}

TEST_F(CanaryMetrics, ChecksAreCountedByKindAndOutcome) {
  workers_.note(worker(kFirstWorker), Step::kContent,
                {.outcome = Outcome::kMismatch, .took = milliseconds(20)}, at_);
  workers_.note(worker(kFirstWorker), Step::kConnect, {.took = milliseconds(1)}, at_);
  workers_.find(worker(kFirstWorker), Finding::kConviction, {.reason = "wrong tokens"}, at_);
  workers_.decided(Decision::kConviction);
  counts_.state_failures.add();
  counts_.registry_is_up = false;
  EXPECT_THAT(to_text(workers_, counts_), Not(HasSubstr("fo_canary_xids_total")));
  counts_.xids = {{XidClass::kFatal, 2}};
  const std::string text = to_text(workers_, counts_);
  const std::string labels = R"({worker_id="00000000000000000000000000000001",)";
  EXPECT_THAT(text, HasSubstr(R"(fo_canary_checks_total{check_type="content",outcome="mismatch"} 1)"
                              "\n"));
  EXPECT_THAT(text, HasSubstr(R"(fo_canary_checks_total{check_type="connect",outcome="pass"} 1)"
                              "\n"));
  EXPECT_THAT(text, HasSubstr(R"(fo_canary_checks_total{check_type="token",outcome="hung"} 0)"
                              "\n"));
  EXPECT_THAT(text, HasSubstr(R"(fo_canary_votes_total{decision="conviction"} 1)"));
  EXPECT_THAT(text, HasSubstr("fo_canary_state_failures_total 1\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_xids_total{class=\"fatal\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_xids_total{class=\"ignored\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_registry_up 0\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_workers 2\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_workers_without_canaries 0\n"));
  const std::string model = R"(model="the \"best\" \\ model")";
  EXPECT_THAT(text, HasSubstr("fo_canary_convictions_total" + labels + model + "} 1\n"));
  EXPECT_THAT(text, HasSubstr("fo_canary_worker_weight" + labels + model + "} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("fo_canary_worker_health" + labels + model + R"(,state="convicted"} 1)"));
  EXPECT_THAT(text, HasSubstr("dynamo_health_check_duration_seconds_count" + labels +
                              R"(check_type="content"} 1)"));
}

TEST_F(CanaryMetrics, AConvictionIsCountedOnce) {
  for (int i = 0; i < 3; ++i) {
    workers_.find(worker(kFirstWorker), Finding::kConviction, {.reason = "wrong tokens"}, at_);
  }
  EXPECT_EQ(worker(kFirstWorker).convictions.get(), 1U);
}

TEST_F(CanaryMetrics, TheLastTwentyChecksAreKeptAndOfTheCheapOnesThoseThatFail) {
  Worker& one = worker(kFirstWorker);
  workers_.note(one, Step::kConnect, {.took = milliseconds(1)}, at_);
  EXPECT_TRUE(one.checks.empty());
  for (std::size_t i = 0; i < kKeptChecks + 5; ++i) {
    workers_.note(one, i % 2 == 0 ? Step::kContent : Step::kConnect,
                  {.outcome = Outcome::kDown, .reason = std::to_string(i)}, at_);
  }
  EXPECT_EQ(one.checks.size(), kKeptChecks);
  EXPECT_EQ(one.checks.front().attempt.reason, "5");
}

TEST_F(CanaryMetrics, TheStateOfOneWorkerIsATableWithItsChecks) {
  workers_.note(worker(kFirstWorker), Step::kContent,
                {.outcome = Outcome::kDrift,
                 .canary = "rivers",
                 .reason = "bad \x1b[31m \xff",
                 .evidence = fleet::Evidence{.canary = "rivers", .expected = "1", .got = "2"}},
                at_);
  const std::string table = state_table(state_json(workers_, kFirstWorker), true);
  EXPECT_THAT(table, HasSubstr(kFirstWorker));
  EXPECT_THAT(table, HasSubstr("drift"));
  EXPECT_THAT(table, HasSubstr("rivers"));
  EXPECT_THAT(table, Not(HasSubstr(kSecondWorker)));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  const std::string all = state_table(state_json(workers_, ""), false);
  EXPECT_THAT(all, HasSubstr(kFirstWorker));
  EXPECT_THAT(all, HasSubstr(kSecondWorker));
  EXPECT_THAT(all, Not(HasSubstr("rivers")));
  EXPECT_EQ(state_json(workers_, "unknown"), "");
}

TEST(CanaryState, AnotherAnswerIsRefused) {
  for (const char* const text :
       {"", "{", "[]", "{}", R"({"workers":null})", R"({"workers":5})", R"({"workers":[{}]})"}) {
    try {
      state_table(text, true);
      ADD_FAILURE() << text;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.status(), base::ExitStatus::kProtocol) << text;
    }
  }
}

}  // namespace
}  // namespace fo::canary
