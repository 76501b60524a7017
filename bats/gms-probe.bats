#!/usr/bin/env bats
# gms-probe: what its page promises.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T
}

@test "no probe, an unknown one and bad values are usage errors" {
  for args in "" "no-such-probe" "sockets --devices x" "sockets --devices 0,0" "sockets --tags ,a" \
    "sockets --tags a/b" "sockets --wait 5" "sockets extra" "lock --wait 5" "lock --lock tcp:h:1" \
    "lock extra" \
    "sockets --devices 0 --socket-dir $(printf 'x%.0s' {1..120})"; do
    # shellcheck disable=SC2086
    run --separate-stderr gms-probe $args
    [ "$status" -eq 64 ] || { echo "status $status for: $args"; return 1; }
    [ "$output" = "" ]
    [[ $stderr == "gms-probe: error: "* ]]
  done
}

@test "every server answers: 0 and one line" {
  start_gms
  run --separate-stderr gms-probe sockets
  [ "$status" -eq 0 ]
  [ "$output" = "4 sockets answer" ]
  [ "$stderr" = "" ]
  run --separate-stderr gms-probe sockets --devices 1 --tags kv_cache --json
  [ "$status" -eq 0 ]
  [ "$output" = '{"result":"yes","sockets":1}' ]
}

@test "a server that is missing: 1 and the first one that failed" {
  run --separate-stderr gms-probe sockets
  [ "$status" -eq 1 ]
  [ "$output" = "" ]
  [ "$stderr" = "gms-probe: warning: look for sockets in '$T': none there" ]
  start_gms --devices 0
  run --separate-stderr gms-probe sockets --devices 0,1
  [ "$status" -eq 1 ]
  [ "$output" = "" ]
  [ "$stderr" = "gms-probe: warning: connect to socket '$T/gms_1_weights.sock': No such file or directory" ]
  run --separate-stderr gms-probe sockets --tags weights,other
  [ "$status" -eq 1 ]
  run --separate-stderr gms-probe sockets --devices 0,1 -q
  [ "$status" -eq 1 ]
  [ "$stderr" = "" ]
  run --separate-stderr gms-probe sockets --devices 0,1 --json
  [ "$status" -eq 1 ]
  [[ $output == '{"reason":"connect to socket '*',"result":"no","sockets":3}' ]]
}

@test "a socket that merely exists is not enough, nor one that hangs or talks nonsense" {
  dead_socket "$T/gms_0_dead.sock"
  run -1 --separate-stderr gms-probe sockets --tags dead
  [ "$stderr" = "gms-probe: warning: connect to socket '$T/gms_0_dead.sock': Connection refused" ]
  silent_server "$T/gms_0_silent.sock"
  run -1 --separate-stderr gms-probe sockets --tags silent
  [ "$stderr" = "gms-probe: warning: talk to the GMS at '$T/gms_0_silent.sock': timed out" ]
  echo_server "$T/gms_0_echo.sock"
  run -1 --separate-stderr gms-probe sockets --tags echo
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "--committed asks for a published layout on each" {
  start_gms --tags weights
  publish "$T/gms_0_weights.sock" 1000
  run -0 --separate-stderr gms-probe sockets --committed --devices 0 --tags weights
  run -1 --separate-stderr gms-probe sockets --committed --tags weights
  [ "$stderr" = "gms-probe: warning: GMS at '$T/gms_1_weights.sock': nothing is published" ]
  publish "$T/gms_1_weights.sock" 1000
  run -0 --separate-stderr gms-probe sockets --committed --tags weights
  [ "$output" = "2 sockets answer" ]
}

@test "--wait goes on until the servers answer" {
  start_bg probe gms-probe sockets --wait 30s
  local probe=$BG_PID
  start_gms
  wait_exit "$probe"
  [ "$status" -eq 0 ]
  [ "$(cat "$T/probe.out")" = "4 sockets answer" ]
  [ ! -s "$T/probe.err" ]
}

@test "--wait that is over is 1" {
  run -1 --separate-stderr gms-probe sockets --wait 200ms
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "a probe that waits dies of SIGTERM and SIGKILL and leaves nothing" {
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

@test "a lock file: can be asked, is held, is held by somebody" {
  export FAILOVER_LOCK_PATH=$T/lock
  run --separate-stderr gms-probe lock
  [ "$status" -eq 0 ]
  [ "$output$stderr" = free ]
  run --separate-stderr gms-probe lock --held
  [ "$status" -eq 1 ]
  [ "$output" = "" ]
  [ "$stderr" = "gms-probe: warning: lock '$T/lock': nobody holds it" ]
  start_bg engine gms-lock acquire --id engine-0 -- sleep 1000
  run -0 gms-probe lock --wait 20s --holder engine-0
  [ "$output" = "held by engine-0" ]
  run -0 gms-probe lock --held --json
  [ "$output" = '{"holder":"engine-0","result":"yes"}' ]
  run --separate-stderr gms-probe lock --holder engine-1
  [ "$status" -eq 1 ]
  [ "$stderr" = "gms-probe: warning: lock '$T/lock': held by 'engine-0'" ]
  run -1 gms-probe lock --holder engine-1 -q --json
  [ "$output" = '{"holder":"engine-0","reason":"lock '"'$T/lock': held by 'engine-0'"'","result":"no"}' ]
}

@test "a lock server: no while it is down or says nothing, yes once it answers" {
  run --separate-stderr gms-probe lock --lock "unix:$T/lock.sock"
  [ "$status" -eq 1 ]
  [ "$stderr" = "gms-probe: warning: connect to socket '$T/lock.sock': No such file or directory" ]
  start_bg probe gms-probe lock --lock "unix:$T/lock.sock" --wait 30s
  probe=$BG_PID
  start_bg lockd gms-lockd --socket "$T/lock.sock"
  lockd=$BG_PID
  wait_exit "$probe"
  [ "$status" -eq 0 ]
  [ "$(cat "$T/probe.out")" = free ]
  run -1 gms-probe lock --lock "unix:$T/lock.sock" --held
  kill -STOP "$lockd"
  run --separate-stderr gms-probe lock --lock "unix:$T/lock.sock"
  [ "$status" -eq 1 ]
  [ "$stderr" = "gms-probe: warning: ask lock server '$T/lock.sock': no answer in time" ]
  kill -CONT "$lockd"
  run -0 gms-probe lock --lock "unix:$T/lock.sock"
}
