#!/usr/bin/env bats
# fo-shadow: the behaviour on its page.

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # text for other shells; tests are subshells
load test_helper
load gms_client

setup() {
  fo_setup
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_CONTEXT_SIZE=0 GMS_SIM_VRAM=2GiB
  # Disables the status server on a port, except where a test sets one.
  export DYN_SYSTEM_PORT=-1
  SOCKET=$T/gms_0_weights.sock
}

# shadow [OPTION]...: runs it in the foreground, with nothing but errors on standard error.
shadow() { timeout 30 fo-shadow -q --gpu-free 0 "$@"; }

# start_shadow ID [OPTION]...: in the background; its events are in $T/ID.events, its pid in SHADOW.
start_shadow() {
  local id=$1
  shift
  start_bg "$id" fo-shadow -q --id "$id" --gpu-free 0 --status-fd 7 "$@" 7>"$T/$id.events"
  SHADOW=$BG_PID
}

# Options with which any program can be the engine, controlled by commands.
BY_COMMANDS=(--engine command --sleep : --wake :)

# await_state ID STATE: waits until fo-shadow ID is in this state.
await_state() { gms-probe engine -q --id "$1" --state "$2" --wait 10s >/dev/null; }
# active START ID..., standby START ID...: starts it, and waits until it is in this state.
active() { "$@"; await_state "$2" active; }
standby() { "$@"; await_state "$2" standby; }

# events_of ID: prints the events and states that ID has reported.
events_of() { jq -r 'if .event == "state" then .state else .event end' "$T/$1.events" | tr '\n' ' '; }

# said ID PATTERN: ID's standard error is one line, an error that matches.
said() {
  [ "$(wc -l <"$T/$1.err")" -eq 1 ] || { cat "$T/$1.err"; return 1; }
  # shellcheck disable=SC2053
  [[ $(cat "$T/$1.err") == "fo-shadow: error: "$2 ]] || { cat "$T/$1.err"; return 1; }
}

# hold_lock: starts another process that holds the lock; free_lock ends it.
hold_lock() {
  start_bg holder gms-lock acquire --exec --id other -- sleep 1000
  HOLDER=$BG_PID
  wait_for 'gms-lock owner | grep -qx other'
}
free_lock() {
  kill "$HOLDER"
  wait_exit "$HOLDER"
}

# page ID PATH [CURL-OPTION]...: prints the answer of ID's status server on its socket.
page() { curl -sS --max-time 20 --unix-socket "$T/lock.$1.sock" "http://localhost$2" "${@:3}"; }
# health ID: prints status and state; the whole answer is in $T/health.json.
health() {
  page "$1" /health -o "$T/health.json" -w '%{http_code} '
  jq -r .state "$T/health.json"
}

# pick_address: sets PUBLISHED to a free address.
pick_address() {
  pick_port
  PUBLISHED=127.0.0.1:$PORT
}
# start_model: creates $T/model, starts a GMS with its weights, and picks an address for its engines.
start_model() {
  export GMS_SOCKET_DIR=$T
  make_small_model
  serve_model
  pick_address
}
# start_engine ID [OPTION]...: starts fo-shadow with a fo-refengine that is published at $PUBLISHED.
start_engine() {
  local id=$1
  shift
  pick_port
  start_shadow "$id" --engine-url "http://127.0.0.1:$PORT" --publish "$PUBLISHED" "$@" -- \
    fo-refengine serve -q --model "$T/model" --port "$PORT" --kv-bytes 64MiB
}
# complete: prints the tokens from the published address.
complete() {
  curl -sS --fail --max-time 30 -d '{"prompt":"Hello","max_tokens":4}' \
    "http://$PUBLISHED/v1/completions" | jq -ce '.choices[0].token_ids'
}
# start_stream NAME TOKENS: starts a streamed completion, and waits for its beginning.
start_stream() {
  start_bg "$1" curl -sSN --max-time 60 -d \
    '{"prompt":"Hello","stream":true,"ignore_eos":true,"max_tokens":'"$2"'}' "http://$PUBLISHED/v1/completions"
  STREAM=$BG_PID
  wait_for "grep -q '^data: ' $T/$1.out"
}

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors, in one line" {
  usage_errors fo-shadow "" "--" "true" "--engine tgi -- true" "--port 65536 -- true" "--port x -- true" \
    "--port 65500 -- true" "--engine dynamo --port -1 -- true" "--engine command -- true" \
    "--engine command --sleep x -- true" "--publish nowhere -- true" "--publish 1.2.3.4 -- true" \
    "--health-target url -- true" "--health-target a=b -- true" "--engine-url x -- true" \
    "--engine-url http://example.org -- true" "--drain 5 -- true" "--gpu-free 1XB -- true" \
    "--sleep-level 3 -- true" "--failures 0 -- true" "--lock relative -- true" \
    "--devices x -- true" "--status-fd -2 -- true" "status -- true" "status --id a" \
    "switchover -- true" "switchover --timeout 5" "start -- true"
}

@test "invalid identities are 78" {
  ENGINE_ID=first fails 78 "read ENGINE_ID 'first': not a non-negative number" \
    shadow "${BY_COMMANDS[@]}" -- true
  local id
  for id in a/b $'a\nb'; do
    fails 78 "*" \
      shadow "${BY_COMMANDS[@]}" --id "$id" -- true
  done
  DYN_SYSTEM_STARTING_HEALTH_STATUS=maybe fails 78 "read DYN_SYSTEM_STARTING_HEALTH_STATUS 'maybe': neither 'ready' nor 'notready'" \
    shadow "${BY_COMMANDS[@]}" -- true
}

# --- life -----------------------------------------------------------------------------------------

@test "a whole life: events, health, and the lock" {
  hold_lock
  mkfifo "$T/wake"
  start_shadow a --port 0 --host 127.0.0.1 --engine command --health "test -e $T/healthy" --sleep : \
    --wake "cat $T/wake" --deregister : --register : -- \
    bash -c "exec 2>/dev/null; trap 'gms-lock owner >$T/owner; exit 3' TERM; while :; do sleep 0.01; done"
  wait_for '[ -n "$(page a /status)" ]'
  [ "$(health a)" = "503 init" ]
  [ "$(jq -r .reason "$T/health.json")" = "the engine is being started" ]
  run -1 gms-probe engine --id a --state active
  touch "$T/healthy"
  await_state a standby
  [ "$(health a)" = "200 standby" ]
  [ "$(page a /ready | jq -r .state)" = standby ]
  run -0 gms-probe engine --id a --state standby
  run -0 gms-probe http "unix:$T/lock.a.sock:/health" --field state=standby
  # A port, whose number /status reports, gives the same answers.
  local url
  url=http://127.0.0.1:$(page a /status | jq .port)
  run -0 gms-probe http "$url/live" --field state=standby --field status=ready
  [ "$(gms-lock owner)" = other ]
  [ "$(events_of a)" = "child_started asleep standby waiting " ]
  free_lock
  await_state a waking
  [ "$(health a)" = "200 waking" ]
  timeout 30 tee "$T/wake" </dev/null
  await_state a active
  [ "$(health a)" = "200 active" ]
  [ "$(gms-lock owner)" = a ]
  page a /metrics >"$T/metrics"
  grep -qx 'fo_engine_state{engine_id="a",state="active"} 1' "$T/metrics"
  terminate "$SHADOW"
  [ "$(events_of a)" = "child_started asleep standby waiting granted waking checked awake first_token registered active deregistered dead child_ended ended " ]
  # When the engine ended, fo-shadow still held the lock.
  [ "$(cat "$T/owner")" = a ]
  run -1 gms-lock owner
  [ "$(find "$T" -type s)" = "" ]
  [ ! -s "$T/a.err" ]
}

@test "promtool accepts the metrics" {
  need_promtool
  active start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
  page a /metrics >"$T/metrics"
  promtool check metrics <"$T/metrics"
}

@test "DYN_SYSTEM_STARTING_HEALTH_STATUS sets the health during the start" {
  DYN_SYSTEM_STARTING_HEALTH_STATUS=ready start_shadow a "${BY_COMMANDS[@]}" --health false -- sleep 1000
  wait_for '[ -n "$(page a /status)" ]'
  [ "$(health a)" = "200 init" ]
  run -0 gms-probe engine --id a --state init
}

@test "an active engine is as healthy as its targets" {
  pick_port
  active start_shadow a "${BY_COMMANDS[@]}" --health-target "api=http://127.0.0.1:$PORT/" \
    --health-interval 50ms -- sleep 1000
  wait_for '[ "$(health a)" = "503 active" ]'
  printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n' >"$T/answer"
  start_bg target socat "TCP-LISTEN:$PORT,bind=127.0.0.1,reuseaddr,fork" "SYSTEM:cat $T/answer"
  wait_for '[ "$(health a)" = "200 active" ]'
  [ "$(jq -r .endpoints.api "$T/health.json")" = ready ]
}

@test "an engine that wakes for too long is not healthy" {
  start_shadow a --engine command --sleep : --wake 'sleep 1000' --wake-timeout 1s --grace 100ms -- \
    bash -c 'trap "" TERM; while :; do sleep 0.1; done'
  await_state a waking
  [ "$(health a)" = "200 waking" ]
  expect_exit "$SHADOW" 75
}

@test "the engine inherits the lock, but no other descriptor or service manager's variable" {
  export WATCHDOG_USEC=1000000
  NOTIFY_SOCKET=$T/none.sock start_bg a fo-shadow -q --id a --gpu-free 0 "${BY_COMMANDS[@]}" -- \
    bash -c 'env >"$0/env"; readlink "/proc/self/fd/$FAILOVER_LOCK_FD"; ls -l /proc/self/fd >"$0/fds"
      grep SigBlk /proc/self/status; exec sleep 1000' "$T"
  wait_for "[ \$(wc -l <$T/a.out) -eq 2 ]"
  [ "$(cat "$T/a.out")" = "$T/lock
SigBlk:	0000000000000000" ]
  grep -qx FAILOVER_LOCK_ID=a "$T/env"
  run ! grep -E '^(NOTIFY_SOCKET|WATCHDOG)' "$T/env"
  # The lock's descriptor is the only additional one.
  start_bg plain bash -c 'ls -l /proc/self/fd >"$0/fds.plain"' "$T"
  wait_exit "$BG_PID"
  [ "$(wc -l <"$T/fds")" -eq $(($(wc -l <"$T/fds.plain") + 1)) ]
}

@test "the status port is DYN_SYSTEM_PORT, and the engine gets one of its own" {
  pick_port
  DYN_SYSTEM_PORT=$PORT active start_shadow a --host 127.0.0.1 "${BY_COMMANDS[@]}" -- \
    sh -c 'echo "$DYN_SYSTEM_PORT"; exec sleep 1000'
  run -0 gms-probe http "http://127.0.0.1:$PORT/health" --field state=active
  [ "$(cat "$T/a.out")" = $((PORT + 100)) ]
}

# --- ends -----------------------------------------------------------------------------------------

@test "an engine that does not come up ends it: 126, 127, its own status, 75" {
  fails 126 "run '$T': *" \
    shadow "${BY_COMMANDS[@]}" -- "$T"
  fails 127 "run '/absent': No such file or directory" \
    shadow "${BY_COMMANDS[@]}" -- /absent
  fails 7 "the engine ended with status 7, while init" \
    shadow "${BY_COMMANDS[@]}" --health false -- sh -c 'exit 7'
  fails 139 "the engine ended with status 139, while init" \
    shadow "${BY_COMMANDS[@]}" --health false -- sh -c 'kill -SEGV $$'
  fails 75 "start the engine: not healthy in time: *status 1: cold" \
    shadow "${BY_COMMANDS[@]}" --health 'echo cold >&2; false' --start-timeout 300ms -- sleep 1000
  run -1 gms-lock owner
}

@test "an engine that can't be put to sleep ends it: 70, or 75" {
  fails 70 "put the engine to sleep: command *: status 1: no" \
    shadow --engine command --sleep 'echo no >&2; exit 1' --wake : -- sleep 1000
  fails 75 "put the engine to sleep: command 'sleep 1000': timed out" \
    shadow --engine command --sleep 'sleep 1000' --wake : --sleep-timeout 200ms -- sleep 1000
}

@test "an engine that does not wake in time ends it: 75" {
  fails 75 "wake the engine: command 'sleep 100': timed out" \
    shadow --engine command --sleep : --wake 'sleep 100' --wake-timeout 200ms -- sleep 1000
  run -1 gms-lock owner
}

@test "a first generation that fails ends it: 70" {
  fails 70 "first generation: *status 1: garbled" \
    shadow "${BY_COMMANDS[@]}" --prove 'echo garbled >&2; false' --register "touch $T/registered" -- sleep 1000
  fails 70 "first generation: *timed out" \
    shadow "${BY_COMMANDS[@]}" --prove 'sleep 1000' --prove-timeout 200ms -- sleep 1000
  [ ! -e "$T/registered" ]
}

@test "a register command that fails ends it: 69" {
  fails 69 "register: status 1" shadow "${BY_COMMANDS[@]}" --register false --deregister "gms-lock owner >$T/owner" -- sleep 1000
  [ "$(cat "$T/owner")" = engine-0 ]
}

@test "an engine that dies, asleep or awake, ends it with the engine's status" {
  active start_shadow a "${BY_COMMANDS[@]}" --deregister "gms-lock owner >$T/owner" --register : -- \
    sh -c 'sleep 1000 & echo $$; wait'
  start_shadow b "${BY_COMMANDS[@]}" -- sh -c 'echo $$; exec sleep 1000'
  local b=$SHADOW a=${BG_PIDS[0]}
  await_state b standby
  kill -KILL "$(cat "$T/b.out")"
  expect_exit "$b" 137
  said b "the engine ended with status 137, while standby"
  kill -TERM "$(cat "$T/a.out")"
  expect_exit "$a" 143
  said a "the engine ended with status 143, while active"
  [ "$(cat "$T/owner")" = a ]
}

@test "a lock that is lost ends it: 76" {
  active start_shadow a "${BY_COMMANDS[@]}" --grace 100ms --register : --deregister "touch $T/deregistered" -- \
    bash -c 'trap "" TERM; while :; do sleep 0.1; done'
  touch "$T/new"
  mv "$T/new" "$T/lock"
  expect_exit "$SHADOW" 76
  said a "hold lock '$T/lock': the file was replaced"
  [ -e "$T/deregistered" ]
  [[ $(events_of a) == *"active lost child_ended deregistered dead ended " ]]
}

@test "an id or a port in use: 73" {
  pick_port
  active start_shadow a --port "$PORT" --host 127.0.0.1 "${BY_COMMANDS[@]}" -- sleep 1000
  fails 73 "*'$T/lock.a.sock'*" \
    shadow --id a "${BY_COMMANDS[@]}" -- sleep 1000
  fails 73 "*'127.0.0.1:$PORT'*" \
    shadow --id b --port "$PORT" --host 127.0.0.1 "${BY_COMMANDS[@]}" -- sleep 1000
  start_bg target socat "TCP-LISTEN:$((PORT + 1)),bind=127.0.0.1,reuseaddr" STDOUT
  wait_for "(: <>/dev/tcp/127.0.0.1/$((PORT + 1)))"
  kill -0 "$SHADOW"
}

@test "a published address in use: 73, when it becomes active" {
  pick_address
  start_bg target socat "TCP-LISTEN:$PORT,bind=127.0.0.1,fork" STDOUT
  wait_for "(: <>/dev/tcp/127.0.0.1/$PORT)"
  fails 73 "*'$PUBLISHED'*" \
    shadow "${BY_COMMANDS[@]}" --publish "$PUBLISHED" -- sleep 1000
}

@test "an engine that hangs behind a healthy /health is ended: 69, and the other one takes over" {
  active start_shadow a "${BY_COMMANDS[@]}" --prove "! [ -e $T/hung ] || sleep 1000" --prove-interval 100ms \
    --prove-timeout 200ms --failures 2 --register : --deregister "gms-lock owner >$T/owner" -- sleep 1000
  local a=$SHADOW
  standby start_shadow b "${BY_COMMANDS[@]}" -- sleep 1000
  touch "$T/hung"
  expect_exit "$a" 69
  said a "the engine does not serve any more: *timed out"
  [ "$(cat "$T/owner")" = a ]
  await_state b active
}

@test "an engine whose health check fails is ended: 69" {
  active start_shadow a "${BY_COMMANDS[@]}" --health "! [ -e $T/ill ] || { echo fever >&2; false; }" \
    --health-interval 50ms --failures 2 -- sleep 1000
  touch "$T/ill"
  expect_exit "$SHADOW" 69
  said a "the engine does not serve any more: *status 1: fever"
}

# --- the whole tree -------------------------------------------------------------------------------

# nothing_left: succeeds if no process of this test runs any more.
nothing_left() {
  export -n FO_TEST_MARK
  ! processes_left
}

# An engine that ignores SIGTERM, and has orphans.
STUBBORN='trap "" TERM; setsid sleep 1000 & (setsid sh -c "sleep 1000 & wait" &)
  (trap "" INT TERM HUP; exec setsid sleep 1000 &); touch "$0/up"; while :; do sleep 0.1; done'

@test "SIGTERM: all of a stubborn engine has ended when fo-shadow ends, within --grace" {
  active start_shadow a "${BY_COMMANDS[@]}" --grace 300ms -- bash -c "$STUBBORN" "$T"
  wait_for "[ -e $T/up ]"
  [ "$(processes_left | wc -l)" -gt 4 ]
  terminate "$SHADOW"
  nothing_left
  run -1 gms-lock owner
}

@test "a second SIGTERM ends everything at once" {
  active start_shadow a "${BY_COMMANDS[@]}" --grace 1000s --register : --deregister 'sleep 1000' \
    --register-timeout 1000s -- bash -c "$STUBBORN" "$T"
  kill "$SHADOW"
  wait_for 'pgrep -f "sh -c sleep 1000" -P $SHADOW || pgrep -P $SHADOW -x sleep'
  terminate "$SHADOW"
  nothing_left
}

@test "leftovers of an engine that died are killed before the lock is free" {
  active start_shadow a "${BY_COMMANDS[@]}" --grace 1000s -- \
    bash -c 'trap "" TERM; setsid sleep 1000 & echo $! >"$0/orphan"; until [ -e "$0/die" ]; do sleep 0.01; done; exit 4' "$T"
  touch "$T/die"
  expect_exit "$SHADOW" 4
  run ! kill -0 "$(cat "$T/orphan")"
  run -1 gms-lock owner
}

@test "SIGKILL of fo-shadow ends the engine, and releases the lock" {
  active start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
  standby start_shadow b "${BY_COMMANDS[@]}" -- sleep 1000
  kill -KILL "${BG_PIDS[0]}"
  await_state b active
  [ "$(gms-lock owner)" = b ]
  # The leftover status socket does not block a successor.
  standby start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
}

@test "pid 1: it ends on SIGTERM, with all its processes, and reaps orphans" {
  need_pid_namespace
  start_bg container unshare --pid --fork --kill-child --mount-proc fo-shadow -q --id a \
    --gpu-free 0 "${BY_COMMANDS[@]}" -- bash -c '(true & exec true); (sleep 0.01 &); echo "$PPID"; exec sleep 1000'
  await_state a active
  [ "$(cat "$T/container.out")" = 1 ]
  local init
  init=$(tr -d ' ' <"/proc/$BG_PID/task/$BG_PID/children")
  wait_for '[ "$(pgrep -P '"$init"' -c)" -eq 1 ]'
  kill "$init"
  expect_exit "$BG_PID" 0
}

# --- registration ---------------------------------------------------------------------------------

@test "register runs after the wake is proven, deregister before the lock is released" {
  export LOG=$T/log
  local told='$FAILOVER_LOCK_ID $FAILOVER_GENERATION $FO_ENGINE_URL $FO_PUBLISH'
  pick_address
  active start_shadow a --engine command --sleep 'echo sleep >>$LOG' --wake 'echo wake >>$LOG' \
    --health 'grep -q health $LOG || { grep -q start $LOG && echo health >>$LOG; }' \
    --prove 'echo prove >>$LOG' \
    --engine-url http://127.0.0.1:9 --publish "$PUBLISHED" \
    --register 'echo "register '"$told"'" >>$LOG' \
    --deregister 'echo "deregister '"$told"' $(gms-lock owner)" >>$LOG' -- \
    sh -c 'echo start >>$LOG; exec sleep 1000'
  terminate "$SHADOW"
  [ "$(cat "$LOG")" = "start
health
sleep
wake
prove
register a 1 http://127.0.0.1:9 $PUBLISHED
deregister a 1 http://127.0.0.1:9 $PUBLISHED a" ]
}

@test "a deregister command that hangs is cut at --register-timeout" {
  active start_shadow a "${BY_COMMANDS[@]}" --register : --deregister 'sleep 1000' --register-timeout 200ms -- sleep 1000
  terminate "$SHADOW"
  said a "deregister: not done within 200ms"
}

@test "an engine that was never active is not deregistered" {
  hold_lock
  standby start_shadow a "${BY_COMMANDS[@]}" --register : --deregister "touch $T/deregistered" -- sleep 1000
  terminate "$SHADOW"
  [ ! -e "$T/deregistered" ]
  [ "$(events_of a)" = "child_started asleep standby waiting dead child_ended ended " ]
}

# --- kinds of engines -----------------------------------------------------------------------------

@test "cold: nothing runs until fo-shadow holds the lock" {
  local options=(--engine cold --health : --prove :)
  active start_shadow a "${options[@]}" -- sh -c 'echo a; exec sleep 1000'
  local a=$SHADOW
  standby start_shadow b "${options[@]}" -- sh -c 'gms-lock owner; exec sleep 1000'
  [ "$(events_of b)" = "standby waiting " ]
  [ ! -s "$T/b.out" ]
  answers 0 '["standby",null]' jq -c '[.state, .engine_pid]' <<<"$(page b /status)"
  kill -KILL "$a"
  await_state b active
  wait_for "[ -s $T/b.out ]"
  [ "$(cat "$T/b.out")" = b ]
  [ "$(events_of b)" = "standby waiting granted waking child_started awake checked first_token active " ]
}

@test "--no-failover: started, registered, served, without a lock" {
  start_shadow a --no-failover --port 0 --host 127.0.0.1 --engine command --sleep 'touch $T/slept' --wake : \
    --register 'touch $T/registered' --deregister 'rm $T/registered' -- sleep 1000
  wait_for "grep -q active $T/a.events"
  [ -e "$T/registered" ]
  terminate "$SHADOW"
  [ "$(events_of a)" = "child_started registered active deregistered dead child_ended ended " ]
  [ ! -e "$T/registered" ] && [ ! -e "$T/slept" ]
  [ "$(find "$T" -name 'lock*')" = "" ]
}

# --- the weights ----------------------------------------------------------------------------------

# start_sleeper [OPTION]...: a GMS with one allocation, whose layout a standby has read.
start_sleeper() {
  export GMS_SOCKET_DIR=$T
  start_layout 4096
  hold_lock
  standby start_shadow b "${BY_COMMANDS[@]}" "$@" -- sleep 1000
}

# end_gms: kills the memory server, and returns once its sockets refuse connections.
end_gms() {
  kill -KILL "$GMS_PID"
  wait_for "! gms-probe sockets -q --devices 0 --tags weights"
}

@test "no GMS for all of --remap-timeout: 69 at the start, and at the wake" {
  fails 69 "*'$T/none.sock'*" \
    shadow --gms "$T/none.sock" --remap-timeout 200ms "${BY_COMMANDS[@]}" -- sleep 1000
  fails 69 "look for sockets in '$T': none found" \
    shadow --socket-dir "$T" "${BY_COMMANDS[@]}" -- sleep 1000
  start_sleeper --remap-timeout 200ms
  end_gms
  free_lock
  expect_exit "$SHADOW" 69
  said b "*'$SOCKET'*"
  run -1 gms-lock owner
}

@test "a wake waits for a GMS that restarts" {
  start_sleeper
  end_gms
  free_lock
  await_state b waking
  start_layout 4096
  await_state b active
}

@test "a writer that holds the GMS: 75 after --remap-timeout, at the start and at the wake" {
  start_sleeper --remap-timeout 400ms
  ask_lock writer rw "$SOCKET"
  wait_stat state RW
  fails 75 "GMS at '$SOCKET': Timeout waiting for lock ro" \
    shadow --id c "${BY_COMMANDS[@]}" --remap-timeout 200ms -- sleep 1000
  free_lock
  expect_exit "$SHADOW" 75
  said b "GMS at '$SOCKET': Timeout waiting for lock ro"
}

@test "a layout that changed while it slept: 65" {
  start_sleeper
  publish "$SOCKET" 8192
  free_lock
  expect_exit "$SHADOW" 65
  said b "GMS at '$SOCKET': Layout changed: * instead of *"
  run -1 gms-lock owner
}

@test "while active, it holds the layout, and a GMS that does not restart ends it: 69" {
  start_sleeper --gms-grace 300ms --register : --deregister "gms-lock owner >$T/owner"
  [ "$(stat_field ro_session_count)" = 0 ]
  free_lock
  await_state b active
  [ "$(stat_field ro_session_count)" = 1 ]
  page b /metrics | grep -qx 'fo_gms_connection_up{device="0",tag="weights"} 1'
  kill -KILL "$GMS_PID"
  expect_exit "$SHADOW" 69
  said b "lost the weights: *'$SOCKET'*, within 300ms"
  [ "$(cat "$T/owner")" = b ]
}

@test "a GMS that restarts in time with the same layout ends nothing, another layout ends it" {
  start_model
  active start_shadow a "${BY_COMMANDS[@]}" --gms-grace 3s -- sleep 1000
  local up='fo_gms_connection_up{device="0",tag="weights"}'
  end_gms
  wait_for "page a /metrics | grep -qx '$up 0'"
  [ "$(health a)" = "200 active" ]
  serve_model
  wait_for "page a /metrics | grep -qx '$up 1'"
  [ "$(page a /status | jq -c '.gms[0].connected')" = true ]
  kill -0 "$SHADOW"
  end_gms
  wait_for "page a /metrics | grep -qx '$up 0'"
  start_layout 4096
  expect_exit "$SHADOW" 69
  said a "lost the weights: *Layout changed: * instead of *, within 3s"
}

# --- a real pair ----------------------------------------------------------------------------------

@test "the published address belongs to the active engine, also after a SIGKILL" {
  start_model
  hold_lock
  standby start_engine a
  local a=$SHADOW answer
  run -7 curl -sS "http://$PUBLISHED/health"
  free_lock
  await_state a active
  answer=$(complete)
  standby start_engine b
  kill -KILL "$a"
  await_state b active
  [ "$(complete)" = "$answer" ]
}

# asked PATH [CURL-OPTION]...: prints the status from the published address.
asked() { curl -sS --path-as-is --max-time 20 -o "$T/answer" -w '%{http_code}' "http://$PUBLISHED$1" "${@:2}"; }

@test "clients of the published address can't control the engine, unless --publish-control lets them" {
  start_model
  active start_engine a
  local path
  for path in '/sleep?level=1' //sleep /./sleep /x/../sleep /%73leep /sleep/ /SLEEP /wake_up; do
    [ "$(asked "$path" -X POST)" = 403 ] || { echo "$path"; return 1; }
  done
  [ "$(asked /is_sleeping)" = 403 ]
  [ "$(jq -r .error.message "$T/answer")" = "this path is for the engine's operator" ]
  # A request in absolute form, one after another request, and bytes that are not HTTP.
  [ "$(asked / --request-target 'http://x/sleep' -X POST)" = 403 ]
  printf 'GET /health HTTP/1.1\r\nHost: x\r\n\r\nPOST /sleep HTTP/1.1\r\nHost: x\r\n\r\n' |
    socat -t 20 - "TCP:$PUBLISHED" >"$T/two"
  [ "$(grep -a -c '^HTTP/1.1 [24]0' "$T/two")" -eq 2 ]
  [ "$(grep -a '^HTTP/1.1 ' "$T/two" | tail -n 1 | tr -d '\r')" = "HTTP/1.1 403 Forbidden" ]
  [[ "$(printf 'POST /sleep HTTP/1.1\n\n' | socat -t 20 - "TCP:$PUBLISHED")" == "HTTP/1.1 400 "* ]]
  for path in /health /v1/models /metrics /version; do
    [ "$(asked "$path")" = "$(curl -sS -o /dev/null -w '%{http_code}' "$(page a /status | jq -r .url)$path")" ] || { echo "$path"; return 1; }
  done
  complete
  terminate "$SHADOW"
  active start_engine a --publish-control
  [ "$(asked /is_sleeping)" = 200 ]
}

@test "refused requests to the published address do not fill the log" {
  start_model
  pick_port
  active start_bg a fo-shadow --id a --gpu-free 0 --engine-url "http://127.0.0.1:$PORT" --publish "$PUBLISHED" -- \
    fo-refengine serve -q --model "$T/model" --port "$PORT" --kv-bytes 64MiB
  # Each request has its own connection, because a refusal ends it.
  curl -sS --max-time 60 -X POST -o /dev/null "http://$PUBLISHED/sleep?[1-100]"
  local -i lines
  lines=$(grep -c "^fo-shadow: warning: refuse a request on '$PUBLISHED': its path controls the engine$" "$T/a.err")
  [ "$lines" -ge 5 ]
  [ "$lines" -lt 50 ]
}

@test "silent connections block neither probes nor clients" {
  start_model
  pick_port
  # With few descriptors, there are seven connections for probes, and twenty for clients.
  active start_bg a bash -c 'ulimit -n 120; exec "$@"' - fo-shadow -q --id a --gpu-free 0 --port 0 \
    --host 127.0.0.1 --publish "$PUBLISHED" --engine-url "http://127.0.0.1:$PORT" -- \
    fo-refengine serve -q --model "$T/model" --port "$PORT" --kv-bytes 64MiB
  local probes i
  probes=$(page a /status | jq .port)
  for i in {1..60}; do
    eval "exec $((100 + i))<>/dev/tcp/127.0.0.1/$probes $((200 + i))<>/dev/tcp/${PUBLISHED/://}"
  done
  run -0 gms-probe http "http://127.0.0.1:$probes/health" --field state=active
  complete
}

@test "a switchover loses no request, and a stream in flight finishes" {
  start_model
  active start_engine a
  standby start_engine b
  # Sends twenty requests on each connection, until $T/enough exists.
  cat >"$T/client.sh" <<'END'
until [ -e "$T/enough" ]; do
  curl -sS --max-time 30 -o /dev/null -w '%{http_code}\n' -d '{"prompt":"Hello","max_tokens":1}' \
    "http://$PUBLISHED/v1/completions?[1-20]" || echo "failed"
done
END
  export PUBLISHED
  start_bg client bash "$T/client.sh"
  local client=$BG_PID
  wait_for "[ -s $T/client.out ]"
  start_stream stream 2000
  answers 0 b fo-shadow switchover --timeout 30s
  [ "$(gms-lock owner)" = b ]
  run -0 gms-probe engine --id b --state active
  expect_exit "$STREAM" 0
  [ "$(tail -n 2 "$T/stream.out" | tr -d '\n')" = "data: [DONE]" ]
  grep -q '"finish_reason":"length"' "$T/stream.out"
  # Switches over back to engine a.
  await_state a standby
  answers 0 '{"holder":"a"}' fo-shadow switchover --json
  touch "$T/enough"
  wait_exit "$client"
  [ "$(sort -u "$T/client.out")" = 200 ]
  [ ! -s "$T/client.err" ]
  [[ $(events_of a) == *" active draining asleep released standby waiting granted "*" active " ]]
}

@test "a switchover is refused while the GMS is unreachable or empty, and both engines run on" {
  start_model
  local options=("${BY_COMMANDS[@]}" --gms-grace 1000s)
  active start_shadow a "${options[@]}" -- sleep 1000
  local a=$SHADOW
  standby start_shadow b "${options[@]}" -- sleep 1000
  end_gms
  fails 75 "switch over the engines of lock '$T/lock': 'a' refuses: switch over: *'$SOCKET'*" \
    fo-shadow switchover
  start_weights
  fails 75 "*: 'a' refuses: switch over: GMS at '$SOCKET': Timeout waiting for lock ro" \
    fo-shadow switchover
  [ "$(health a)" = "200 active" ]
  [ "$(health b)" = "200 standby" ]
  publish_model
  wait_for '[ "$(page a /status | jq .gms[0].connected)" = true ]'
  answers 0 b fo-shadow switchover
  kill -0 "$a"
}

@test "SIGTERM lets a stream in flight finish within --drain, and cuts it after that" {
  start_model
  active start_engine a --drain 30s
  start_stream whole 2000
  terminate "$SHADOW"
  wait_exit "$STREAM"
  [ "$(tail -n 2 "$T/whole.out" | tr -d '\n')" = "data: [DONE]" ]
  grep -q '"finish_reason":"length"' "$T/whole.out"
  active start_engine a --drain 0s
  start_stream cut 4000
  terminate "$SHADOW"
  wait_exit "$STREAM"
  [ "$status" -ne 0 ]
  run ! grep -q '"finish_reason":"length"' "$T/cut.out"
}

@test "SIGTERM in the middle of a switchover ends fo-shadow normally, and a second one cuts" {
  start_model
  active start_engine a
  local a=$SHADOW
  standby start_engine b --register : --deregister :
  start_stream whole 2000
  start_bg over fo-shadow switchover
  local over=$BG_PID
  wait_for '[ "$(page a /status | jq .switching)" = true ]'
  terminate "$a"
  wait_exit "$STREAM"
  [ "$(tail -n 2 "$T/whole.out" | tr -d '\n')" = "data: [DONE]" ]
  expect_exit "$over" 0
  [ "$(cat "$T/over.out")" = b ]
  complete
  start_stream cut 4000
  kill "$SHADOW"
  wait_for "grep -q deregistered $T/b.events"
  terminate "$SHADOW"
  wait_exit "$STREAM"
  [ "$status" -ne 0 ]
}

@test "a core that hangs behind a healthy /health: 69, the other engine takes over" {
  start_model
  active start_engine a --prove-interval 200ms --prove-timeout 500ms --failures 2 --grace 200ms
  local a=$SHADOW rank engine
  local answer
  answer=$(complete)
  standby start_engine b
  engine=$(page a /status | jq .engine_pid)
  rank=$(pgrep -P "$engine" | head -n 1)
  kill -STOP "$rank"
  expect_exit "$a" 69
  said a "the engine does not serve any more: *"
  run ! kill -0 "$rank"
  await_state b active
  [ "$(complete)" = "$answer" ]
}

@test "status: both engines, the lock, the generation, the GMS; 1 when no engine is active" {
  ends_with 1 fo-shadow status
  [ "$output" = "lock: $T/lock
holder: -
generation: -" ]
  fails 66 "*missing folder '$T/no'*" fo-shadow status --lock "$T/no/lock"
  start_model
  active start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
  standby start_shadow b "${BY_COMMANDS[@]}" -- sleep 1000
  ends_with 0 fo-shadow status
  [ "$stderr" = "" ]
  local when='20[0-9-]*T[0-9:.]*Z'
  [ "${lines[0]}" = "lock: $T/lock" ]
  [ "${lines[1]}" = "holder: a" ]
  [ "${lines[2]}" = "generation: 1" ]
  [[ ${lines[3]} =~ ^engine\ a:\ active\ since\ $when,\ process\ ${BG_PIDS[1]}$ ]]
  [[ ${lines[4]} =~ ^\ \ last\ failover:\ generation\ 1,\ active\ at\ $when,\ lock\ [0-9.]+\ ?[a-z]+,\  ]]
  [[ ${lines[5]} =~ ^engine\ b:\ standby\ since\ $when,\ process\ $SHADOW$ ]]
  [[ ${lines[6]} =~ ^gms\ $SOCKET:\ RO,\ layout\ [0-9a-f]{64},\ 1\ readers?$ ]]
  [ "${#lines[@]}" -eq 7 ]
  ends_with 0 fo-shadow status --json
  jq -e --arg lock "$T/lock" '.lock == $lock and .holder == "a" and .generation == 1 and
    ([.engines[] | .id + " " + .state] == ["a active", "b standby"]) and
    (.engines[0].last_failover.phases | has("wake")) and .engines[1].last_failover == null and
    .gms[0].state == "RO" and .gms[0].ro_session_count == 1' <<<"$output"
  kill_now "$SHADOW"
  ends_with 0 fo-shadow status --json
  jq -e '[.engines[] | .id + " " + .state] == ["a active", "b dead"]' <<<"$output"
  terminate "${BG_PIDS[1]}"
  run -1 fo-shadow status
}

@test "switchover: 69 when no engine is active, 75 when none is in standby, or none takes over" {
  fails 69 "switch over the engines of lock '$T/lock': no engine is active" \
    fo-shadow switchover
  active start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
  fails 75 "switch over the engines of lock '$T/lock': 'a' refuses: switch over: no other engine is in standby" \
    fo-shadow switchover
  standby start_shadow b --engine command --sleep : --wake 'exec sleep 1000' -- sleep 1000
  run -0 page b /switchover -X POST
  [ "$(jq -r .error.message <<<"$output")" = "switch over: 'b' is standby" ]
  fails 75 "switch over the engines of lock '$T/lock': no other engine became active in time" \
    fo-shadow switchover --timeout 500ms
  [ "$(events_of a | grep -o 'active draining .*')" = "active draining asleep released standby " ] ||
    [[ $(events_of a) == *"active draining asleep released standby waiting "* ]]
  # Engine a waits for the lock again, and takes over when b fails.
  kill -KILL "$SHADOW"
  await_state a active
}

# --- a service manager ----------------------------------------------------------------------------

@test "a service manager receives ready, the state, watchdog and stopping" {
  start_manager
  export WATCHDOG_USEC=100000
  start_shadow a "${BY_COMMANDS[@]}" -- sleep 1000
  wait_for "grep -q STATUS=active $T/told"
  wait_for '[ "$(grep -o WATCHDOG=1 $T/told | wc -l)" -gt 2 ]'
  terminate "$SHADOW"
  wait_for "grep -q STATUS=dead $T/told"
  [ "$(sed 's/WATCHDOG=1//g' "$T/told")" = STATUS=standbyREADY=1STATUS=wakingSTATUS=activeREADY=1STOPPING=1STATUS=dead ]
  start_shadow a --no-failover "${BY_COMMANDS[@]}" -- sleep 1000
  wait_for '[ "$(grep -o READY=1 $T/told | wc -l)" -eq 3 ]'
}
