#!/usr/bin/env bats
# gms-probe: the behaviour on its page.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T GMS_SIM_VRAM=64MiB GMS_SIM_CONTEXT_SIZE=0
}

@test "no probe, an unknown one and bad values are usage errors" {
  local long
  long=$(printf 'x%.0s' {1..120})
  usage_errors gms-probe "" "no-such-probe" "sockets --devices x" "sockets --devices 0,0" "sockets --tags ,a" \
    "sockets --tags a/b" "sockets --wait 5" "sockets extra" "lock --wait 5" "lock --lock tcp:h" \
    "lock extra" "sockets --devices 0 --socket-dir $long --wait 1h" \
    "http" "http a b" "http unix:s --status 99" "http unix:s --status ok" "http unix:s --field a" \
    "http unix:s --field =a" "http unix:s --timeout 1" "http ftp://127.0.0.1/" "http http://1.2.3/" \
    "http unix:$long" "engine extra" "engine --state asleep" "engine --state active,no" \
    "engine --url unix:s --id a" "engine --url unix:s --lock /l" "engine --url x" \
    "engine --lock /$long" "engine --lock l" "remap --expect-hash x" "remap --socket x --tag t" \
    "remap --socket $long --wait 1h" "remap --timeout soon" "remap extra" "gpu" "gpu --free lots" \
    "gpu --free 1 --device x" "gpu --free 1 --timeout 1" "gpu extra"
}

@test "every server answers: 0 and one line" {
  start_gms
  answers 0 "4 sockets answer" gms-probe sockets
  answers 0 '{"result":"yes","sockets":1}' gms-probe sockets --devices 1 --tags kv_cache --json
}

@test "a server that is missing: 1 and the first one that failed" {
  warns 1 "look for sockets in '$T': none found" gms-probe sockets
  start_gms --devices 0
  warns 1 "connect to socket '$T/gms_1_weights.sock': No such file or directory" gms-probe sockets --devices 0,1
  ends_with 1 gms-probe sockets --tags weights,other
  ends_with 1 gms-probe sockets --devices 0,1 -q
  [ "$stderr" = "" ]
  ends_with 1 gms-probe sockets --devices 0,1 --json
  [[ $output == '{"reason":"connect to socket '*',"result":"no","sockets":3}' ]]
}

@test "a socket without a working server is no, also if the server hangs or sends garbage" {
  dead_socket "$T/gms_0_dead.sock"
  warns 1 "connect to socket '$T/gms_0_dead.sock': Connection refused" gms-probe sockets --tags dead
  silent_server "$T/gms_0_silent.sock"
  warns 1 "query the GMS at '$T/gms_0_silent.sock': timed out" gms-probe sockets --tags silent
  echo_server "$T/gms_0_echo.sock"
  ends_with 1 gms-probe sockets --tags echo
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "--committed asks for a published layout on each" {
  start_gms --tags weights
  publish "$T/gms_0_weights.sock" 1000
  ends_with 0 gms-probe sockets --committed --devices 0 --tags weights
  warns 1 "GMS at '$T/gms_1_weights.sock': nothing is published" gms-probe sockets --committed --tags weights
  publish "$T/gms_1_weights.sock" 1000
  answers 0 "2 sockets answer" gms-probe sockets --committed --tags weights
}

@test "--wait retries until the servers answer" {
  start_bg probe gms-probe sockets --wait 30s
  local probe=$BG_PID
  start_gms
  expect_exit "$probe" 0
  [ "$(cat "$T/probe.out")" = "4 sockets answer" ]
  [ ! -s "$T/probe.err" ]
}

@test "--wait that times out is 1" {
  ends_with 1 gms-probe sockets --wait 200ms
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "a waiting probe ends on SIGTERM and SIGKILL and leaves nothing" {
  for signal in TERM KILL; do
    start_bg probe gms-probe sockets --wait 1h
    wait_for "grep -q gms-probe /proc/$BG_PID/comm"
    kill -"$signal" "$BG_PID"
    wait_exit "$BG_PID"
    [ "$status" -gt 128 ]
  done
  run find "$T" -name '*.sock'
  [ "$output" = "" ]
}

# --- lock -----------------------------------------------------------------------------------------

@test "a lock file: usable, held, held by a given id" {
  export FAILOVER_LOCK_PATH=$T/lock
  answers 0 free gms-probe lock
  warns 1 "lock '$T/lock': not held" gms-probe lock --held
  start_bg engine gms-lock acquire --id engine-0 -- sleep 1000
  answers 0 "held by engine-0" gms-probe lock --wait 20s --holder engine-0
  answers 0 '{"holder":"engine-0","result":"yes"}' gms-probe lock --held --json
  warns 1 "lock '$T/lock': held by 'engine-0'" gms-probe lock --holder engine-1
  run -1 gms-probe lock --holder engine-1 -q --json
  [ "$output" = '{"holder":"engine-0","reason":"lock '"'$T/lock': held by 'engine-0'"'","result":"no"}' ]
}

@test "a lock server: no while it is down or does not answer, yes once it answers" {
  warns 1 "connect to socket '$T/lock.sock': No such file or directory" gms-probe lock --lock "unix:$T/lock.sock"
  start_bg probe gms-probe lock --lock "unix:$T/lock.sock" --wait 30s
  probe=$BG_PID
  start_bg lockd gms-lockd --socket "$T/lock.sock"
  lockd=$BG_PID
  expect_exit "$probe" 0
  [ "$(cat "$T/probe.out")" = free ]
  run -1 gms-probe lock --lock "unix:$T/lock.sock" --held
  kill -STOP "$lockd"
  warns 1 "query lock server '$T/lock.sock': no answer in time" gms-probe lock --lock "unix:$T/lock.sock"
  kill -CONT "$lockd"
  run -0 gms-probe lock --lock "unix:$T/lock.sock"
}

@test "a lock of Kubernetes: its API server comes from the URI, or from the environment" {
  pick_port
  ends_with 1 gms-probe lock --lock k8s:ns/pair --kube-api "http://127.0.0.1:$PORT"
  [[ $stderr == "gms-probe: warning: fetch 'http://127.0.0.1:$PORT/"*": Connection refused" ]]
  export FAILOVER_KUBE_API="http://127.0.0.1:$PORT"
  warns 1 "fetch 'http://127.0.0.1:$PORT/*: Connection refused" gms-probe lock --lock k8s:ns/pair
}

# --- http -----------------------------------------------------------------------------------------

@test "http: any 2xx is yes, another status no, unless it is the expected one" {
  answer "204 No Content" ""
  http_server "$T/http.sock"
  answers 0 "status 204" gms-probe http "unix:$T/http.sock:/live"
  answer "503 Service Unavailable" '{"status":"notready"}'
  warns 1 "fetch 'unix:$T/http.sock:/live': status 503 instead of 2xx" gms-probe http "unix:$T/http.sock:/live"
  answers 0 '{"result":"yes","status":503}' gms-probe http "unix:$T/http.sock:/live" --status 503 --json
  warns 1 "fetch 'unix:$T/http.sock:/live': field 'status' is 'notready' instead of 'ready'" \
    gms-probe http "unix:$T/http.sock:/live" --status 503 --field status=ready
  ends_with 1 gms-probe http "unix:$T/http.sock:/live" --json -q
  [ "$output" = '{"reason":"fetch '"'unix:$T/http.sock:/live'"': status 503 instead of 2xx","result":"no","status":503}' ]
  [ "$stderr" = "" ]
  start_bg probe gms-probe http "unix:$T/http.sock:/live" --wait 30s
  answer "200 OK" ""
  expect_exit "$BG_PID" 0
}

@test "a peer that sends a byte now and then delays no probe" {
  local socket=$T/gms_0_slow.sock probe
  # A GMS client reads this as the start of a long message.
  printf 'printf "\\0\\0\\20\\0"\nwhile printf x; do sleep 0.05; done\n' >"$T/slow.sh"
  start_bg slow socat "UNIX-LISTEN:$socket,fork" "EXEC:bash $T/slow.sh"
  await_socket "$socket"
  for probe in "sockets --tags slow" "remap --socket $socket" "lock --lock unix:$socket" \
    "engine --url unix:$socket:/status" "http unix:$socket"; do
    # shellcheck disable=SC2086
    observe timeout 20 gms-probe $probe
    [ "$status" -eq 1 ] || { echo "status $status for: $probe"; return 1; }
    [ "${#stderr_lines[@]}" -eq 1 ]
  done
}

@test "http: a name is resolved, by a static program too" {
  grep -qw "$(hostname)" /etc/hosts || skip_because hosts "/etc/hosts does not name this machine"
  ends_with 1 gms-probe http "http://$(hostname):1/"
  [ "$stderr" = "gms-probe: warning: fetch 'http://$(hostname):1/': Connection refused" ]
}

@test "http: https is refused" {
  fails 64 "fetch 'https://127.0.0.1/': https needs *" gms-probe http https://127.0.0.1/
}

# --- engine ---------------------------------------------------------------------------------------

@test "engine: found by its id and the lock's path" {
  export FAILOVER_LOCK_PATH=$T/lock
  answer "200 OK" '{"state":"standby","id":"engine-1","since":1763750000.5}'
  http_server "$T/lock.engine-1.sock"
  ENGINE_ID=1 answers 0 standby gms-probe engine
  run -0 gms-probe engine --id engine-1 --state standby,active --json
  [ "$output" = '{"id":"engine-1","result":"yes","since":1763750000.5,"state":"standby"}' ]
  run -0 gms-probe engine --lock "flock:$T/lock" --id engine-1
  # The URL overrides the environment.
  answers 0 standby gms-probe engine --url "unix:$T/lock.engine-1.sock:/status"
}

@test "engine: another state, a dead engine and a missing one are no" {
  export FAILOVER_LOCK_PATH=$T/lock
  local url=unix:$T/lock.engine-0.sock:/status
  warns 1 "connect to socket '$T/lock.engine-0.sock': No such file or directory" gms-probe engine
  answer "200 OK" '{"state":"dead"}'
  http_server "$T/lock.engine-0.sock"
  warns 1 "engine at '$url': dead" gms-probe engine
  ends_with 1 gms-probe engine --state active,standby --json -q
  [ "$output" = '{"id":null,"reason":"engine at '"'$url'"': dead","result":"no","since":null,"state":"dead"}' ]
}

@test "engine: ids that are invalid in a socket's name are 78" {
  local id
  for id in "" "a/b" "a:b"; do
    fails 78 "*" gms-probe engine --lock "$T/lock" --id "$id"
  done
  ENGINE_ID=first fails 78 "read ENGINE_ID 'first': not a non-negative number" gms-probe engine --lock "$T/lock"
}

# --- remap ----------------------------------------------------------------------------------------

@test "remap: yes for a published layout with the right hash" {
  start_weights
  local socket=$T/gms_0_weights.sock hash
  warns 1 "GMS at '$socket': Timeout waiting for lock ro" gms-probe remap --timeout 200ms
  run -1 gms-probe remap --timeout 100ms --json -q
  [[ $output == *'"memory_layout_hash":null'* ]]
  publish "$socket" 1000
  hash=$(stat_field memory_layout_hash --socket "$socket")
  GMS_DRIVER=/nonexistent answers 0 "could wake: layout $hash" gms-probe remap
  run -0 gms-probe remap --socket "$socket" --expect-hash "$hash" --json
  [ "$output" = '{"memory_layout_hash":"'"$hash"'","result":"yes"}' ]
}

@test "remap: an empty hash is refused" {
  fails 64 "--expect-hash '': not 64 lower case hexadecimal digits" gms-probe remap --expect-hash ""
}

@test "remap: no for a stale layout, a missing, a silent and an invalid server" {
  local socket=$T/gms_0_weights.sock hash other
  warns 1 "connect to socket '$socket': No such file or directory" gms-probe remap
  start_weights
  publish "$socket" 1000
  hash=$(stat_field memory_layout_hash --socket "$socket")
  other=$(printf 'a%.0s' {1..64})
  warns 1 "GMS at '$socket': Layout changed: $hash instead of $other" gms-probe remap --expect-hash "$other"
  run -1 gms-probe remap --expect-hash "$other" --json -q
  [[ $output == *"\"memory_layout_hash\":\"$hash\""* ]]
  silent_server "$T/silent.sock"
  ends_with 1 gms-probe remap --socket "$T/silent.sock" --timeout 200ms
  [ "${#stderr_lines[@]}" -eq 1 ]
  echo_server "$T/echo.sock"
  ends_with 1 gms-probe remap --socket "$T/echo.sock"
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "remap: --wait retries until there is a layout" {
  start_bg probe gms-probe remap --wait 30s --timeout 100ms
  local probe=$BG_PID
  start_layout 1000
  expect_exit "$probe" 0
  [[ $(cat "$T/probe.out") == "could wake: layout "* ]]
}

# --- gpu ------------------------------------------------------------------------------------------

@test "gpu: yes while this much is free, no while it is not" {
  fill $((48 << 20))
  answers 0 "16 MiB free" gms-probe gpu --free 16MiB
  answers 0 '{"free":67108864,"result":"yes"}' gms-probe gpu --free 60MiB --device 1 --json
  warns 1 "device 0 has 16 MiB free, 60 MiB needed" gms-probe gpu --free 60MiB
  run -1 gms-probe gpu --free 60MiB --json -q --wait 100ms
  [ "$output" = '{"free":16777216,"reason":"device 0 has 16 MiB free, 60 MiB needed","result":"no"}' ]
}

@test "gpu: --wait retries until it is free" {
  fill $((48 << 20))
  start_bg probe gms-probe gpu --free 60MiB --wait 30s
  local probe=$BG_PID
  wait_for "pgrep -P $probe fo-gpu"
  empty
  expect_exit "$probe" 0
  [ "$(cat "$T/probe.out")" = "64 MiB free" ]
}

@test "gpu: a failed query is 69, more than the device has 64" {
  fails 69 "query the free memory of device 9: *" gms-probe gpu --free 1MiB --device 9
  GMS_DRIVER=/nonexistent/libcuda.so.1 fails 69 "*" gms-probe gpu --free 1MiB
  FO_LIBEXEC_DIR=$T fails 69 "use helper program '$T/fo-gpu': *" gms-probe gpu --free 1MiB
  fails 64 "query the free memory of device 0: *it has 67108864 bytes, 68157440 needed" gms-probe gpu --free 65MiB
}

# Every test's end checks that the helper has ended, too.
@test "gpu: a driver that hangs is 69 in time" {
  stub_gpu 'exec sleep 1000'
  fails 69 "query the free memory of device 0: no answer in time" gms-probe gpu --free 1MiB --timeout 200ms
}
