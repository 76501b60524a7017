#!/usr/bin/env bats
# gms-lock with a lock in a real etcd.

# shellcheck disable=SC2030,SC2031,SC2153,SC2154  # tests are subshells; others set variables
load test_helper
load tls
load etcd

setup() {
  fo_setup
  need_etcd
  start_etcd
  URI="etcd:http://127.0.0.1:$PORT/locks/x?ttl=2s"
}

teardown() {
  end_etcd
  fo_teardown
}

lock() { gms-lock "$@" 3>&-; }

# start_holder NAME [OPTION]...: a command that holds the lock until it is terminated, and records
# every 10 ms that it runs. Sets HOLDER and, when it is active, COMMAND.
start_holder() {
  local name=$1
  shift
  start_contender "$name" "$@"
  HOLDER=$BG_PID
  wait_for "[ -s $T/$name.beats ]"
  COMMAND=$(head -n 1 "$T/$name.beats")
}
start_contender() {
  local name=$1
  shift
  # shellcheck disable=SC2016
  start_bg "$name" gms-lock acquire --lock "$URI" --id "$name" --grace 100ms "$@" -- bash -c \
    'echo $$ >"$0"; while :; do echo "$EPOCHREALTIME" >>"$0"; sleep 0.01; done' \
    "$T/$name.beats"
}

# start_waiter NAME [OPTION]...: one that waits in the queue.
start_waiter() {
  start_contender "$@"
  wait_for "gms-lock status --lock '$URI' | grep -q '^waiter: .*$1'"
}

# last_beat NAME: when its command ran last, in microseconds.
last_beat() { tail -n 1 "$T/$1.beats" | sed 's/[.,]//'; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }

@test "etcd: a holder suspended past its lease kills its command first, and reports the overlap" {
  start_holder first --status-fd 7 7>"$T/events"
  start_waiter second
  kill -STOP "$HOLDER"
  wait_for "[ \$(wc -l <$T/second.beats) -ge 2 ]"
  kill -CONT "$HOLDER"
  expect_exit "$HOLDER" 75
  run ! kill -0 "$COMMAND"
  grep -E "^gms-lock: error: hold lock 'etcd:http://127\.0\.0\.1:$PORT/locks/x': .*; another may have been active for up to [0-9]+\.[0-9]{3}s\$" \
    "$T/first.err"
  [ "$(jq -s 'map(select(.event == "lost"))[0].overlap > 0' "$T/events")" = true ]
  answers 0 second lock owner --lock "$URI"
}

@test "etcd: when it is lost for good, the command ends before the lease does" {
  start_holder first --status-fd 7 7>"$T/events"
  killed=$(now)
  kill -KILL "$ETCD"
  expect_exit "$HOLDER" 75
  run ! kill -0 "$COMMAND"
  # The lease was renewed no later than etcd was killed.
  [ "$(last_beat first)" -lt $((killed + 2000000)) ]
  [[ $(cat "$T/first.err") == *"hold lock 'etcd:http://127.0.0.1:$PORT/locks/x': the lease could not be renewed: "* ]]
  # It is unknown whether the lock was freed by hand meanwhile.
  [ "$(jq -s 'map(select(.event == "lost"))[0] | has("overlap") and .overlap == null' "$T/events")" = true ]
}

@test "etcd: a key without a lease belongs to no contender, and deleting it frees the lock" {
  etcdctl put locks/x/left here
  local reason="query etcd for lock 'etcd:http://127.0.0.1:$PORT/locks/x': the oldest key 'locks/x/left' has no lease: no contender created it, and it stays until it is deleted"
  local command
  for command in "owner" "status" "acquire -n"; do
    # shellcheck disable=SC2086
    fails 65 "$reason" lock $command --lock "$URI"
  done
  start_bg waiter gms-lock acquire --lock "$URI" --warn-after 20ms -- true
  wait_for "grep -qF \"waiting for lock 'etcd:http://127.0.0.1:$PORT/locks/x': $reason\" $T/waiter.err"
  etcdctl del locks/x/left
  expect_exit "$BG_PID" 0
}

@test "etcd: over TLS, by name and by address, with a client certificate" {
  kill_now "$ETCD"
  make_ca ca
  make_ca stranger
  make_cert server ca 2 IP:127.0.0.1,DNS:localhost
  make_cert client ca 2
  export CURL_TLS="--cacert $T/ca.crt --cert $T/client.crt --key $T/client.key"
  start_etcd https --cert-file "$T/server.crt" --key-file "$T/server.key" --client-cert-auth \
    --trusted-ca-file "$T/ca.crt"
  ours="cert=$T/client.crt&key=$T/client.key"
  for host in 127.0.0.1 localhost; do
    URI="etcd:https://$host:$PORT/locks/x?ttl=2s&ca=$T/ca.crt&$ours"
    answers 0 engine-0 lock acquire --lock "$URI" -- gms-lock owner --lock "$URI"
  done
  start_holder first
  start_waiter second
  kill -TERM "$COMMAND"
  wait_exit "$HOLDER"
  wait_for "[ -s $T/second.beats ]"
  server=etcd:https://127.0.0.1:$PORT/locks/x
  fails 78 "*'https://127.0.0.1:$PORT/*" lock owner --lock "$server?ca=$T/stranger.crt&$ours"
  ends_with 78 lock owner --lock "$server?ca=$T/ca.crt"
  ends_with 66 lock owner --lock "$server?ca=$T/absent.crt"
  ends_with 64 lock owner --lock "$server"
}

@test "etcd and a file: leadership from the network, the memory's safety from the node" {
  start_holder first --lock "$T/lock"
  [ "$(lock owner --lock "$URI")" = first ]
  [ "$(lock owner --lock "$T/lock")" = first ]
  # Another node has another file: this contender waits for etcd, and its own file is free.
  start_waiter second --lock "$T/other"
  run -1 lock owner --lock "$T/other"
  # One that has etcd's lock, but waits for the file of its node, keeps etcd's.
  start_bg node gms-lock acquire --lock "$T/other" --id node -- sleep 1000
  wait_for "gms-lock owner --lock '$T/other' | grep -qx node"
  kill "$HOLDER"
  wait_for "gms-lock owner --lock '$URI' | grep -qx second"
  [ ! -e "$T/second.beats" ]
  kill "$BG_PID"
  wait_for "[ -s '$T/second.beats' ]"
}

@test "etcd and a file: fo-shadow holds both, and the pair's status sockets are beside the file" {
  local id
  export FAILOVER_LOCK_PATH=$T/lock DYN_SYSTEM_PORT=-1
  for id in one two; do
    start_bg "$id" fo-shadow -q --id "$id" --gpu-free 0 --engine command --sleep : --wake : \
      --lock "$URI" --lock "$T/lock" -- sleep 1000
    wait_for "gms-probe engine -q --id $id"
  done
  gms-probe engine -q --id one --state active --wait 10s
  gms-probe engine -q --id two --state standby --wait 10s
  [ "$(lock owner --lock "$URI")" = one ]
  [ "$(lock owner --lock "$T/lock")" = one ]
  [ "$(fo-shadow switchover)" = two ]
  [ "$(lock owner --lock "$URI")" = two ]
  [ "$(lock owner --lock "$T/lock")" = two ]
  kill -KILL "$ETCD"
  expect_exit "$BG_PID" 75
  grep -q "could not be renewed" "$T/two.err"
}

@test "etcd: a missing server and a busy lock have different statuses" {
  kill -KILL "$ETCD"
  fails 69 "*127.0.0.1:$PORT*refused" lock acquire --lock "$URI" --nonblock -E 9 -- true
}

@test "etcd: an error line that is not read does not keep the command alive" {
  mkfifo "$T/full"
  # This descriptor keeps the full pipe open at both ends.
  exec 8<>"$T/full"
  timeout 1 dd if=/dev/zero bs=64k of="$T/full" 2>/dev/null || :
  # shellcheck disable=SC2016
  gms-lock acquire --lock "$URI" --id deaf --grace 10s -- bash -c \
    'trap "" TERM; echo $$ >"$0"; while :; do echo "$EPOCHREALTIME" >>"$0"; sleep 0.01; done' \
    "$T/deaf.beats" 2>&8 3>&- 8>&- &
  BG_PIDS+=($!)
  wait_for "[ -s '$T/deaf.beats' ]"
  local from=${EPOCHREALTIME/./}
  kill -KILL "$ETCD"
  wait_exit $!
  exec 8>&-
  [ "$status" -eq 75 ]
  local last
  last=$(tail -n 1 "$T/deaf.beats")
  [ "${last/./}" -lt $((from + 2000000)) ]
}

@test "etcd and a file: a cold engine in a switchover does not outlive its lease" {
  local id
  export FAILOVER_LOCK_PATH=$T/lock DYN_SYSTEM_PORT=-1
  for id in one two; do
    # shellcheck disable=SC2016
    start_bg "$id" fo-shadow -q --id "$id" --gpu-free 0 --engine cold --grace 1m --health : --prove : \
      --lock "$URI" --lock "$T/lock" -- bash -c \
      'trap "" TERM; while :; do echo "$EPOCHREALTIME" >>"$0"; sleep 0.01; done' "$T/$id.beats"
    wait_for "gms-probe engine -q --id $id"
    if [ "$id" = one ]; then ONE=$BG_PID; fi
  done
  gms-probe engine -q --id one --state active --wait 10s
  gms-probe engine -q --id two --state standby --wait 10s
  # The engine ignores SIGTERM.
  curl -sS --unix-socket "$T/lock.one.sock" -X POST http://localhost/switchover
  local from=${EPOCHREALTIME/./} last
  kill -KILL "$ETCD"
  expect_exit "$ONE" 75
  last=$(tail -n 1 "$T/one.beats")
  [ "${last/./}" -lt $((from + 2000000)) ]
}
