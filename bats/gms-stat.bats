#!/usr/bin/env bats
# gms-stat: what its page promises.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T
  S=$T/gms_0_weights.sock
}

@test "options that don't go together, and bad values, are usage errors" {
  for args in "--socket x --device 1" "--socket x --tag t" "--all --socket x" "--all --device 1" \
    "--all --list" "--all --events" "--timeout 5" "--device -1" "extra" "--unknown"; do
    # shellcheck disable=SC2086
    run --separate-stderr gms-stat $args
    [ "$status" -eq 64 ] || { echo "status $status for: $args"; return 1; }
    [ "$output" = "" ]
    [[ $stderr == "gms-stat: error: "* ]]
  done
}

@test "no server and a dead socket are 69, in one line" {
  run --separate-stderr gms-stat
  [ "$status" -eq 69 ]
  [ "$output" = "" ]
  [ "$stderr" = "gms-stat: error: connect to socket '$S': No such file or directory" ]
  dead_socket "$S"
  run --separate-stderr gms-stat
  [ "$status" -eq 69 ]
  [ "$stderr" = "gms-stat: error: connect to socket '$S': Connection refused" ]
}

@test "the state for people, with no driver in reach" {
  start_gms --devices 0 --tags weights
  GMS_DRIVER=/nonexistent run --separate-stderr gms-stat
  [ "$status" -eq 0 ]
  [ "$stderr" = "" ]
  [ "${#lines[@]}" -eq 10 ]
  [ "${lines[0]}" = "socket            $S" ]
  [ "${lines[1]}" = "state             EMPTY" ]
  [ "${lines[9]}" = "layout hash       none" ]
}

@test "the state for programs: one object with the protocol's names" {
  start_gms --devices 0 --tags weights
  publish "$S" 1000 5000000
  run --separate-stderr gms-stat --json --list --events
  [ "$status" -eq 0 ]
  [ "${#lines[@]}" -eq 1 ]
  local key
  for key in state has_rw_session ro_session_count waiting_writers committed is_ready \
    layout_committed allocation_count memory_layout_hash events allocations tensors socket; do
    [[ $output == *"\"$key\":"* ]] || { echo "no $key"; return 1; }
  done
  [ "$(stat_field state)" = COMMITTED ]
  [ "$(stat_field allocation_count)" = 2 ]
  [[ $(stat_field memory_layout_hash) =~ ^[0-9a-f]{64}$ ]]
}

@test "--list and --events show what is there and leave no session behind" {
  start_gms --devices 0 --tags weights
  publish "$S" 1000 5000000
  run --separate-stderr gms-stat --list --events
  [ "$status" -eq 0 ]
  [[ $output == *$'\nevents (2, oldest first, with allocations)\n  rw_connected '*$'\n  committed '* ]]
  [[ $output =~ allocations\ \(2\) ]]
  [[ $output =~ 1000\ B\ +2\ MiB\ +test\ +[0-9a-f-]{36} ]]
  [[ $output =~ 4\.8\ MiB\ +6\ MiB\ +test ]]
  [[ $output == *"tensors (0)"* ]]
  [ "$(stat_field ro_session_count)" = 0 ]
}

@test "what a writer holds is told without the list, and --list is 75" {
  start_gms --devices 0 --tags weights
  run -75 --separate-stderr gms-stat --list
  [ "${lines[-1]}" = "layout not listed: nothing is published" ]
  ask_lock writer rw "$S"
  wait_stat has_rw_session true
  run -0 --separate-stderr gms-stat
  [ "${lines[1]}" = "state             RW" ]
  run -75 --separate-stderr gms-stat --list
  [ "${lines[1]}" = "state             RW" ]
  [ "${lines[-1]}" = "layout not listed: a writer holds it" ]
  run -75 --separate-stderr gms-stat --list --json
  [[ $output == *'"not_listed":"a writer holds it"'* ]]
}

@test "a writer that waits is not held up" {
  start_gms --devices 0 --tags weights
  publish "$S" 1000
  ask_lock reader ro "$S"
  local reader=$BG_PID
  wait_stat ro_session_count 1
  run -0 --separate-stderr gms-stat --list
  ask_lock writer rw "$S"
  wait_stat waiting_writers 1
  run -75 --separate-stderr gms-stat --list
  [ "${lines[-1]}" = "layout not listed: a writer waits for it" ]
  kill "$reader"
  wait_stat has_rw_session true
}

@test "a server that never answers is 75, one that answers nonsense is 76" {
  silent_server "$T/silent"
  run --separate-stderr gms-stat --socket "$T/silent" --timeout 100ms
  [ "$status" -eq 75 ]
  [ "$stderr" = "gms-stat: error: talk to the GMS at '$T/silent': timed out" ]
  echo_server "$T/echo"
  run --separate-stderr gms-stat --socket "$T/echo"
  [ "$status" -eq 76 ]
  [ "$output" = "" ]
  [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "--all shows every server of the folder, a dead one too" {
  run --separate-stderr gms-stat --all
  [ "$status" -eq 69 ]
  [ "$stderr" = "gms-stat: error: look for sockets in '$T': none there" ]
  start_gms
  run -0 --separate-stderr gms-stat --all
  [ "${#lines[@]}" -eq 5 ]
  [[ ${lines[0]} =~ ^device\ +tag\ +state ]]
  [[ ${lines[1]} =~ ^\ +0\ +kv_cache\ +EMPTY\ .*$T/gms_0_kv_cache.sock$ ]]
  [[ ${lines[4]} =~ ^\ +1\ +weights\ +EMPTY\ .*$T/gms_1_weights.sock$ ]]
  dead_socket "$T/gms_7_weights.sock"
  run -69 --separate-stderr gms-stat --all --json
  [ "${#lines[@]}" -eq 5 ]
  [[ ${lines[3]} == *'"device":1,'*'"tag":"weights"'* ]]
  [[ ${lines[4]} == *'"error":"connect to socket '*'Connection refused"'* ]]
  [ "$stderr" = "gms-stat: error: connect to socket '$T/gms_7_weights.sock': Connection refused" ]
}

@test "a result that can't be written is 74" {
  start_gms --devices 0 --tags weights
  # shellcheck disable=SC2016
  run -74 --separate-stderr sh -c 'gms-stat >/dev/full'
  [ "$stderr" = "gms-stat: error: write to standard output: No space left on device" ]
}
