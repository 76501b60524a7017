#!/usr/bin/env bats
# A lock across machines by gms-lockd: gms-lock at both ends, killed and stopped processes, TLS, and
# a broken network between two hosts.

# shellcheck disable=SC2154  # stderr comes from run

load test_helper
load lockd
load tls

setup() {
  fo_setup
  S=$T/lock.sock
}

# start_tcp EXPIRY [OPTION]...: starts a server on a port of this machine. Sets LOCK and BG_PID.
start_tcp() {
  lockd_knows_it_free
  start_lockd --listen 127.0.0.1:0 --expiry "$@"
  LOCK=tcp:$(cat "$T/ready")
}

# start_holder NAME [OPTION]...: requests $LOCK for a command that writes its pid to $T/NAME.cmd,
# its generation to $T/NAME.gen, and other holders' running commands to $T/NAME.others.
start_holder() {
  local name=$1
  shift
  rm -f "$T/$name".{cmd,gen,others}
  # shellcheck disable=SC2016
  start_bg "$name" "${ON[@]}" gms-lock acquire --lock "$LOCK" --id "$name" "$@" -- bash -c '
    for other in "$1"/*.cmd; do
      if [ -e "$other" ] && grep -q "^State:.[^ZX]" "/proc/$(cat "$other")/status"; then echo "$other"; fi
    done >"$1/$2.others" 2>/dev/null
    echo "$FAILOVER_GENERATION" >"$1/$2.gen"
    echo "$BASHPID" >"$1/$2.new"
    mv "$1/$2.new" "$1/$2.cmd"
    exec sleep 1000' bash "$T" "$name"
}

runs() { wait_for "[ -s $T/$1.cmd ]"; }

waits() { wait_for "gms-lock status --lock unix:$S | grep -q '^waiter: .*$1'"; }

# holds NAME: starts it, and waits until its command runs. Sets HOLDER. queues NAME: until it waits.
holds() {
  start_holder "$1"
  HOLDER=$BG_PID
  runs "$1"
}
queues() {
  start_holder "$1"
  waits "$1"
}

# was_alone NAME: no earlier holder's command was running when NAME was granted the lock.
was_alone() { [ -e "$T/$1.others" ] && [ ! -s "$T/$1.others" ]; }

lock() { timeout 20 gms-lock "$@" 3>&-; }

now_ms() { date +%s%3N; }

# pass MS: waits for this time.
pass() { wait_for "[ \$((\$(date +%s%3N) - $(now_ms))) -ge $1 ]"; }

# --- one machine ----------------------------------------------------------------------------------

@test "SIGTERM releases at once, whatever the expiry" {
  start_tcp 1h --reconnect-window 1h
  holds a
  queues b
  kill "$HOLDER"
  runs b
  was_alone b
  [ "$(cat "$T/b.gen")" = 2 ]
}

@test "suspended for longer than its lease: its command is killed when it continues, status 75" {
  start_tcp 1s
  holds a
  start_holder b
  kill -STOP "$HOLDER"
  runs b
  kill -CONT "$HOLDER"
  expect_exit "$HOLDER" 75
  run ! kill -0 "$(cat "$T/a.cmd")"
  kill -0 "$(cat "$T/b.cmd")"
}

@test "a waiter suspended during its own grant and its end queues again" {
  start_tcp 1s
  holds a
  queues b
  local waiter=$BG_PID
  kill -STOP "$waiter"
  # Its place expires while it is silent, and so does a grant in that time.
  kill "$HOLDER"
  wait_exit "$HOLDER"
  holds c
  kill -CONT "$waiter"
  waits b
  kill -0 "$(cat "$T/c.cmd")"
  [ ! -e "$T/b.cmd" ]
  run ! grep -q "is over" "$T/b.err"
  grep -q "127.0.0.1:[0-9]*: it sent nothing for 1s" "$T/lockd.err"
}

@test "warnings about an address are limited, and those left out are counted" {
  start_tcp 10s
  local port=${LOCK##*:}
  wait_for "echo nonsense >/dev/tcp/127.0.0.1/$port; grep -q 'messages like this were suppressed' $T/lockd.err"
  grep -Eq '^gms-lockd: warning: [1-9][0-9]* messages like this were suppressed$' "$T/lockd.err"
  grep -q '^gms-lockd: warning: connection of 127.0.0.1:.*: read message' "$T/lockd.err"
}

@test "connections over TCP leave room for those over the socket" {
  lockd_knows_it_free
  # This server has room for 32 connections, of which half are for TCP.
  # shellcheck disable=SC2016
  start_bg lockd bash -c 'ulimit -n 128; exec "$@"' bash gms-lockd --socket "$S" \
    --listen 127.0.0.1:0 --expiry 1h --reconnect-window 1h --ready-fd 9 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
  local i fd port
  port=$(cat "$T/ready")
  port=${port##*:}
  for i in {1..40}; do
    exec {fd}<>"/dev/tcp/127.0.0.1/$port"
    echo "{\"request\":\"acquire\",\"engine_id\":\"$i\"}" >&"$fd"
  done
  # One client has the lock, the others wait.
  wait_for "[ \$(timeout 20 gms-lock status --lock unix:$S | grep -c '^waiter: ') -eq 15 ]"
  run -75 lock acquire --lock "unix:$S" --id a --nonblock -- true
}

@test "without TLS only loopback addresses are allowed, 64" {
  ends_with 64 lock acquire --lock tcp:192.0.2.1:7 -- true
  [[ ${stderr_lines[0]} == "gms-lock: error: query lock server 'tcp:192.0.2.1:7': connect to '192.0.2.1:7': not a loopback address: needs TLS, with a ca" ]]
}

# --- TLS ------------------------------------------------------------------------------------------

make_pki() {
  make_ca ca
  make_ca other
  make_cert server ca 2
  make_cert client ca 2
  make_cert stranger other 2
  make_cert old ca 0
}

# tls_options NAME CA: prints the part of the URI after the "?".
tls_options() { echo "ca=$T/$2.crt&cert=$T/$1.crt&key=$T/$1.key"; }

serve_tls=()
use_tls() { serve_tls=(--tls-cert "$T/$1.crt" --tls-key "$T/$1.key" --tls-ca "$T/ca.crt"); }
# start_tls [NAME]: starts a server with the certificate of NAME, or "server".
start_tls() {
  make_pki
  use_tls "${1:-server}"
  start_tcp 10s "${serve_tls[@]}"
}

@test "over TLS both sides authenticate, and the log has the client's name" {
  start_tls
  answers 0 held lock acquire --lock "$LOCK?$(tls_options client ca)" --id a -- echo held
  grep -q "granted to 'a' (127.0.0.1:[0-9]* 'client'): generation 1" "$T/lockd.err"
}

@test "a client without a certificate, or with one of another authority, is refused, 78" {
  start_tls
  local options
  for options in "ca=$T/ca.crt" "$(tls_options stranger ca)" "$(tls_options client other)"; do
    ends_with 78 lock acquire --lock "$LOCK?$options" --id a -- true
    [[ $stderr == "gms-lock: error: query lock server '$LOCK': TLS with ${LOCK#tcp:}"* ]] ||
      [[ $stderr == "gms-lock: error: TLS with ${LOCK#tcp:}"* ]]
    run -78 gms-lock status --lock "$LOCK?$options"
  done
  # A client without TLS is refused, too.
  run ! timeout 20 gms-lock status --lock "$LOCK"
  run -1 gms-lock owner --lock "unix:$S"
  [ "$(grep -c granted "$T/lockd.err")" -eq 0 ]
}

@test "an unauthenticated client causes one warning, with its address" {
  start_tls
  run -78 lock acquire --lock "$LOCK?$(tls_options stranger ca)" --id a -- true
  wait_for "grep -q warning $T/lockd.err"
  run grep warning "$T/lockd.err"
  [ "${#lines[@]}" -eq 1 ]
  [[ $output =~ ^"gms-lockd: warning: TLS with 127.0.0.1:"[0-9]+": the certificate was rejected: " ]]
}

@test "a replaced authority applies to the next connection" {
  make_pki
  cp "$T/ca.crt" "$T/trusted.crt"
  start_tcp 10s --tls-cert "$T/server.crt" --tls-key "$T/server.key" --tls-ca "$T/trusted.crt"
  run -0 gms-lock status --lock "$LOCK?$(tls_options client ca)"
  run -78 gms-lock status --lock "$LOCK?$(tls_options stranger ca)"
  cp "$T/other.crt" "$T/new.crt"
  mv "$T/new.crt" "$T/trusted.crt"
  run -78 gms-lock status --lock "$LOCK?$(tls_options client ca)"
  run -0 gms-lock status --lock "$LOCK?$(tls_options stranger ca)"
  # The file's removal and its return apply at once, too.
  mv "$T/trusted.crt" "$T/new.crt"
  run ! gms-lock status --lock "$LOCK?$(tls_options stranger ca)"
  mv "$T/new.crt" "$T/trusted.crt"
  run -0 gms-lock status --lock "$LOCK?$(tls_options stranger ca)"
}

@test "a waiter reports once why it can't connect" {
  start_tls
  local server=$BG_PID address=${LOCK#tcp:}
  start_bg holder gms-lock acquire --lock "unix:$S" --id a -- sleep 1000
  wait_for "gms-lock owner --lock unix:$S"
  LOCK="tcp:$address?$(tls_options client ca)" start_holder b
  waits b
  mv "$T/client.key" "$T/gone.key"
  kill "$server"
  wait_exit "$server"
  wait_for "grep -q client.key $T/b.err"
  start_bg lockd2 gms-lockd --socket "$S" --listen "$address" --expiry 10s "${serve_tls[@]}"
  mv "$T/gone.key" "$T/client.key"
  waits b
  [ "$(grep -c client.key "$T/b.err")" -eq 1 ]
}

@test "a client that does not begin TLS is dropped, and delays no other" {
  start_tls
  local port=${LOCK##*:}
  # shellcheck disable=SC2016
  start_bg silent bash -c 'exec cat <"/dev/tcp/127.0.0.1/$0"' "$port"
  local silent=$BG_PID
  run -0 lock acquire --lock "$LOCK?$(tls_options client ca)" --id a -- true
  wait_exit "$silent"
  grep -q "gms-lockd: warning: TLS with 127.0.0.1:[0-9]*: timed out" "$T/lockd.err"
}

@test "a client without TLS at a port with TLS gets the reason, 78" {
  start_tls
  local command
  for command in "acquire --nonblock -- true" "acquire -- true" status owner; do
    # shellcheck disable=SC2086
    ends_with 78 lock ${command%% *} --lock "$LOCK" ${command#"${command%% *}"}
    [[ $stderr == "gms-lock: error: query lock server '$LOCK': this port needs TLS: set ca, cert and key" ]]
  done
  grep -q "gms-lockd: warning: TLS with 127.0.0.1:" "$T/lockd.err"
}

@test "a server with an expired certificate is refused, 69, and waited for" {
  start_tls old
  ends_with 69 timeout 20 gms-lock status --lock "$LOCK?$(tls_options client ca)"
  [ "$stderr" = "gms-lock: error: TLS with ${LOCK#tcp:}: the certificate was rejected: certificate has expired" ]
  local server=$BG_PID port=${LOCK#tcp:}
  LOCK="$LOCK?$(tls_options client ca)"
  start_holder a
  # "status" and the holder have caused one each.
  wait_for "[ \$(grep -c 'TLS with' $T/lockd.err) -ge 2 ]"
  kill_now "$server"
  use_tls server
  start_bg lockd2 gms-lockd --socket "$S" --listen "$port" --expiry 10s "${serve_tls[@]}"
  runs a
}

@test "a client with an expired certificate is refused, 69" {
  start_tls
  ends_with 69 timeout 20 gms-lock status --lock "$LOCK?$(tls_options old ca)"
  [ "$stderr" = "gms-lock: error: TLS with ${LOCK#tcp:} 'server': sslv3 alert certificate expired" ]
  wait_for "grep -q 'warning: TLS with 127.0.0.1:[0-9]*: the certificate was rejected: certificate has expired' $T/lockd.err"
}

# --- two hosts ------------------------------------------------------------------------------------

# make_hosts: network namespaces HERE and THERE, 10.77.0.1 and 10.77.0.2, and a cable between them.
make_hosts() {
  start_bg here unshare --map-root-user --net sleep 1000
  local here=$BG_PID
  wait_for "! kill -0 $here || grep -qx sleep /proc/$here/comm"
  HERE=(nsenter --target "$here" --user --preserve-credentials --net)
  start_bg there "${HERE[@]}" unshare --net sleep 1000
  local there=$BG_PID
  wait_for "! kill -0 $there || grep -qx sleep /proc/$there/comm"
  THERE=(nsenter --target "$there" --user --preserve-credentials --net)
  "${HERE[@]}" ip link add cable type veth peer name end netns "$there" 2>>"$T/there.err" ||
    skip_because root "network namespaces are not permitted here: $(cat "$T/here.err" "$T/there.err")"
  "${HERE[@]}" sh -ec 'ip link set lo up; ip address add 10.77.0.1/24 dev cable; ip link set cable up'
  "${THERE[@]}" sh -ec 'ip link set lo up; ip address add 10.77.0.2/24 dev end; ip link set end up'
}

# start_lockd_here EXPIRY: starts a server with TLS, for both hosts. Sets LOCK.
start_lockd_here() {
  make_pki
  use_tls server
  lockd_knows_it_free
  start_bg lockd "${HERE[@]}" gms-lockd --socket "$S" --listen 10.77.0.1:7070 --expiry "$1" "${serve_tls[@]}"
  wait_for "[ -S $S ]"
  LOCK="tcp:10.77.0.1:7070?$(tls_options client ca)"
}

@test "a broken network: the holder ends before the other host gets the lock, and queues later" {
  make_hosts
  start_lockd_here 2s
  ON=("${THERE[@]}")
  holds a
  local far=$HOLDER
  ON=("${HERE[@]}")
  queues b
  local near=$BG_PID
  "${HERE[@]}" ip link set cable down
  expect_exit "$far" 75
  runs b
  was_alone b
  [ "$(cat "$T/b.gen")" = 2 ]
  # The former holder requests the lock again, and waits once the network works.
  ON=("${THERE[@]}")
  start_holder a
  "${HERE[@]}" ip link set cable up
  waits a
  kill -0 "$(cat "$T/b.cmd")"
  kill "$near"
  runs a
  was_alone a
  [ "$(cat "$T/a.gen")" = 3 ]
}

# bats test_tags=slow
@test "a network broken for less than a lease loses no lock" {
  make_hosts
  start_lockd_here 6s
  ON=("${THERE[@]}")
  holds a
  "${HERE[@]}" ip link set cable down
  # The heartbeat at a third of the lease is lost.
  pass 2500
  "${HERE[@]}" ip link set cable up
  pass 7000
  kill -0 "$(cat "$T/a.cmd")"
  answers 0 a gms-lock owner --lock "unix:$S"
}
