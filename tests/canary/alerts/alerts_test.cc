// Each series of an alert, and of the dashboard, exists in the /metrics of a tool, with the labels
// and values that the alert names.
#include "canary/alerts/alerts.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "canary/daemon/metrics.h"
#include "canary/watched.h"
#include "engine/metrics.h"
#include "gms/server/metrics.h"
#include "os/file/file.h"
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
  add(all, route::to_text({}, workers, {{{.model = "llama", .card = "c"}, {}}}, 0));
  add(all, engine::Metrics("0", {{{}, "weights"}}, 0).text());
  const gms::ServerCounters counters{};
  add(all,
      gms::metrics_text({{.device = {}, .uuid = {}, .tag = "weights", .counters = &counters}}));
  Workers watched = no_workers();
  watched.apply(instance_change(std::string(32, '0'), "llama"), now());
  DaemonCounts counts;
  counts.xids.emplace();
  add(all, to_text(watched, counts));
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

// The series and labels of an expression of `what` exist.
void expect_exported(const Exported& all, const std::string& what, const std::string& text) {
  static const std::regex kName(R"re(\b(fo|gms|dynamo)_[a-z_]+\b(\{[^}]*\})?)re");
  static const std::regex kMatcher(R"re(([a-z_]+)!?=~?'([^']*)')re");
  static const std::regex kBy(R"re(by \(([a-z_, ]*)\))re");
  std::set<std::string> series_of_all;
  for (std::sregex_iterator found(text.begin(), text.end(), kName), end; found != end; ++found) {
    const std::string whole = found->str();
    const std::string name = whole.substr(0, whole.find('{'));
    const auto series = all.find(name);
    ASSERT_NE(series, all.end()) << what << ": no tool exports " << name;
    series_of_all.insert(series->second.begin(), series->second.end());
    const std::string matchers = (*found)[2];
    for (std::sregex_iterator matcher(matchers.begin(), matchers.end(), kMatcher); matcher != end;
         ++matcher) {
      const std::string label = (*matcher)[1];
      EXPECT_TRUE(has_label(series->second, label)) << what << ": " << name << " has no " << label;
      std::string values = (*matcher)[2];
      // A variable of the dashboard.
      if (values.starts_with('$')) continue;
      for (std::size_t at = 0; at != std::string::npos;) {
        const std::size_t bar = values.find('|', at);
        const std::string one = label + "=\"" + values.substr(at, bar - at) + "\"";
        bool exists = false;
        for (const std::string& labels : series->second) {
          exists = exists || labels.find(one) != std::string::npos;
        }
        EXPECT_TRUE(exists) << what << ": no series " << name << " has " << one;
        at = bar == std::string::npos ? bar : bar + 1;
      }
    }
  }
  EXPECT_FALSE(series_of_all.empty()) << what;
  for (std::sregex_iterator by(text.begin(), text.end(), kBy), end; by != end; ++by) {
    std::istringstream labels((*by)[1]);
    for (std::string label; std::getline(labels >> std::ws, label, ',');) {
      EXPECT_TRUE(kOfTheTarget.contains(label) || has_label(series_of_all, label))
          << what << ": no series has a label " << label;
    }
  }
}

TEST(Alerts, UseOnlySeriesThatTheToolsExport) {
  const Exported all = exported();
  for (const Alert& alert : alerts()) expect_exported(all, alert.name, alert.expression);
}

TEST(Dashboard, UsesOnlySeriesThatTheToolsExport) {
  const Exported all = exported();
  const auto dashboard = nlohmann::json::parse(
      os::read_file(FO_SOURCE_DIR "/packaging/monitoring/dashboard.json", base::kMiB));
  int targets = 0;
  for (const auto& panel : dashboard.at("panels")) {
    if (panel.at("type") == "row") continue;
    for (const auto& target : panel.at("targets")) {
      expect_exported(all, panel.at("title"), target.at("expr"));
      ++targets;
    }
  }
  EXPECT_GT(targets, 20);
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
