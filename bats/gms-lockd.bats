#!/usr/bin/env bats
# gms-lockd: the server's behaviour on its page, with clients made of socat. tests/lock has the
# order of grants, gms-lock.bats the real client.

# shellcheck disable=SC2154  # stderr comes from run

load test_helper
load lockd

setup() {
  fo_setup
  S=$T/lock.sock
}

# lockd [OPTION]...: for servers that are expected to end by themselves.
lockd() { timeout 20 gms-lockd "$@" 3>&-; }

# start_client NAME ID [GENERATION]: requests the lock and keeps it; the answers are in $T/NAME.out.
# Sets BG_PID.
start_client() {
  local claim=${3:+,\"generation\":$3}
  echo "{\"request\":\"acquire\",\"engine_id\":\"$2\"$claim}" >"$T/$1.request"
  start_bg "$1" socat "OPEN:$T/$1.request,rdonly,ignoreeof!!STDOUT" "UNIX-CONNECT:$S"
}

# start_holder: the client a of engine-0, which is granted the lock for the first time. Sets HOLDER.
start_holder() {
  start_client a engine-0
  HOLDER=$BG_PID
  await_answer a granted 1
}

# await_answer NAME ANSWER GENERATION: waits until NAME has received this answer.
await_answer() { wait_for "grep -q '\"answer\":\"$2\".*\"generation\":$3[,}]' $T/$1.out"; }

lock_status() { echo '{"request":"status"}' | socat -t 5 - "UNIX-CONNECT:$S"; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad values are usage errors" {
  usage_errors "gms-lockd --socket $S" "--reconnect-window 5" "--reconnect-window -1s" "--reconnect-window 0s" \
    "--ready-fd 2" "--ready-fd x" "extra" "-- extra"
  [ ! -e "$S" ]
}

@test "a ready descriptor that is not open and a long socket path are 64" {
  fails 64 "use --ready-fd 99: Bad file descriptor" lockd --socket "$S" --ready-fd 99
  local path
  path=$T/$(printf 'x%.0s' {1..100})
  fails 64 "socket path '$path': ${#path} bytes, at most 107 are allowed" lockd --socket "$path"
}

@test "a flag beats the environment, which beats the configuration file" {
  cat >"$T/config.toml" <<END
socket = "$T/file.sock"
state = "$T/file.state"
reconnect-window = "3s"
END
  S=$T/env.sock
  GMS_LOCKD_SOCKET=$S start_bg lockd gms-lockd --config "$T/config.toml" --state "$T/flag.state"
  wait_for "[ -S $S ]"
  [[ $(lock_status) == *'"reconnect_window_ms":3000'* ]]
  start_holder
  [ -e "$T/flag.state" ]
  [ ! -e "$T/file.state" ]
}

@test "an unsafe port, or leases longer than a new server's wait, are 64" {
  usage_errors "gms-lockd --socket $S" "--listen 0.0.0.0:0" "--listen [::]:0" "--listen 127.0.0.1" "--listen host:1" \
    "--listen 127.0.0.1:0 --expiry 11s" "--listen 127.0.0.1:0 --expiry 499ms" \
    "--listen 127.0.0.1:0 --expiry 2h --reconnect-window 3h" \
    "--listen 127.0.0.1:0 --tls-ca /ca" "--listen 127.0.0.1:0 --tls-cert /cert --tls-key /key" "--tls-ca /ca --tls-cert /cert --tls-key /key" \
    "--expiry 5s"
  [ ! -e "$S" ]
  ends_with 64 lockd --socket "$S" --listen 0.0.0.0:0
  [ "${stderr_lines[0]}" = "gms-lockd: error: listen on '0.0.0.0:0': not a loopback address: needs TLS: --tls-cert, --tls-key, --tls-ca" ]
}

@test "a missing file for TLS is 66, an invalid one 78, and a port in use 73" {
  ends_with 66 lockd --socket "$S" --listen 127.0.0.1:0 --tls-ca "$T/no" --tls-cert "$T/no" --tls-key "$T/no"
  [[ $stderr == "gms-lockd: error: "*"'$T/no': No such file or directory" ]]
  echo nonsense >"$T/pem"
  ends_with 78 lockd --socket "$S" --listen 127.0.0.1:0 --tls-ca "$T/pem" --tls-cert "$T/pem" --tls-key "$T/pem"
  start_lockd --listen 127.0.0.1:0
  ends_with 73 lockd --socket "$T/other.sock" --listen "$(cat "$T/ready")"
  [ "$stderr" = "gms-lockd: error: listen on '$(cat "$T/ready")': Address already in use" ]
}

# --- serving --------------------------------------------------------------------------------------

@test "a newline when it is ready, a socket for its own user only, and log lines" {
  start_lockd
  wait_for "[ ! -e /proc/$BG_PID/fd/9 ]"
  [ "$(od -An -c "$T/ready" | tr -d ' ')" = '\n' ]
  [ "$(stat -c %a "$S")" = 600 ]
  start_holder
  kill -KILL "$HOLDER"
  wait_for "grep -q 'released the lock' $T/lockd.err"
  [ "$(cat "$T/lockd.out")" = "" ]
  [[ $(sed -n 1p "$T/lockd.err") == "gms-lockd: info: granted to 'engine-0' (process $HOLDER): generation 1" ]]
  [ "$(sed -n 2p "$T/lockd.err")" = "gms-lockd: info: 'engine-0' released the lock, generation 1" ]
}

@test "the answers are as documented" {
  start_lockd -q
  start_holder
  grep -qxE '\{"answer":"granted","engine_id":"engine-0","generation":1,"granted_at":"[0-9T:.-]+Z","reconnect_window_ms":10000\}' "$T/a.out"
  start_client b engine-1
  wait_for "[ -s $T/b.out ]"
  [ "$(cat "$T/b.out")" = '{"answer":"waiting","generation":1,"holder":"engine-0","reconnect_window_ms":10000}' ]
  local answer
  answer=$(lock_status)
  [[ $answer == *'"awaited_pids":[]'* ]]
  [[ $answer == *"\"connections\":[{\"connected\":true,\"pid\":$HOLDER}]"* ]]
  [[ $answer == *'"holder":"engine-0"'* ]]
  [[ $answer == *"\"waiters\":[{\"engine_id\":\"engine-1\",\"pid\":$BG_PID}]"* ]]
  [[ $answer == *'"window_left_ms":null'* ]]
  start_client late engine-0 7
  wait_for "[ -s $T/late.out ]"
  [ "$(cat "$T/late.out")" = '{"answer":"refused","reason":"the grant of generation 7 is over","status":75}' ]
  [ "$(cat "$T/lockd.err")" = "" ]
}

@test "over TCP: the address on the ready descriptor, heartbeats, and a lease in the state file" {
  lockd_knows_it_free
  start_lockd --listen 127.0.0.1:0
  grep -qxE '127\.0\.0\.1:[0-9]+' "$T/ready"
  grep -qx "gms-lockd: info: listening on $(cat "$T/ready")" "$T/lockd.err"
  printf '%s\n' '{"request":"acquire","engine_id":"engine-0"}' '{"request":"heartbeat","sequence":5}' >"$T/a.request"
  start_bg a socat "OPEN:$T/a.request,rdonly,ignoreeof!!STDOUT" "TCP:$(cat "$T/ready")"
  await_answer a granted 1
  wait_for "grep -qx '{\"answer\":\"heartbeat\",\"expiry_ms\":10000,\"sequence\":5}' $T/a.out"
  grep -q '"expiry_ms":10000,"generation":1,' "$S.state"
  grep -qE "info: granted to 'engine-0' \(127\.0\.0\.1:[0-9]+\): generation 1" "$T/lockd.err"
  [[ $(lock_status) == *'"connections":[{"connected":true,"pid":null}]'* ]]
  kill "$BG_PID"
  wait_for "lock_status | grep -qF '\"connections\":[{\"connected\":false,\"pid\":null}]'"
}

@test "over TCP, a port without a state file: one window before the first grant" {
  start_lockd --listen 127.0.0.1:0 --reconnect-window 700ms --expiry 700ms
  start_client a engine-0
  await_answer a granted '[0-9]\{13\}'
  grep -qx "gms-lockd: warning: the state file is missing: a holder of the lock has 700ms to reconnect" "$T/lockd.err"
}

@test "the state file is as documented, at a grant and after its end" {
  start_lockd
  start_holder
  local process
  process="\{\"pid\":$BG_PID,\"pid_ns\":$(stat -Lc %i /proc/self/ns/pid),\"start_time\":[0-9]+\}"
  grep -qxE "\{\"connections\":1,\"generation\":1,\"granted_at\":\"[0-9T:.-]+Z\",\"holder\":\"engine-0\",\"processes\":\[$process\]\}" "$S.state"
  kill "$BG_PID"
  wait_for "grep -q '\"holder\":null' $S.state"
  grep -qxE '\{"generation":1,"granted_at":"[0-9T:.-]+Z","holder":null,"last_holder":"engine-0","processes":\[\]\}' "$S.state"
}

@test "invalid messages are refused with 76, and logged" {
  start_lockd
  run -0 socat -t 5 - "UNIX-CONNECT:$S" <<<'GET / HTTP/1.1'
  [[ $output == '{"answer":"refused","reason":"'*'not JSON","status":76}' ]]
  [[ $(cat "$T/lockd.err") == "gms-lockd: warning: connection of process "*": read message 'GET / HTTP/1.1': not JSON" ]]
  [[ $(lock_status) == *'"holder":null'* ]]
}

# --- one server -----------------------------------------------------------------------------------

@test "a second server on the socket or on the state file is refused, 73" {
  start_lockd
  fails 73 "serve socket '$S': another server uses it" lockd --socket "$S"
  fails 73 "use state file '$S.state': another server uses it" lockd --socket "$T/other.sock" --state "$S.state"
  [ ! -e "$T/other.sock" ]
  [[ $(lock_status) == *'"holder":null'* ]]
}

@test "a plain file in the socket's place stays, 73; a missing folder is 73" {
  echo precious >"$S"
  fails 73 "serve socket '$S': not a socket" lockd --socket "$S"
  [ "$(cat "$S")" = precious ]
  fails 73 "open lock file '$T/none/s.lock': missing folder '$T/none'" lockd --socket "$T/none/s"
  fails 73 "open lock file '$T/none/s.lock': missing folder '$T/none'" lockd --socket "$T/s" --state "$T/none/s"
}

@test "a ready descriptor that can't be written is 74, and the socket is removed" {
  fails 74 "write to the ready descriptor: No space left on device" lockd --socket "$S" --ready-fd 9 -q 9>/dev/full
  [ ! -e "$S" ]
}

# --- metrics --------------------------------------------------------------------------------------

@test "--metrics: holders, waiters, and refused clients" {
  pick_port
  start_lockd --metrics "127.0.0.1:$PORT"
  start_holder
  start_client b engine-1
  await_answer b waiting 1
  echo nonsense | socat -t 5 - "UNIX-CONNECT:$S" | grep -q '"status":76'
  curl -sf "http://127.0.0.1:$PORT/metrics" >"$T/metrics"
  grep -qx 'gms_lockd_held 1' "$T/metrics"
  grep -qx 'gms_lockd_generation 1' "$T/metrics"
  grep -qx 'gms_lockd_waiting_connections 1' "$T/metrics"
  grep -qx 'gms_lockd_grants_total 1' "$T/metrics"
  grep -qx 'gms_lockd_refusals_total{status="76"} 1' "$T/metrics"
  run -22 curl -sf "http://127.0.0.1:$PORT/nothing"
  [ "$(curl -sf "http://127.0.0.1:$PORT/live")" = '{"status":"live"}' ]
  [ "$(curl -sf "http://127.0.0.1:$PORT/ready")" = '{"status":"ready"}' ]
}

@test "a service manager receives ready, watchdog and stopping" {
  start_manager
  export WATCHDOG_USEC=100000
  start_lockd
  wait_for '[ "$(grep -o WATCHDOG=1 $T/told | wc -l)" -gt 2 ]'
  kill "$BG_PID"
  wait_exit "$BG_PID"
  wait_for "grep -q STOPPING=1 $T/told"
  [ "$(sed 's/WATCHDOG=1//g' "$T/told")" = READY=1STOPPING=1 ]
}

@test "an address for metrics that is in use is 73" {
  pick_port
  start_lockd --metrics "127.0.0.1:$PORT"
  fails 73 "listen on '127.0.0.1:$PORT': *" lockd --socket "$T/other" --metrics "127.0.0.1:$PORT"
  run -64 lockd --socket "$T/other" --metrics garbage
}

# --- ends -----------------------------------------------------------------------------------------

@test "SIGTERM, SIGINT, SIGHUP and SIGQUIT: 0, the socket is removed, the state stays" {
  local signal
  for signal in TERM INT HUP QUIT; do
    rm -f "$S.state"
    start_lockd
    local server=$BG_PID
    start_client "a$signal" engine-0
    await_answer "a$signal" granted 1
    kill "-$signal" "$server"
    expect_exit "$server" 0
    [ ! -e "$S" ]
    grep -q '"holder":"engine-0"' "$S.state"
    wait_exit "$BG_PID"
  done
  [ "$(grep -cE ': (error|warning): ' "$T/lockd.err")" -eq 0 ]
}

@test "after a holder's death, the window ends, and the next client is granted the lock" {
  start_lockd
  local server=$BG_PID
  start_holder
  kill -KILL "$server"
  wait_exit "$HOLDER"
  start_lockd --reconnect-window 200ms
  start_client b engine-1
  await_answer b granted 2
  grep -qx "gms-lockd: info: 'engine-0' held the lock, generation 1: it has 200ms to reconnect" "$T/lockd.err"
}

@test "a damaged state file causes a warning and one window" {
  echo '{"holder":"engine-0"' >"$S.state"
  start_lockd --reconnect-window 100ms
  start_client a engine-0
  await_answer a granted '[0-9]\{13\}'
  grep -qx "gms-lockd: warning: the state file is damaged: a holder of the lock has 100ms to reconnect" "$T/lockd.err"
}

@test "a full disk under the state file: no grant until there is space again" {
  need_mount
  mkdir "$T/disk"
  # shellcheck disable=SC2016
  start_bg lockd unshare --map-root-user --mount sh -c '
    mount -t tmpfs -o size=8k none "$0/disk" || exit 1
    exec gms-lockd --socket "$0/lock.sock" --state "$0/disk/state"' "$T"
  wait_for "lock_status | grep -q status"
  local server=$BG_PID
  head -c 4096 /dev/zero >"/proc/$server/root$T/disk/filler"
  start_client a engine-0
  await_answer a waiting null
  grep -qx "gms-lockd: warning: write the lock's state: write '$T/disk/state': No space left on device" "$T/lockd.err"
  [[ $(lock_status) == *'"generation":0'*'"holder":null'* ]]
  rm "/proc/$server/root$T/disk/filler"
  await_answer a granted 1
  grep -q '"holder":"engine-0"' "/proc/$server/root$T/disk/state"
}
