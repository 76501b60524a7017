#include "metrics/prometheus_text.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace fo::metrics {
namespace {

TEST(PrometheusText, FamiliesAndSeries) {
  PrometheusText out;
  out.begin("a_total", "counter", "Things.");
  out.add({}, std::numeric_limits<std::uint64_t>::max());
  out.begin("b_seconds", "gauge", "Time.");
  out.add({{"mode", "ro"}, {"tag", "weights"}}, 0.25);
  out.add({{"mode", ""}}, 0);
  EXPECT_EQ(out.take(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total 18446744073709551615\n"
            "# HELP b_seconds Time.\n# TYPE b_seconds gauge\n"
            "b_seconds{mode=\"ro\",tag=\"weights\"} 0.25\nb_seconds{mode=\"\"} 0\n");
}

TEST(PrometheusText, LabelsAreEscaped) {
  PrometheusText out;
  out.begin("a", "gauge", "A.");
  out.add({{"l", "a\"b\\c\nd"}}, 1);
  EXPECT_NE(out.take().find("a{l=\"a\\\"b\\\\c\\nd\"} 1\n"), std::string::npos);
}

TEST(PrometheusText, HistogramsAddUp) {
  PrometheusText out;
  out.begin("h_seconds", "histogram", "H.");
  const std::array bounds{0.00001, 10.0};
  const std::array<std::uint64_t, 3> counts{1, 0, 2};
  out.add_histogram({{"tag", "t"}}, bounds, counts, 40.5);
  EXPECT_EQ(out.take(),
            "# HELP h_seconds H.\n# TYPE h_seconds histogram\n"
            "h_seconds_bucket{tag=\"t\",le=\"1e-05\"} 1\n"
            "h_seconds_bucket{tag=\"t\",le=\"10\"} 1\n"
            "h_seconds_bucket{tag=\"t\",le=\"+Inf\"} 3\n"
            "h_seconds_sum{tag=\"t\"} 40.5\nh_seconds_count{tag=\"t\"} 3\n");
}

}  // namespace
}  // namespace fo::metrics
