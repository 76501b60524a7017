#include "engine/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "support/promtool.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using enum EngineState;
using testing::Contains;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  for (;;) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_EQ(at, text.size()) << "the last line has no end";
  return lines;
}

std::vector<std::string> lines_with(const Metrics& metrics, std::string_view start) {
  std::vector<std::string> lines = lines_of(metrics.text());
  std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(start); });
  return lines;
}

Metrics two_devices() {
  return Metrics("engine-0",
                 {{base::DeviceOrdinal(0), "weights"},
                  {base::DeviceOrdinal(0), "kv_cache"},
                  {base::DeviceOrdinal(1), "weights"}},
                 1763750000.5);
}

TEST(Metrics, EverySeriesIsThereFromTheStart) {
  const Metrics metrics = two_devices();
  EXPECT_THAT(lines_with(metrics, "fo_engine_"),
              UnorderedElementsAre(R"(fo_engine_state{engine_id="engine-0",state="init"} 1)",
                                   R"(fo_engine_state{engine_id="engine-0",state="standby"} 0)",
                                   R"(fo_engine_state{engine_id="engine-0",state="waking"} 0)",
                                   R"(fo_engine_state{engine_id="engine-0",state="active"} 0)",
                                   R"(fo_engine_state{engine_id="engine-0",state="dead"} 0)",
                                   "fo_engine_state_entered_timestamp_seconds 1763750000.5",
                                   R"(fo_engine_transitions_total{from="init",to="standby"} 0)",
                                   R"(fo_engine_transitions_total{from="init",to="active"} 0)",
                                   R"(fo_engine_transitions_total{from="init",to="dead"} 0)",
                                   R"(fo_engine_transitions_total{from="standby",to="waking"} 0)",
                                   R"(fo_engine_transitions_total{from="standby",to="dead"} 0)",
                                   R"(fo_engine_transitions_total{from="waking",to="active"} 0)",
                                   R"(fo_engine_transitions_total{from="waking",to="dead"} 0)",
                                   R"(fo_engine_transitions_total{from="active",to="standby"} 0)",
                                   R"(fo_engine_transitions_total{from="active",to="dead"} 0)"));
  EXPECT_THAT(lines_with(metrics, "fo_lock_"),
              UnorderedElementsAre("fo_lock_wait_seconds 0", "fo_lock_generation 0"));
  EXPECT_THAT(lines_with(metrics, "fo_gms_"),
              UnorderedElementsAre(R"(fo_gms_connection_up{device="0",tag="weights"} 0)",
                                   R"(fo_gms_connection_up{device="0",tag="kv_cache"} 0)",
                                   R"(fo_gms_connection_up{device="1",tag="weights"} 0)"));
  for (const char* phase : {"lock", "gate", "remap", "wake", "register", "first_token"}) {
    const std::string label = "{phase=\"" + std::string(phase) + "\"";
    const auto buckets = lines_with(metrics, "fo_failover_duration_seconds_bucket" + label);
    EXPECT_EQ(buckets.size(), 17U);
    EXPECT_EQ(buckets.front(), "fo_failover_duration_seconds_bucket" + label + ",le=\"0.001\"} 0");
    EXPECT_EQ(buckets.back(), "fo_failover_duration_seconds_bucket" + label + ",le=\"+Inf\"} 0");
    EXPECT_THAT(lines_with(metrics, "fo_failover_duration_seconds"),
                IsSupersetOf({"fo_failover_duration_seconds_sum" + label + "} 0",
                              "fo_failover_duration_seconds_count" + label + "} 0"}));
  }
}

TEST(Metrics, EveryFamilyHasItsHelpAndType) {
  const Metrics metrics = two_devices();
  EXPECT_THAT(
      lines_with(metrics, "# TYPE "),
      UnorderedElementsAre(
          "# TYPE fo_engine_state gauge", "# TYPE fo_engine_state_entered_timestamp_seconds gauge",
          "# TYPE fo_engine_transitions_total counter",
          "# TYPE fo_failover_duration_seconds histogram", "# TYPE fo_lock_wait_seconds gauge",
          "# TYPE fo_lock_generation gauge", "# TYPE fo_gms_connection_up gauge"));
  EXPECT_EQ(lines_with(metrics, "# HELP ").size(), 7U);
}

TEST(Metrics, AStateIsEnteredOnceAndCounted) {
  Metrics metrics = two_devices();
  metrics.enter(kInit, kStandby, 1763750001);
  metrics.enter(kStandby, kWaking, 1763750002);
  metrics.enter(kWaking, kActive, 1763750003);
  metrics.enter(kActive, kStandby, 1763750004);
  metrics.enter(kStandby, kWaking, 1763750005.125);
  EXPECT_THAT(lines_with(metrics, "fo_engine_"),
              IsSupersetOf({R"(fo_engine_state{engine_id="engine-0",state="init"} 0)",
                            R"(fo_engine_state{engine_id="engine-0",state="waking"} 1)",
                            "fo_engine_state_entered_timestamp_seconds 1763750005.125",
                            R"(fo_engine_transitions_total{from="init",to="standby"} 1)",
                            R"(fo_engine_transitions_total{from="standby",to="waking"} 2)",
                            R"(fo_engine_transitions_total{from="active",to="dead"} 0)"}));
}

TEST(Metrics, BucketsHoldWhatIsNotAboveThem) {
  Metrics metrics = two_devices();
  for (const base::Duration took : {base::Duration(0), base::Duration(1ms), base::Duration(1001us),
                                    base::Duration(120s), base::Duration(121s)}) {
    metrics.observe(Phase::kWake, took);
  }
  const auto bucket = [](const char* bound, int count) {
    return "fo_failover_duration_seconds_bucket{phase=\"wake\",le=\"" + std::string(bound) +
           "\"} " + std::to_string(count);
  };
  const auto lines = lines_with(metrics, "fo_failover_duration_seconds");
  EXPECT_THAT(lines, IsSupersetOf({bucket("0.001", 2), bucket("0.0025", 3), bucket("60", 3),
                                   bucket("120", 4), bucket("+Inf", 5)}));
  EXPECT_THAT(lines, Contains(R"(fo_failover_duration_seconds_count{phase="wake"} 5)"));
  EXPECT_THAT(lines, Contains(R"(fo_failover_duration_seconds_sum{phase="wake"} 241.002001)"));
  EXPECT_THAT(lines, Contains(R"(fo_failover_duration_seconds_count{phase="lock"} 0)"));
}

TEST(Metrics, TheRestIsTheLatestValue) {
  Metrics metrics = two_devices();
  metrics.set_lock_wait(20s);
  metrics.set_lock_wait(1500ms);
  metrics.set_generation(18446744073709551615U);
  metrics.set_gms_up(base::DeviceOrdinal(1), "weights", true);
  EXPECT_THAT(lines_with(metrics, "fo_"),
              IsSupersetOf({"fo_lock_wait_seconds 1.5", "fo_lock_generation 18446744073709551615",
                            R"(fo_gms_connection_up{device="1",tag="weights"} 1)",
                            R"(fo_gms_connection_up{device="0",tag="weights"} 0)"}));
}

TEST(Metrics, LabelsAreEscaped) {
  const Metrics metrics("a\"b\\c\nd", {{base::DeviceOrdinal(0), "t\"\n"}}, 0);
  EXPECT_THAT(lines_with(metrics, "fo_"),
              IsSupersetOf({R"(fo_engine_state{engine_id="a\"b\\c\nd",state="init"} 1)",
                            R"(fo_gms_connection_up{device="0",tag="t\"\n"} 0)"}));
}

class LintedMetrics : public test::Promtool {};

TEST_F(LintedMetrics, PromtoolHasNothingToComplainAbout) {
  Metrics metrics("a\"b\\c\nd",
                  {{base::DeviceOrdinal(0), "weights"}, {base::DeviceOrdinal(1), "t\"\n"}},
                  1763750000.5);
  EXPECT_EQ(complaints(metrics.text()), "");
  metrics.enter(kInit, kStandby, 1763750001);
  metrics.observe(Phase::kFirstToken, 1234567us);
  metrics.set_generation(7);
  EXPECT_EQ(complaints(metrics.text()), "");
  EXPECT_EQ(complaints(Metrics("engine-0", {}, 0).text()), "");
  EXPECT_NE(complaints("# TYPE fo_x counter\nfo_x 1\n"), "");
}

}  // namespace
}  // namespace fo::engine
