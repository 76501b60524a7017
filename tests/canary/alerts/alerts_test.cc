// Each series of an alert exists in the /metrics of a tool, with the labels and values that the
// alert names.
#include "canary/alerts/alerts.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>

#include "canary/daemon/metrics.h"
#include "canary/watched.h"
#include "engine/metrics.h"
#include "gms/server/metrics.h"
#include "route/metrics.h"

namespace fo::canary {
namespace {

// The text of all labels of each series that the tools export, by name.
using Exported = std::map<std::string, std::set<std::string>>;

void add(Exported& to, const std::string& page) {
  static const std::regex kSeries(R"re(^([a-z_:]+)(\{.*\})? \S+$)re",
                                  std::regex::ECMAScript | std::regex::multiline);
  for (std::sregex_iterator found(page.begin(), page.end(), kSeries), end; found != end; ++found) {
    to[(*found)[1]].insert((*found)[2]);
  }
}

Exported exported() {
  Exported all;
  route::Workers workers;
  const auto worker = std::make_shared<route::Worker>("w", fleet::Health{});
  worker->name = "w";
  worker->model = "llama";
  workers.add(worker);
  add(all, route::to_text({}, workers, {}, 0));
  add(all, engine::Metrics("0", {}, 0).text());
  const gms::ServerCounters counters{};
  add(all,
      gms::metrics_text({{.device = {}, .uuid = {}, .tag = "weights", .counters = &counters}}));
  Workers watched = no_workers();
  watched.apply(instance_change(std::string(32, '0'), "llama"), now());
  add(all, to_text(watched, DaemonCounts{}));
  return all;
}

// The labels that Prometheus adds.
const std::set<std::string> kOfTheTarget{"job", "instance", "namespace", "pod"};

bool has_label(const std::set<std::string>& series, const std::string& label) {
  for (const std::string& labels : series) {
    if (labels.find(label + "=\"") != std::string::npos) return true;
  }
  return false;
}

TEST(Alerts, UseOnlySeriesThatTheToolsExport) {
  const Exported all = exported();
  static const std::regex kName(R"re(\b(fo|gms|dynamo)_[a-z_]+\b(\{[^}]*\})?)re");
  static const std::regex kMatcher(R"re(([a-z_]+)=~?'([^']*)')re");
  for (const Alert& alert : alerts()) {
    const std::string& text = alert.expression;
    int names = 0;
    for (std::sregex_iterator found(text.begin(), text.end(), kName), end; found != end; ++found) {
      ++names;
      const std::string whole = found->str();
      const std::string name = whole.substr(0, whole.find('{'));
      const auto series = all.find(name);
      ASSERT_NE(series, all.end()) << alert.name << ": no tool exports " << name;
      const std::string matchers = (*found)[2];
      for (std::sregex_iterator matcher(matchers.begin(), matchers.end(), kMatcher); matcher != end;
           ++matcher) {
        std::string values = (*matcher)[2];
        for (std::size_t at = 0; at != std::string::npos;) {
          const std::size_t bar = values.find('|', at);
          const std::string one = (*matcher)[1].str() + "=\"" + values.substr(at, bar - at) + "\"";
          bool exists = false;
          for (const std::string& labels : series->second) {
            exists = exists || labels.find(one) != std::string::npos;
          }
          EXPECT_TRUE(exists) << alert.name << ": no series " << name << " has " << one;
          at = bar == std::string::npos ? bar : bar + 1;
        }
      }
    }
    EXPECT_GT(names, 0) << alert.name;
  }
}

TEST(Alerts, TheirCasesHaveTheLabelsOfTheRealSeries) {
  const Exported all = exported();
  static const std::regex kLabel(R"re([{,]([a-z_]+)=")re");
  for (const Alert& alert : alerts()) {
    for (const Samples* const samples : {&alert.firing, &alert.first, &alert.quiet}) {
      for (const auto& [series, values] : *samples) {
        const std::string name = series.substr(0, series.find('{'));
        const auto real = all.find(name);
        ASSERT_NE(real, all.end()) << alert.name << ": no tool exports " << name;
        for (std::sregex_iterator label(series.begin(), series.end(), kLabel), end; label != end;
             ++label) {
          const std::string one = (*label)[1];
          EXPECT_TRUE(kOfTheTarget.contains(one) || has_label(real->second, one))
              << alert.name << ": " << name << " has no label " << one;
        }
      }
    }
  }
}

TEST(Alerts, HaveUniqueNamesAndWhatToType) {
  std::set<std::string> names;
  for (const Alert& alert : alerts()) {
    EXPECT_TRUE(names.insert(alert.name).second) << alert.name;
    EXPECT_TRUE(alert.severity == "warning" || alert.severity == "critical") << alert.name;
    EXPECT_FALSE(alert.summary.empty()) << alert.name;
    EXPECT_FALSE(alert.runbook.empty()) << alert.name;
  }
}

}  // namespace
}  // namespace fo::canary
