#!/usr/bin/env bats
# fo-canary run: workers that hang, lie and flood, and a full disk. What it finds, and that the checks
# of the other workers go on.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
# bats file_tags=slow
load test_helper
load route
load canary

setup() { setup_canary; }

# worker N FILTER: prints a part of what the canary knows of the worker N.
worker() { canary state "$(id "$1")" --json | jq -rc ".workers[0] | $2"; }
# passes N: prints how many content checks of the worker N have passed.
passes() { metric dynamo_health_check_duration_seconds_count "worker_id=\"$(id "$1")\",check_type=\"content\""; }
# metric NAME [LABELS]: prints the value of one of the canary's metrics.
metric() { curl -sSf "http://127.0.0.1:$METRICS/metrics" | sed '/^#/d' | grep -F "$1${2:+{$2\}} " | sed 's/.* //'; }
start_with_metrics() {
  start_canary --metrics 127.0.0.1:0 --ready-fd 9 "$@" 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
  METRICS=$(cat "$T/ready")
}
# goes_on N: ten more questions to the worker N are answered, and then it is healthy, at once or soon.
goes_on() {
  local before
  before=$(passes "$1")
  wait_for "[ \$(passes $1) -ge $((before + 10)) ] && [ \$(worker $1 .health) = healthy ]" 60
}

# hostile N KIND: registers the worker N, whose /health is 200, and whose answers are of this kind.
hostile() {
  cat >"$T/hostile" <<'SH'
#!/bin/bash
read -r _ path _ || exit 0
head='HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n'
case $path in
  /health) printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' ;;
  /metrics) [ "$1" = endless ] && printf "$head" && exec yes 'vllm:num_requests_running 1' ;;
  *)
    echo x >>"$0.$1"
    case $1 in
      endless) printf "$head" && exec yes ': a comment' ;;
      rubbish) exec head -c 100000 /dev/urandom ;;
      line) printf "${head}data: " && exec head -c 104857600 /dev/zero ;;
      silent) exec cat >/dev/null ;;
    esac
    ;;
esac
SH
  chmod +x "$T/hostile"
  pick_port
  start_bg "hostile$1" socat "TCP-LISTEN:$PORT,bind=127.0.0.1,fork,reuseaddr" "EXEC:$T/hostile $2"
  start_bg "put$1" fo-reg put --endpoint ns/worker/generate --url "http://127.0.0.1:$PORT" --model oracle --id "$(id "$1")"
}

@test "a worker that hangs after its first token is out, although its /health is 200" {
  start_oracles 3
  learn
  register 3
  fault 3 stall@1
  start_canary --answer-timeout 500ms --retries 0
  await_healths "healthy healthy unhealthy"
  curl -sSf "${URLS[2]}/health"
  [ "$(worker 3 '.checks[-1].outcome')" = hung ]
  [[ $(worker 3 .reason) == "hung: no whole answer in time" ]]
  wait_for "fo-reg get verdicts/$(id 3)/a | jq -e '.health == \"unhealthy\" and .weight == 0'"
  fault 3 none
  await_healths "healthy healthy healthy"
}

@test "a worker whose requests run without a token is hung, before its first question" {
  start_oracles 3
  learn
  register 3
  fault 3 stall@1
  start_bg stream curl -sSN --max-time 120 "${URLS[2]}/v1/completions" -d '{"prompt":"a","stream":true}'
  wait_for "grep -q '\"text\"' $T/stream.out"
  start_canary --interval 10h --hung-after 1s
  wait_for '[[ $(worker 3 .reason) == "hung: requests run, and no token came for "* ]]' 60
  [ "$(healths)" = "healthy healthy suspicious" ] || [ "$(healths)" = "healthy healthy unhealthy" ]
}

@test "a /health that is not 200, and one that does not answer, are faults" {
  start_oracles 4
  learn
  register 4
  knobs 3 '"health":"no"'
  knobs 4 '"health":"stall"'
  start_canary --interval 10h
  wait_for '[ "$(worker 3 .reason)" = "failed: /health: status 503" ]' 60
  wait_for '[[ $(worker 4 .reason) == "hung: "* ]]' 60
  [[ $(healths) == "healthy healthy "* ]]
}

@test "endless answers, rubbish, a line of 100 MiB and silence do not delay the checks of others" {
  start_oracles 2
  learn
  register 2
  local -A kinds=([3]=endless [4]=rubbish [5]=line [6]=silent)
  local n
  for n in "${!kinds[@]}"; do hostile "$n" "${kinds[$n]}"; done
  # Until the end of the test, the silent worker's first question has no answer.
  start_with_metrics --answer-timeout 10m
  for n in "${!kinds[@]}"; do wait_for "[ -s $T/hostile.${kinds[$n]} ]" 60; done
  goes_on 1
  goes_on 2
  for n in 3 4 5; do
    wait_for "[[ \$(worker $n .health) == @(suspicious|unhealthy|probation) ]]" 60
    [ "$(worker "$n" '[.checks[] | select(.check == "content") | .outcome] | unique | join(" ")')" = failed ]
  done
  [ "$(worker 6 '[.checks[] | select(.check == "content")] | length')" -eq 0 ]
  if is_release; then
    [ "$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$CANARY/status")" -lt 102400 ]
  fi
}

@test "a full disk for --state is one warning until it has room, and the checks go on" {
  need_mount
  start_oracles 3
  learn
  register 3
  mkdir "$T/disk"
  start_bg canary unshare --map-root-user --mount bash -c '
    mount -t tmpfs -o size=8k none "$0/disk" || exit 1
    head -c 8192 /dev/zero >"$0/disk/filler" 2>/dev/null
    exec fo-canary run --canaries "$0/canaries.json" --interval 200ms --name a --state "$0/disk/state.json" \
      --metrics 127.0.0.1:0 --ready-fd 9 9>"$0/ready"' "$T"
  CANARY=$BG_PID
  wait_for "[ -s $T/ready ]"
  METRICS=$(cat "$T/ready")
  wait_for '[ "$(metric fo_canary_state_failures_total)" -ge 4 ]'
  fault 3 wrong@2
  await_healths "healthy healthy convicted"
  goes_on 1
  [ "$(grep -c "No space left on device" "$T/canary.err")" -eq 1 ]
  grep -q "^fo-canary: warning: write '$T/disk/state.json': No space left on device$" "$T/canary.err"
  # With room again, what it has learned is written.
  rm "/proc/$CANARY/root/$T/disk/filler"
  wait_for "grep -q convicted /proc/$CANARY/root/$T/disk/state.json"
  wait_for "grep -q \"^fo-canary: info: state file '$T/disk/state.json': is written again\" $T/canary.err"
}
