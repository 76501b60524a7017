#!/usr/bin/env bats
# fo-canary: the behaviour on its page, with workers of fo-oracle.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
load test_helper
load route
load canary

setup() { setup_canary; }

# put_verdict WORKER WRITER MEMBERS: writes a verdict.
put_verdict() {
  printf '{"version":1,"id":"%s","since":"2026-11-21T05:33:00.123Z",%s}' "$1" "$3" |
    fo-reg put "verdicts/$1/$2"
}
CONVICTED='"health":"convicted","weight":0,"reason":"wrong tokens","expires":null'

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  usage_errors fo-canary "" "frob" "acquit" "acquit x" "acquit $(id 1) $(id 2)" \
    "acquit $(id 1) --timeout 5" "acquit $(id 1) --registry x" "run --canaries x --interval 0" \
    "run --canaries x --interval 876000h" "run --canaries x --answer-timeout 0" "run --canaries x --hung-after 0s"
  fails 64 "id 'x': not the id of a worker" canary acquit x
}

# --- acquit ---------------------------------------------------------------------------------------

@test "acquit lifts the convictions of all canaries, and is 1 without any" {
  put_verdict "$(id 1)" a "$CONVICTED"
  put_verdict "$(id 1)" b "$CONVICTED"
  put_verdict "$(id 2)" a "$CONVICTED"
  run -0 canary acquit "$(id 1)"
  [ "$output" = "" ]
  run -0 bash -c "fo-reg get verdicts/$(id 1)/a | jq -r '.health, .acquits'"
  [ "$output" = $'healthy\n2026-11-21T05:33:00.123Z' ]
  [ "$(fo-reg get "verdicts/$(id 2)/a" | jq -r .health)" = convicted ]
  run -1 canary acquit "$(id 1)"
}

@test "a registry that is unreachable is 69" {
  run -69 canary acquit "$(id 1)"
  fails 69 "*Connection refused" canary acquit "$(id 1)" --registry etcd:http://127.0.0.1:1/fleet
}

# --- learn, once ----------------------------------------------------------------------------------

@test "learn needs two replicas, and is 1 if too few questions are left" {
  start_oracles 2
  run -64 canary learn --model oracle --worker "${URLS[0]}" -o "$T/canaries.json"
  run -1 learn --min-canaries 100
  [ ! -e "$T/canaries.json" ]
  learn
  jq -e '.sampler and (.canaries | length) >= 8 and .card == "" and ([.canaries[].prompt_token_ids | length] | max) >= 1024' "$T/canaries.json"
}

@test "learn leaves out what replicas answer differently" {
  start_oracles 2
  fault 2 wrong@1
  run -1 learn
}

@test "once is the status of a monitoring plug-in" {
  start_oracles 2
  learn
  run -0 canary once --worker "${URLS[0]}" --canaries "$T/canaries.json"
  [ "${lines[0]}" = healthy ]
  [ "$(awk '{print $1, $2}' <<<"$output")" = $'healthy \ncheck outcome\nconnect pass\nhealth pass\nprogress pass\ntoken pass\ncontent pass\ncontent, sampler' ]
  curl -sSf "${URLS[0]}/oracle" -d '{"wrong_sampler":true}' >/dev/null
  run -2 canary once --worker "${URLS[0]}" --canaries "$T/canaries.json" --json
  [ "$(jq -r '.outcome, .sampler, (.checks | map(.check) | join(" "))' <<<"$output")" = $'mismatch\ntrue\nconnect health progress token content content' ]
  curl -sSf "${URLS[0]}/oracle" -d '{"wrong_sampler":false,"logprob_noise":0.5}' >/dev/null
  run -1 canary once --worker "${URLS[0]}" --canaries "$T/canaries.json"
  [[ ${lines[0]} == "suspicious: content: a log-probability differs (canary "* ]]
  curl -sSf "${URLS[0]}/oracle" -d '{"logprob_noise":0}' >/dev/null
  fault 2 wrong@2
  run -2 canary once --worker "${URLS[1]}" --canaries "$T/canaries.json" --json
  [ "$(jq -r '.outcome, .evidence.position' <<<"$output")" = $'mismatch\n2' ]
  run -2 canary once --worker http://127.0.0.1:1 --canaries "$T/canaries.json"
  run -3 canary once --worker "${URLS[0]}" --canaries "$T/canaries.json" --model other
}

@test "a malformed file of canaries is 65" {
  start_oracles 2
  learn
  head -c 1000 "$T/canaries.json" >"$T/bad.json"
  fails 65 "read '$T/bad.json': *" canary run --canaries "$T/bad.json"
  jq '.canaries[0].answer[0].token_id = "x"' "$T/canaries.json" >"$T/bad.json"
  fails 65 "read '$T/bad.json': canary 'builtin-*': token_id: not a token id" canary run --canaries "$T/bad.json"
  head -c 17000000 /dev/zero >"$T/bad.json"
  run -65 canary run --canaries "$T/bad.json"
}

# --- run, state -----------------------------------------------------------------------------------

@test "one wrong worker of four is convicted, over kill -9, until it is acquitted" {
  convict_the_fourth
  wait_for "fo-reg get verdicts/$(id 4)/a | jq -e '.health == \"convicted\" and .expires == null and .weight == 0'"
  wait_for "jq -e '.workers[] | select(.health == \"convicted\")' $T/state.json"
  kill_now "$CANARY"
  fault 4 none
  start_canary --state "$T/state.json"
  await_healths "healthy healthy healthy convicted"
  canary acquit "$(id 4)"
  await_healths "healthy healthy healthy healthy"
}

@test "run starts without a state file of another version, and goes on if it cannot write one" {
  start_oracles 2
  learn
  register 2
  echo '{"version":9,"workers":{}}' >"$T/state.json"
  start_canary --state "$T/state.json"
  wait_for "grep -q \"read '$T/state.json': not the state of a canary; starting without it\" $T/canary.err"
  await_healths "healthy healthy"
  wait_for "jq -e '.version == 1 and (.workers | length) == 2' $T/state.json"
  kill_now "$CANARY"
  start_canary --state "$T/missing/state.json"
  wait_for "grep -q \"$T/missing/state.json.*: No such file or directory\" $T/canary.err"
  await_healths "healthy healthy"
}

@test "two files for the same workers are 64" {
  start_oracles 2
  learn
  fails 64 "canaries for model 'oracle': two files apply to the same workers" canary run --canaries "$T/canaries.json" --canaries "$T/canaries.json"
}

@test "no worker is convicted if all four differ in the same way" {
  start_oracles 4
  learn
  register 4
  local n
  for n in 1 2 3 4; do fault "$n" wrong@0; done
  start_canary
  wait_for "grep -q canary_stale $T/canary.err"
  await_healths "healthy healthy healthy healthy"
}

@test "two of four, and a lone worker, are suspicious" {
  start_oracles 4
  learn
  register 4
  fault 3 wrong@2
  fault 4 wrong@2
  start_canary
  await_healths "healthy healthy suspicious suspicious"
}

@test "a worker with a wrong sampler and a right greedy path is convicted" {
  start_oracles 3
  learn
  register 3
  curl -sSf "${URLS[2]}/oracle" -d '{"wrong_sampler":true}' >/dev/null
  start_canary
  await_healths "healthy healthy convicted"
}

@test "a lone wrong worker has half of its weight" {
  start_oracles 2
  learn
  register 1
  fault 1 wrong@2
  start_canary
  await_healths suspicious
  wait_for "fo-reg get verdicts/$(id 1)/a | jq -e '.weight == 0.5'"
}

@test "a fatal error of a GPU in a log convicts its worker on that host, until it is acquitted" {
  start_oracles 2
  learn
  register 2
  start_bg placed fo-reg put --endpoint ns/worker/generate --url "${URLS[1]}" --model oracle --id "$(id 3)" --host gpu-1 --gpu 0000:3b:00.0
  xid() { echo "[  102.000000] NVRM: Xid (PCI:0000:3b:00): $1, pid=1122, name=a, text" >>"$T/$2"; }
  xid 48 kern.log
  : >"$T/own.log"
  start_canary --metrics 127.0.0.1:0 --ready-fd 9 --xid "gpu-1=$T/kern.log" --xid "$T/own.log" 9>"$T/port"
  await_healths "healthy healthy healthy"
  xid 48 own.log
  xid 31 kern.log
  wait_for "grep -q \"host 'gpu-1': Xid 31 of GPU 0000:3b:00.0: memory page fault (application); workers on it: 1\" $T/canary.err"
  wait_for "grep -q 'Xid 48.*(fatal); workers on it: 0' $T/canary.err"
  [ "$(healths)" = "healthy healthy healthy" ]
  xid 79 kern.log
  await_healths "healthy healthy convicted"
  wait_for "fo-reg get verdicts/$(id 3)/a | jq -e '.reason == \"Xid 79 of GPU 0000:3b:00.0: the GPU has fallen off the bus\" and .expires == null'"
  curl -sS "http://127.0.0.1:$(cat "$T/port")/metrics" | grep -x 'fo_canary_xids_total{class="fatal"} 2'
  canary acquit "$(id 3)"
  await_healths "healthy healthy healthy"
}

@test "what the kernel's own log has from the start on convicts" {
  need_root
  [ -w /dev/kmsg ] || skip_because root "the kernel's log is not writable here"
  start_oracles 2
  learn
  register 1
  start_bg placed fo-reg put --endpoint ns/worker/generate --url "${URLS[1]}" --model oracle --id "$(id 2)" --gpu fffffffe:3b:00.0
  fatal() { echo "NVRM: Xid (PCI:FFFFFFFE:3b:00): 79, a test of failover" >/dev/kmsg; }
  fatal
  start_canary --xid /dev/kmsg
  await_healths "healthy healthy"
  fatal
  await_healths "healthy convicted"
}

@test "a log of the kernel that does not exist is 66" {
  start_oracles 2
  learn
  fails 66 "open '$T/none': No such file or directory" canary run --canaries "$T/canaries.json" --xid "gpu-1=$T/none"
}

@test "a log of the kernel that can't be followed is a usage error" {
  start_oracles 2
  learn
  mkfifo "$T/pipe"
  local path
  for path in "$T/pipe" "$T" /dev/null; do
    fails 64 "--xid: '$path' is neither a file nor the kernel's log" \
      timeout 30 fo-canary run --canaries "$T/canaries.json" --xid "gpu-1=$path"
  done
}

@test "state without a canary is 69" {
  fails 69 "*" canary state
}
