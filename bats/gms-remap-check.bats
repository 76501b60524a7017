#!/usr/bin/env bats
# gms-remap-check: the behaviour on its page.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T
  S=$T/gms_0_weights.sock
}

hash_of() { stat_field memory_layout_hash --socket "$1"; }

@test "options that don't go together, and bad values, are usage errors" {
  local hash other
  hash=$(printf 'a%.0s' {1..64})
  other=$(printf 'A%.0s' {1..64})
  usage_errors gms-remap-check "--exec" "-- true" "--exec --" "--timeout 5" "--expect-hash x" "--expect-hash $other" \
    "--expect-hash $hash --hash-file x" "--expect-hash $hash,$hash" "--socket x --tag t" \
    "--socket x --devices 0" "--device 0 --devices 0" "--devices x"
}

@test "a published layout: 0, one line, no driver needed" {
  start_layout 1000 5000000
  local hash
  hash=$(hash_of "$S")
  GMS_DRIVER=/nonexistent answers 0 "$S: could wake: 2 allocations, 8 MiB, layout $hash" gms-remap-check
  ends_with 0 gms-remap-check --socket "$S" --json
  [ "${#lines[@]}" -eq 1 ]
  local field
  for field in '"result":"ok"' "\"memory_layout_hash\":\"$hash\"" '"allocation_count":2' \
    '"bytes":8388608' '"seconds":' '"mapped":false'; do
    [[ $output == *"$field"* ]] || { echo "no $field in $output"; return 1; }
  done
}

@test "the same layout published again is 0, another one is 65" {
  start_layout 1000 5000000
  local hash
  hash=$(hash_of "$S")
  ends_with 0 gms-remap-check --expect-hash "$hash"
  publish "$S" 1000 5000000
  ends_with 0 gms-remap-check --expect-hash "$hash" --map
  publish "$S" 1000
  ends_with 65 gms-remap-check --expect-hash "$hash"
  [ "$output" = "" ]
  [ "$stderr" = "gms-remap-check: error: GMS at '$S': Layout changed: $(hash_of "$S") instead of $hash" ]
  ends_with 65 gms-remap-check --expect-hash "$hash" --map --json
  [[ $output == *'"mapped":false'*'"result":"stale"'* ]]
}

@test "no server and a dead socket are 69 at once, and garbage is 76" {
  fails 69 "connect to socket '$S': No such file or directory" gms-remap-check --timeout 1h
  ends_with 69 gms-remap-check --timeout 1h --json
  [[ $output == *'"result":"unavailable"'* ]]
  dead_socket "$S"
  ends_with 69 gms-remap-check --timeout 1h
  fails 69 "look for sockets in '$T': none found" gms-remap-check --timeout 1h --devices all --tag other
  echo_server "$T/echo"
  fails 76 "*" gms-remap-check --socket "$T/echo"
}

@test "a server that restarted empty, and a writer with the lock, are 75" {
  start_layout 1000
  local hash
  hash=$(hash_of "$S")
  kill_now "$GMS_PID"
  start_weights
  fails 75 "GMS at '$S': Timeout waiting for lock ro" gms-remap-check --timeout 200ms --expect-hash "$hash"
  publish "$S" 1000
  ask_lock writer rw "$S"
  wait_stat has_rw_session true
  ends_with 75 gms-remap-check --timeout 200ms --json
  [[ $output == *'"result":"timed_out"'* ]]
}

@test "a waiting writer has precedence" {
  start_layout 1000
  ask_lock reader ro "$S"
  wait_stat ro_session_count 1
  ask_lock writer rw "$S"
  wait_stat waiting_writers 1
  ends_with 75 gms-remap-check --timeout 200ms
}

@test "a flag beats GMS_REMAP_TIMEOUT_MS, which beats the configuration file" {
  start_weights
  echo 'timeout = "1h"' >"$T/config.toml"
  GMS_REMAP_TIMEOUT_MS=100 ends_with 75 gms-remap-check --config "$T/config.toml"
  GMS_REMAP_TIMEOUT_MS=3600000 ends_with 75 gms-remap-check --timeout 100ms
  echo 'timeout = "100ms"' >"$T/config.toml"
  ends_with 75 gms-remap-check --config "$T/config.toml"
  GMS_REMAP_TIMEOUT_MS=soon fails 78 "read GMS_REMAP_TIMEOUT_MS 'soon': not a number of milliseconds" gms-remap-check
}

@test "--hash-file reads what --save-hash wrote" {
  start_weights
  fails 66 "open '$T/hash': No such file or directory" gms-remap-check --hash-file "$T/hash"
  publish "$S" 1000
  ends_with 0 gms-remap-check --save-hash "$T/hash"
  [ "$(cat "$T/hash")" = "$(hash_of "$S")" ]
  ends_with 0 gms-remap-check --hash-file "$T/hash"
  publish "$S" 5000000
  cp "$T/hash" "$T/before"
  ends_with 65 gms-remap-check --hash-file "$T/hash" --save-hash "$T/hash"
  cmp "$T/hash" "$T/before"
  echo nonsense >"$T/hash"
  fails 65 "read hash file '$T/hash': 'nonsense' is not a layout hash" gms-remap-check --hash-file "$T/hash"
  ends_with 73 gms-remap-check --save-hash "$T/absent/hash"
}

@test "--devices checks one socket each" {
  start_weights 0,1
  publish "$T/gms_0_weights.sock" 1000
  publish "$T/gms_1_weights.sock" 5000000
  ends_with 0 gms-remap-check --devices all --map --save-hash "$T/hash"
  [ "${#lines[@]}" -eq 2 ]
  [[ ${lines[1]} == "$T/gms_1_weights.sock: could wake: 1 allocation, 6 MiB, mapped and read, "* ]]
  [ "$(wc -l <"$T/hash")" -eq 2 ]
  ends_with 0 gms-remap-check --devices 0,1 --hash-file "$T/hash"
  ends_with 65 gms-remap-check --devices 1 --hash-file "$T/hash"
  ends_with 65 gms-remap-check --devices 1,0 --hash-file "$T/hash" --json
  [ "${#lines[@]}" -eq 2 ]
}

@test "--exec becomes the command after a successful check" {
  start_layout 1000
  # shellcheck disable=SC2016
  ends_with 0 sh -c 'echo $$; exec gms-remap-check --exec -- sh -c "echo \$\$"'
  [ "${#lines[@]}" -eq 2 ]
  [ "${lines[0]}" = "${lines[1]}" ]
  [ "$stderr" = "" ]
  ends_with 7 gms-remap-check --exec -- sh -c 'exit 7'
  fails 127 "run '$T/absent': No such file or directory" gms-remap-check --exec -- "$T/absent"
  ends_with 126 gms-remap-check --exec -- "$T"
  ends_with 0 gms-remap-check -v --exec -- true
  [[ $stderr == "gms-remap-check: info: $S: could wake: "* ]]
}

@test "--exec passes open descriptors on and adds none" {
  start_layout 1000
  exec 9<"$T"
  # shellcheck disable=SC2016
  ends_with 0 gms-remap-check --map --exec -- sh -c 'ls -l /proc/$$/fd'
  exec 9<&-
  [[ $output == *" 9 -> $T"* ]]
  [[ $output != *socket:* ]]
}

@test "--status-fd reports a successful check, and is not passed on" {
  start_weights
  ends_with 75 gms-remap-check --timeout 100ms --status-fd 9 9>"$T/status"
  [ ! -s "$T/status" ]
  publish "$S" 1000
  # shellcheck disable=SC2016
  ends_with 0 gms-remap-check --status-fd 9 --exec -- sh -c 'ls -l /proc/$$/fd' 9>"$T/status"
  [[ $output != *" 9 -> "* ]]
  [ "$(wc -l <"$T/status")" -eq 1 ]
  [[ $(cat "$T/status") == '{"event":"checked",'*'}' ]]
  ends_with 64 gms-remap-check --status-fd 9
}

@test "--exec runs nothing after a failed check" {
  ends_with 69 gms-remap-check --exec -- touch "$T/ran"
  start_weights
  ends_with 75 gms-remap-check --timeout 100ms --exec -- touch "$T/ran"
  publish "$S" 1000
  ends_with 65 gms-remap-check --expect-hash "$(printf 'a%.0s' {1..64})" --exec -- touch "$T/ran"
  ends_with 69 env FO_LIBEXEC_DIR="$T" gms-remap-check --map --exec -- touch "$T/ran"
  ends_with 73 gms-remap-check --save-hash "$T/absent/hash" --exec -- touch "$T/ran"
  [ ! -e "$T/ran" ]
}

@test "--map maps and reads; without its helper or a driver it is 69 in one line" {
  start_layout 1000 5000000
  ends_with 0 gms-remap-check --map --json
  [[ $output == *'"mapped":true'* ]]
  FO_LIBEXEC_DIR=$T fails 69 "use helper program '$T/fo-gpu': No such file or directory" gms-remap-check --map
  fails 69 "no CUDA driver: *" gms-remap-check --map --driver /nonexistent/libcuda.so.1
  CUDA_VISIBLE_DEVICES='' ends_with 69 gms-remap-check --map
}

@test "--map on a device that fails is 70, on one that hangs 75" {
  start_layout 1000
  GMS_SIM_FAULTS=cuMemMap:1=unknown fails 70 "cuMemMap*" gms-remap-check --map
  GMS_SIM_FAULTS=cuMemMap:1=hang fails 75 "*" gms-remap-check --map --timeout 1s
  wait_stat state COMMITTED
}

@test "kill -9 while it waits leaves nothing" {
  start_weights
  start_bg check gms-remap-check --timeout 1h
  # shellcheck disable=SC2016
  wait_for 'ls -l /proc/$BG_PID/fd | grep -q socket:'
  kill_now "$BG_PID"
  publish "$S" 1000
  [ "$(stat_field ro_session_count)" = 0 ]
}

@test "kill -9 while the helper hangs ends the helper, too" {
  start_layout 1000
  export GMS_SIM_FAULTS=cuMemMap:1=hang
  start_bg check gms-remap-check --map --timeout 1h
  unset GMS_SIM_FAULTS
  wait_stat ro_session_count 1
  wait_for "pgrep -P $BG_PID fo-gpu"
  local helper
  helper=$(pgrep -P "$BG_PID" fo-gpu)
  kill_now "$BG_PID"
  wait_for "! kill -0 $helper"
  wait_stat state COMMITTED
}

@test "SIGTERM ends it while it waits" {
  start_weights
  start_bg check gms-remap-check --timeout 1h
  # shellcheck disable=SC2016
  wait_for 'ls -l /proc/$BG_PID/fd | grep -q socket:'
  terminate "$BG_PID" 143
}
