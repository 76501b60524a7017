#!/usr/bin/env bats
# The dashboard of packaging/monitoring: it can be imported, Prometheus accepts its queries, and its
# panels are drawn. That each series of them exists is a test of tests/canary/alerts.
# bats file_tags=slow

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

# --- draw -----------------------------------------------------------------------------------------

draw() { "$FO_ROOT/packaging/monitoring/draw" "$@"; }

# start_prometheus: one with two workers' samples of ten minutes, which end at END. Sets URL.
start_prometheus() {
  local n second
  END=$(($(date +%s) - 60))
  {
    echo "# TYPE fo_route_worker_reachable gauge"
    for n in 1 2; do
      for second in $(seq 600 -15 0); do
        echo "fo_route_worker_reachable{job=\"r\",instance=\"r\",worker_id=\"w$n\",model=\"llama's\"} 1 $((END - second))"
      done
    done
    echo "# TYPE dynamo_worker_status gauge"
    for n in 1 2; do
      for second in $(seq 600 -15 0); do
        echo "dynamo_worker_status{job=\"r\",instance=\"r\",worker_id=\"w$n\"} $((n == 2 ? 2 : 0)) $((END - second))"
      done
    done
    echo "# EOF"
  } >"$T/samples"
  promtool tsdb create-blocks-from openmetrics "$T/samples" "$T/data" >/dev/null
  echo 'global: {}' >"$T/prometheus.yml"
  pick_port
  URL=http://127.0.0.1:$PORT
  start_bg prometheus prometheus --config.file "$T/prometheus.yml" --storage.tsdb.path "$T/data" \
    --web.listen-address "127.0.0.1:$PORT"
  wait_for "curl -sSf $URL/-/ready"
}

@test "each row of the dashboard is drawn from the samples of a Prometheus" {
  need_promtool
  need_gnuplot
  start_prometheus
  ends_with 0 draw --url "$URL" --end "$END" --seconds 600 "$T/pictures"
  [ -z "$stderr" ]
  [ "${#lines[@]}" -eq "$(jq '[.panels[] | select(.type == "row")] | length' "$DASHBOARD")" ]
  local title
  while read -r title; do
    grep -qF ">$title<" "$T"/pictures/*.svg || { echo "no panel '$title'"; return 1; }
  done < <(jq -r '.panels[].title' "$DASHBOARD")
  # Half of the model's workers are out.
  grep -qF ">llama's<" "$T/pictures/fleet.svg"
  grep -qF ">w2<" "$T/pictures/fleet.svg"
  run ! grep -q "w2" "$T/pictures/router.svg"
  answers 0 "$T/one/fleet.svg" draw --url "$URL" --panel "Workers that are out" "$T/one"
  run ! grep -qF ">Status of each worker<" "$T/one/fleet.svg"
}

@test "a bad command line is 64, no Prometheus 69, a refused query 76, an unwritable picture 73" {
  fails() {
    ends_with "$1" draw "${@:3}"
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ ${stderr_lines[0]} == "draw: error: "$2 ]] || { echo "$stderr"; return 1; }
  }
  fails 64 "*required: DIR"
  fails 64 "*unrecognized arguments: --frob" --frob "$T/pictures"
  fails 64 "--panel: 'Frob': no such panel" --panel Frob "$T/pictures"
  fails 69 "query 'http://127.0.0.1:1': *refused*" --url http://127.0.0.1:1 "$T/pictures"
  need_promtool
  need_gnuplot
  start_prometheus
  fails 76 "query '*': *parse error*" --url "$URL" --model "'" "$T/pictures"
  : >"$T/file"
  fails 73 "create '$T/file': File exists" --url "$URL" "$T/file"
  mkdir -p "$T/pictures/fleet.svg"
  fails 73 "write '$T/pictures/fleet.svg': Is a directory" --url "$URL" "$T/pictures"
}
