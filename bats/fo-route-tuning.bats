#!/usr/bin/env bats
# fo-route: the options of its page's table TUNING.

# shellcheck disable=SC2016,SC2154  # text for wait_for
load test_helper
load route

TOOL=fo-route
SERVE=(serve --worker http://127.0.0.1:1)

setup() { setup_route; }

# options FILTER [OPTION]...: prints a part of the effective options that --help does not list.
options() {
  fo-route "${SERVE[@]}" --print-config --json "${@:2}" >"$T/config.json"
  fo-route serve --help | grep -oE -- '--[a-z][a-z0-9-]*' | sed 's/^--//' >"$T/listed"
  jq -r --rawfile listed "$T/listed" '($listed | split("\n")) as $listed | .options | to_entries[] |
    select(.key as $key | $listed | index($key) | not) | '"$1" "$T/config.json"
}

@test "the page's table has the names and the defaults of the options" {
  options '"\(.key) \(.value.value)"' >"$T/options"
  [ "$(wc -l <"$T/options")" -gt 60 ]
  sed -n '/^\.Sh TUNING/,/^\.Sh ENV/s/^\.It Li \([a-z0-9-]*\) Ta \([^ ]*\) Ta.*/\1 \2/p' "$FO_ROOT/man/fo-route.1" |
    sort | diff <(sort "$T/options") -
}

@test "a file with all of them is accepted, and printed back" {
  # Each value is another one than the default, and they fit together.
  options '.key as $key | (.value.value | tostring | capture("^(?<n>[0-9.]+)(?<unit>[A-Za-z]*)$")) as $it |
    ($it.n | tonumber) as $n | (($n | floor) == $n and ($key | startswith("level-") | not)) as $is_whole |
    "\($key) = \"\(if $is_whole or $it.unit != "" then $n + 1 else $n * 0.875 end)\($it.unit)\""' >"$T/route.toml"
  [ "$(wc -l <"$T/route.toml")" -gt 60 ]
  options 'select(.value.from == "file") | "\(.key) = \"\(.value.value)\""' --config "$T/route.toml" >"$T/printed"
  diff "$T/route.toml" "$T/printed"
  start_oracle a
  start_router --worker "$WORKER" --config "$T/route.toml"
  await_healthy 1
  curl -sSf -o /dev/null "$URL/v1/completions" -d '{"model":"oracle","prompt":"a","max_tokens":4}'
  # The printed configuration is accepted, too.
  fo-route "${SERVE[@]}" --print-config --config "$T/route.toml" >"$T/again.toml"
  options 'select(.value.from == "file") | "\(.key) = \"\(.value.value)\""' --config "$T/again.toml" >"$T/printed"
  diff "$T/route.toml" "$T/printed"
}

@test "a value out of range is refused with its name" {
  local bad
  for bad in health-cooldown=0s health-cooldown=2h health-cooldown=5 max-out=2 max-out=nan max-out=x poison-deaths=1 \
    known-prefixes=-1 level-1-enter=0 event-max=1 health-faults=0 demand-time=1s budget-time=0s; do
    echo "${bad%%=*} = \"${bad#*=}\"" >"$T/route.toml"
    fails 78 "read configuration '$T/route.toml': ${bad%%=*}: '${bad#*=}'*" "$TOOL" "${SERVE[@]}" --config "$T/route.toml"
    fails 64 "--${bad%%=*}: '${bad#*=}'*" "$TOOL" "${SERVE[@]}" "--${bad%%=*}=${bad#*=}"
  done
  fails 64 "--max-out: '2': expected 0 to 1" "$TOOL" "${SERVE[@]}" --max-out 2
  fails 64 "--health-cooldown: '0s': expected 1ms to 1h" "$TOOL" "${SERVE[@]}" --health-cooldown 0s
}

@test "values that do not fit together are refused" {
  fails 64 "--level-1-leave: expected more than --level-1-enter" "$TOOL" "${SERVE[@]}" --level-1-leave 1
  fails 64 "--level-2-enter: expected less than --level-1-enter" "$TOOL" "${SERVE[@]}" --level-1-enter 0.75
  fails 64 "--level-4-refuse-all: expected at most --level-4-enter" "$TOOL" "${SERVE[@]}" --level-4-refuse-all 0.3
  fails 64 "--health-cooldown-max: expected at least --health-cooldown" "$TOOL" "${SERVE[@]}" --health-cooldown-max 4s
  fails 64 "--reconnect-slow: expected at least --reconnect" "$TOOL" "${SERVE[@]}" --reconnect 2s
  fails 64 "--overload-max: expected at least --overload" "$TOOL" "${SERVE[@]}" --overload 31s
  fails 64 "--first-event-max: expected at least --event-max" "$TOOL" "${SERVE[@]}" --event-max 17MiB
  fails 64 "--breaker classic: can't be combined with --health-*" \
    "$TOOL" "${SERVE[@]}" --breaker classic --health-faults 4
}

# status: prints the status of a request; the level of the answer is in $T/head.
status_now() {
  curl -sS -o /dev/null -D "$T/head" -w '%{http_code}' "$URL/v1/completions" \
    -d '{"model":"oracle","prompt":"a","max_tokens":4}'
}

@test "a reload applies them" {
  start_oracle a
  local always=("worker = [\"$WORKER\"]" 'level-leave-after = "0s"')
  printf '%s\n' "${always[@]}" >"$T/route.toml"
  start_router --config "$T/route.toml"
  await_healthy 1
  # The capacity is known after ten requests.
  for _ in {1..10}; do [ "$(status_now)" = 200 ]; done
  printf '%s\n' "${always[@]}" 'slo-rate = 1000000000' >"$T/route.toml"
  ctl reload
  wait_for '[ "$(status_now)" = 503 ]'
  grep -qi '^x-fo-level: 4' "$T/head"
  printf '%s\n' "${always[@]}" 'slo-rate = 1000000000' 'level-4-refuse-all = 0' >"$T/route.toml"
  ctl reload
  [ "$(status_now)" = 200 ]
  grep -qi '^x-fo-level: 4' "$T/head"
  printf '%s\n' "${always[@]}" 'slo-rate = 0.000001' >"$T/route.toml"
  ctl reload
  wait_for 'status_now && grep -qi "^x-fo-level: 0" $T/head'
}
