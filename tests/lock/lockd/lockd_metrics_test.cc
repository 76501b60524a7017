#include "lock/lockd/lockd_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/promtool.h"

namespace fo::lock {
namespace {

using testing::HasSubstr;

LockdMetrics sample_metrics() {
  LockdMetrics metrics{.lock = {true, false, 7, 2, 3, 4, 5}, .on_socket = 6, .on_port = 8};
  metrics.refusals[75] = 9;
  metrics.expired_leases = 10;
  return metrics;
}

TEST(LockdMetricsText, HasWhatWasCounted) {
  const std::string text = metrics_text(sample_metrics());
  for (const char* line :
       {"gms_lockd_held 1\n", "gms_lockd_recovering 0\n", "gms_lockd_generation 7\n",
        "gms_lockd_holding_connections 2\n", "gms_lockd_waiting_connections 3\n",
        "gms_lockd_grants_total 4\n", "gms_lockd_record_failures_total 5\n",
        "gms_lockd_connections{listener=\"socket\"} 6\n",
        "gms_lockd_connections{listener=\"port\"} 8\n",
        "gms_lockd_refusals_total{status=\"75\"} 9\n",
        "gms_lockd_refusals_total{status=\"77\"} 0\n", "gms_lockd_expired_leases_total 10\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

class LintedLockdMetrics : public test::Promtool {};

TEST_F(LintedLockdMetrics, PromtoolHasNothingToComplainAbout) {
  EXPECT_EQ(complaints(metrics_text(sample_metrics())), "");
}

}  // namespace
}  // namespace fo::lock
