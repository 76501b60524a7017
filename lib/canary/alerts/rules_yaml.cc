// The alerts as files of Prometheus and promtool.
#include <string_view>

#include "canary/alerts/alerts.h"
#include "yaml/node.h"
#include "yaml/writer.h"

namespace fo::canary {
namespace {

using yaml::Node;

// Seconds between two samples, and between two evaluations of the rules, most of what a test costs.
constexpr std::uint64_t kInterval = 15;
constexpr std::uint64_t kEvaluation = 30;

std::string seconds(std::uint64_t count) { return std::to_string(count) + "s"; }

// The first evaluation after this time.
std::uint64_t evaluation(std::uint64_t time) {
  return (time + kEvaluation - 1) / kEvaluation * kEvaluation;
}

std::uint64_t lasting(const Alert& alert, std::optional<std::uint64_t> for_seconds) {
  return alert.for_seconds == 0 ? 0 : for_seconds.value_or(alert.for_seconds);
}

std::string runbook(const Alert& alert) {
  return alert.runbook + " (see " + alert.name + " in fo-runbook(7))";
}

Node rule(const Alert& alert, std::optional<std::uint64_t> for_seconds) {
  Node node = Node::map();
  node.set("alert", Node::string(alert.name));
  node.set("expr", Node::string(alert.expression));
  if (const std::uint64_t time = lasting(alert, for_seconds); time > 0) {
    node.set("for", Node::string(seconds(time)));
  }
  node["labels"].set("severity", Node::string(alert.severity));
  node["annotations"].set("summary", Node::string(alert.summary));
  node["annotations"].set("runbook", Node::string(runbook(alert)));
  return node;
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at; (at = text.find(from)) != std::string::npos;) {
    text.replace(at, from.size(), to);
  }
}

// The summary with the values that Prometheus is expected to fill in.
std::string expected_summary(const Alert& alert) {
  std::string text = alert.summary;
  for (const auto& [label, value] : alert.labels) {
    replace_all(text, "{{ $labels." + label + " }}", value);
  }
  replace_all(text, "{{ $value | humanizePercentage }}", alert.value);
  return text;
}

Node expected_alert(const Alert& alert) {
  Node node = Node::map();
  node["exp_labels"].set("severity", Node::string(alert.severity));
  for (const auto& [label, value] : alert.labels) {
    node["exp_labels"].set(label, Node::string(value));
  }
  node["exp_annotations"].set("summary", Node::string(expected_summary(alert)));
  node["exp_annotations"].set("runbook", Node::string(runbook(alert)));
  return node;
}

Node check(const Alert& alert, std::uint64_t time, bool is_firing) {
  Node node = Node::map();
  node.set("eval_time", Node::string(seconds(time)));
  node.set("alertname", Node::string(alert.name));
  node.set("exp_alerts", Node::list());
  if (is_firing) node["exp_alerts"].push_back(expected_alert(alert));
  return node;
}

Node rule_test(const std::string& name, const Samples& samples, std::vector<Node> checks) {
  Node node = Node::map();
  node.set("name", Node::string(name));
  node.set("interval", Node::string(seconds(kInterval)));
  for (const auto& [series, values] : samples) {
    Node input = Node::map();
    input.set("series", Node::string(series));
    input.set("values", Node::string(values));
    node["input_series"].push_back(std::move(input));
  }
  node.set("alert_rule_test", Node::list(std::move(checks)));
  return node;
}

}  // namespace

std::string rules_yaml(std::optional<std::uint64_t> for_seconds) {
  Node groups = Node::list();
  for (const Alert& alert : alerts()) {
    if (groups.items().empty() || groups.items().back().text_at({"name"}) != alert.group) {
      Node group = Node::map();
      group.set("name", Node::string(alert.group));
      groups.push_back(std::move(group));
    }
    groups.items().back()["rules"].push_back(rule(alert, for_seconds));
  }
  Node file = Node::map();
  file.set("groups", std::move(groups));
  return yaml::to_yaml(file);
}

std::string rule_tests_yaml(const std::string& rules, std::optional<std::uint64_t> for_seconds) {
  Node file = Node::map();
  file.set("rule_files", Node::strings({rules}));
  file.set("evaluation_interval", Node::string(seconds(kEvaluation)));
  for (const Alert& alert : alerts()) {
    // The first evaluation at which the state has lasted long enough, and the one before.
    const std::uint64_t fires = evaluation(alert.begins) + evaluation(lasting(alert, for_seconds));
    std::vector<Node> checks;
    if (fires > 0) checks.push_back(check(alert, fires - kEvaluation, false));
    checks.push_back(check(alert, fires, true));
    file["tests"].push_back(rule_test(alert.name + " fires", alert.firing, std::move(checks)));
    if (!alert.first.empty()) {
      std::vector<Node> at_once;
      at_once.push_back(check(alert, 0, true));
      file["tests"].push_back(
          rule_test(alert.name + " fires at the first event", alert.first, std::move(at_once)));
    }
    std::vector<Node> none;
    if (fires > 0) none.push_back(check(alert, 0, false));
    none.push_back(check(alert, fires, false));
    none.push_back(check(alert, fires + 1800, false));
    file["tests"].push_back(rule_test(alert.name + " does not fire", alert.quiet, std::move(none)));
  }
  return yaml::to_yaml(file);
}

}  // namespace fo::canary
