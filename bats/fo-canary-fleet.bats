#!/usr/bin/env bats
# fo-canary run beside other canaries and routers: whose verdict counts, what a canary's death changes,
# and what a whole set's change means.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
# bats file_tags=slow
load test_helper
load route
load canary
load etcd

setup() {
  setup_canary
  # The folder of the admin socket must be the router's own.
  export FO_ROUTE_ADMIN=$T/route/route.sock FO_ROUTE_LAME_DUCK=0s
}
teardown() {
  end_etcd
  fo_teardown
}

# start_named NAME [OPTION]...: starts a canary with this name; its pid is in CANARY.
start_named() {
  FO_CANARY_ADMIN=$T/admin/$1.sock FO_CANARY_NAME=$1 FO_CANARY_INTERVAL=200ms FO_CANARY_ANSWER_TIMEOUT=1s \
    start_bg "canary-$1" fo-canary run --canaries "$T/canaries.json" --retries 0 "${@:2}"
  CANARY=$BG_PID
}
# written WRITER N: prints the health in this canary's verdict on the worker N.
written() { fo-reg get "verdicts/$(id "$2")/$1" | jq -r .health; }
# seen N: prints the verdict on the worker N, as the router sees it, and its weight.
seen() { state ".workers[] | select(.id == \"$(id "$1")\") | \"\\(.verdict) \\(.weight)\""; }
# try_suspend PID...: suspends canaries, or fails if a folder of verdicts is locked, because one that is
# suspended while it has locked it keeps the others out.
try_suspend() {
  local pid n
  kill -STOP "$@"
  for pid in "$@"; do wait_for "grep -q '^State:.T' /proc/$pid/status" || return 1; done
  for n in 1 2 3 4; do
    flock -n "$T/registry/verdicts/$(id $n)" true || { kill -CONT "$@"; return 1; }
  done
}
# start_fleet N: N workers that are registered, questions, and a router that asks each in its turn.
start_fleet() {
  start_oracles "$1"
  learn
  register "$1"
  start_router --registry "$FO_REGISTRY" --choice round-robin
  await_healthy "$1"
}

@test "of three canaries the worst verdict counts, and a conviction needs two" {
  start_fleet 4
  local name n pids=()
  for name in a b c; do
    # The verdicts of those that are suspended count for long enough.
    start_named "$name" --answer-timeout 5m
    pids+=("$CANARY")
    for n in 1 2 3 4; do wait_for "[ \$(written $name $n) = healthy ]"; done
  done
  wait_for "try_suspend ${pids[*]:1}"
  fault 3 error@start
  fault 4 wrong@2
  wait_for '[ "$(seen 3)" = "unhealthy 0" ]'
  [ "$(written b 3)" = healthy ]
  wait_for '[ "$(written a 4)" = convicted ]'
  wait_for '[ "$(seen 4)" = "suspicious 0.5" ]'
  kill -CONT "${pids[1]}"
  wait_for '[ "$(seen 4)" = "convicted 0" ]'
  [ "$(written c 4)" = healthy ]
  # Without the first conviction, the other one is one of three.
  wait_for "try_suspend ${pids[0]}"
  fault 4 none
  fo-reg rm "verdicts/$(id 4)/a"
  wait_for '[ "$(seen 4)" = "suspicious 0.5" ]'
  kill -CONT "${pids[0]}" "${pids[2]}"
}

# requests N: prints how many completions the worker N was asked for.
requests() { curl -sSf "${URLS[$1 - 1]}/metrics" | sed -n 's/^oracle_requests_total{[^}]*} //p'; }

@test "two routers on etcd obey a conviction, and no canary is needed for it to stay" {
  need_etcd
  start_etcd
  export FO_REGISTRY=etcd:http://127.0.0.1:$PORT/fleet
  start_fleet 3
  local first=$URL n
  start_bg router2 env FO_ROUTE_ADMIN="$T/route2/route.sock" fo-route serve --listen 127.0.0.1:0 \
    --registry "$FO_REGISTRY"
  wait_for "[ \"\$(FO_ROUTE_ADMIN=$T/route2/route.sock state .healthy)\" = 3 ]"
  start_named a
  wait_for '[ "$(written a 3)" = healthy ]'
  fault 3 wrong@2
  wait_for '[ "$(seen 3)" = "convicted 0" ]'
  wait_for "[ \"\$(FO_ROUTE_ADMIN=$T/route2/route.sock seen 3)\" = 'convicted 0' ]"
  kill_now "$CANARY"
  fault 3 none
  local before
  before=$(requests 3)
  for n in 1 2 3 4 5 6; do
    curl -sSf "$first/v1/completions" -d '{"model":"oracle","prompt":"a","max_tokens":2}' >"$T/answer"
  done
  [ "$(requests 3)" -eq "$before" ]
}
@test "after its canary's death a verdict expires, which changes nothing; a conviction stays" {
  start_fleet 6
  start_named a
  wait_for '[ "$(seen 1)" = "healthy 1" ]'
  fault 3 error@start
  fault 4 wrong@2
  wait_for '[ "$(seen 3)" = "unhealthy 0" ] && [ "$(seen 4)" = "convicted 0" ]'
  kill_now "$CANARY"
  wait_for '[ "$(seen 1)" = "unknown 1" ] && [ "$(seen 3)" = "unknown 1" ]'
  [ "$(seen 4)" = "convicted 0" ]
  [ "$(state .healthy)" -eq 5 ]
}

@test "a conviction is kept by a canary that is killed at random times, also without its state file" {
  convict_the_fourth
  fault 4 none
  local n
  for n in $(seq 20); do
    read -rt "0.$((RANDOM % 500 + 100))" <> <(:) || :
    kill_now "$CANARY"
    fo-reg get "verdicts/$(id 4)/a" | jq -e '.health == "convicted" and .expires == null'
    if [ -e "$T/state.json" ]; then jq -e .version "$T/state.json"; fi
    if [ $((n % 2)) -eq 0 ]; then rm -f "$T/state.json"; fi
    start_canary --state "$T/state.json"
  done
  await_healths "healthy healthy healthy convicted"
  wait_for "grep -q convicted $T/state.json"
}

@test "no worker of a set whose model has changed is convicted, and another set is judged as before" {
  start_oracles 4
  learn
  register 4
  jq '.model = "other"' "$T/canaries.json" >"$T/other.json"
  local n
  for n in 5 6 7 8; do
    # The same questions, and other weights.
    start_oracle "oracle$n" --model other --seed-of-weights 1
    start_bg "put$n" fo-reg put --endpoint ns/worker/generate --url "$WORKER" --model other --id "$(id "$n")"
  done
  fault 4 wrong@2
  start_canary --canaries "$T/other.json"
  await_healths "healthy healthy healthy convicted healthy healthy healthy healthy"
  wait_for "grep -q 'canary_stale: all workers of model .other. ' $T/canary.err"
  run ! grep -q "canary_stale: all workers of model .oracle. " "$T/canary.err"
  [ "$(healths)" = "healthy healthy healthy convicted healthy healthy healthy healthy" ]
}
