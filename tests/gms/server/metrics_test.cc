#include "gms/server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "support/promtool.h"

namespace fo::gms {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr const char* kLabels = R"({device="0",uuid="GPU-1",tag="weights")";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class MetricsText : public test::Promtool {
 protected:
  // Text alone needs no linter.
  void SetUp() override {}
  [[nodiscard]] std::string text() const { return metrics_text({server()}); }
  [[nodiscard]] MeteredServer server() const {
    return {base::DeviceOrdinal(0), base::GpuUuid("GPU-1"), "weights", &*page_};
  }

  CounterPage page_ = create_counter_page();
};

class LintedMetrics : public MetricsText {
 protected:
  void SetUp() override { Promtool::SetUp(); }
};

TEST_F(MetricsText, EverySeriesIsThereFromTheStart) {
  const std::string fresh = text();
  page_->up.set(1);
  page_->granted(Grant::kRo, 3s);
  page_->observe_request(1ms, RequestResult::kRefused);
  page_->dropped(DropReason::kSlowReader);
  const auto names = [](const std::string& of) {
    std::set<std::string> series;
    for (const std::string& line : lines_of(of)) series.insert(line.substr(0, line.rfind(' ')));
    return series;
  };
  EXPECT_EQ(names(fresh), names(text()));
  EXPECT_THAT(fresh, HasSubstr("gms_up" + std::string(kLabels) + "} 0\n"));
}

TEST_F(MetricsText, NumbersStandUnderTheirNames) {
  ServerCounters& counters = *page_;
  counters.up.set(1);
  counters.sessions[Grant::kRwData].set(1);
  counters.waiting[LockType::kRwOrRo].set(2);
  counters.connections.set(3);
  counters.allocations.set(4);
  counters.allocated_bytes.set(std::uint64_t{5} << 40);
  counters.committed.set(1);
  counters.is_protected.set(1);
  counters.lock_timeouts[LockType::kRo].add(6);
  counters.oom_retries.add(7);
  counters.oom_refusals.add(8);
  counters.exports.add(9);
  counters.commits.add(10);
  counters.seals.add(11);
  counters.layouts_dropped.add(12);
  counters.restarts.add(13);
  counters.unexpected_fds.add(14);
  counters.dropped_connections[DropReason::kFrameTooBig].add(15);
  counters.dropped_connections[DropReason::kTooManyConnections].add(16);
  counters.grants[Grant::kRo].add(17);
  const std::string page = text();
  const std::string labels = kLabels;
  for (const std::string& line :
       {"gms_up" + labels + "} 1",
        "gms_sessions" + labels + R"(,mode="rw_data"} 1)",
        "gms_sessions" + labels + R"(,mode="rw"} 0)",
        "gms_waiting_sessions" + labels + R"(,lock_type="rw_or_ro"} 2)",
        "gms_connections" + labels + "} 3",
        "gms_allocations" + labels + "} 4",
        "gms_allocated_bytes" + labels + "} 5497558138880",
        "gms_layout_published" + labels + "} 1",
        "gms_layout_protected" + labels + "} 1",
        "gms_lock_timeouts_total" + labels + R"(,lock_type="ro"} 6)",
        "gms_oom_retries_total" + labels + "} 7",
        "gms_oom_refusals_total" + labels + "} 8",
        "gms_exports_total" + labels + "} 9",
        "gms_commits_total" + labels + "} 10",
        "gms_seals_total" + labels + "} 11",
        "gms_layouts_dropped_total" + labels + "} 12",
        "gms_restarts_total" + labels + "} 13",
        "gms_unwanted_fds_total" + labels + "} 14",
        "gms_dropped_connections_total" + labels + R"(,reason="frame_too_big"} 15)",
        "gms_dropped_connections_total" + labels + R"(,reason="too_many_connections"} 16)",
        "gms_grants_total" + labels + R"(,mode="ro"} 17)"}) {
    EXPECT_THAT(page, HasSubstr("\n" + line + "\n"));
  }
}

TEST_F(MetricsText, HistogramsAreInSeconds) {
  page_->observe_request(10us, RequestResult::kAnswered);
  page_->observe_request(3ms, RequestResult::kRefused);
  page_->observe_request(1min, RequestResult::kAnswered);
  page_->granted(Grant::kRw, 90s);
  const std::string page = text();
  const std::string labels = kLabels;
  for (const std::string& line :
       {"gms_request_duration_seconds_bucket" + labels + R"(,le="1e-05"} 1)",
        "gms_request_duration_seconds_bucket" + labels + R"(,le="0.001"} 1)",
        "gms_request_duration_seconds_bucket" + labels + R"(,le="0.005"} 2)",
        "gms_request_duration_seconds_bucket" + labels + R"(,le="10"} 2)",
        "gms_request_duration_seconds_bucket" + labels + R"(,le="+Inf"} 3)",
        "gms_request_duration_seconds_sum" + labels + "} 60.00301",
        "gms_request_duration_seconds_count" + labels + "} 3",
        "gms_requests_total" + labels + R"(,result="answered"} 2)",
        "gms_requests_total" + labels + R"(,result="refused"} 1)",
        "gms_lock_wait_seconds_bucket" + labels + R"(,le="60"} 0)",
        "gms_lock_wait_seconds_bucket" + labels + R"(,le="300"} 1)"}) {
    EXPECT_THAT(page, HasSubstr("\n" + line + "\n"));
  }
}

TEST_F(MetricsText, EveryFamilyIsSaidOnceForAllServers) {
  const CounterPage other = create_counter_page();
  const std::string page = metrics_text(
      {server(), {base::DeviceOrdinal(1), base::GpuUuid("MIG-\"2\""), "kv_cache", &*other}});
  std::set<std::string> families;
  for (const std::string& line : lines_of(page)) {
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(families.insert(line).second) << line;
  }
  EXPECT_THAT(page, HasSubstr("gms_up{device=\"0\",uuid=\"GPU-1\",tag=\"weights\"} 0\n"
                              "gms_up{device=\"1\",uuid=\"MIG-\\\"2\\\"\",tag=\"kv_cache\"} 0\n"));
}

TEST_F(LintedMetrics, PromtoolHasNothingToComplainAbout) {
  EXPECT_EQ(complaints(text()), "");
  page_->granted(Grant::kRo, 3s);
  page_->observe_request(1ms, RequestResult::kRefused);
  const CounterPage other = create_counter_page();
  EXPECT_EQ(
      complaints(metrics_text(
          {server(), {base::DeviceOrdinal(1), base::GpuUuid("MIG-\"2\\\n"), "kv_cache", &*other}})),
      "");
}

}  // namespace
}  // namespace fo::gms
