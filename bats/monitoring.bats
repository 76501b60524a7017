#!/usr/bin/env bats
# The dashboard of packaging/monitoring: it can be imported, and Prometheus accepts its queries.
# That each series of them exists is a test of tests/canary/alerts.

# shellcheck disable=SC2016,SC2154  # text with dollars is Grafana's; run sets output and stderr
load test_helper

DASHBOARD=$FO_ROOT/packaging/monitoring/dashboard.json

@test "Grafana can import the dashboard into any data source" {
  jq -e '.__inputs == [{name: "DS_PROMETHEUS", label: "Prometheus", type: "datasource",
      pluginId: "prometheus", pluginName: "Prometheus"}]' "$DASHBOARD"
  jq -e '[(.panels[] | select(.type != "row")), .templating.list[], .annotations.list[] | .datasource]
    | length > 30 and all(. == {type: "prometheus", uid: "${DS_PROMETHEUS}"})' "$DASHBOARD"
  jq -e '([.panels[].type] | unique - ["row"]) ==
    ([.__requires[] | select(.type == "panel").id] | sort)' "$DASHBOARD"
}

@test "panels have numbers and titles of their own, and do not overlap" {
  jq -e '[.panels[].id] | length == (unique | length)' "$DASHBOARD"
  jq -e '[.panels[].title] | length == (unique | length) and all(. != "")' "$DASHBOARD"
  jq -e '[.panels[] | select(.type != "row").targets | [.[].refId] | length > 0 and . == unique]
    | all' "$DASHBOARD"
  jq -e '[.panels[].gridPos | (.x + range(.w)) as $x | (.y + range(.h)) as $y | [$x, $y]]
    | length == (unique | length) and all(.[0] < 24)' "$DASHBOARD"
}

@test "Prometheus accepts each query" {
  need_promtool
  # JSON is YAML.
  jq '[(.panels[] | select(.type != "row").targets[].expr), .annotations.list[].expr]
    | map(gsub("\\$model"; ".*") | gsub("\\$__rate_interval"; "5m"))
    | {groups: [{name: "queries", rules: map({record: "a:query", expr: .}) | to_entries
        | map(.value + {labels: {number: "\(.key)"}})}]}' "$DASHBOARD" >"$T/rules.yaml"
  run -0 promtool check rules "$T/rules.yaml"
  [[ $output == *"$(jq '.groups[0].rules | length' "$T/rules.yaml") rules found"* ]]
  run ! grep -F '$' "$T/rules.yaml"
}
