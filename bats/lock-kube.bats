#!/usr/bin/env bats
# gms-lock with a Lease in Kubernetes, against a stand-in for the API server (bats/kube-api); and
# its objects, checked by Kubernetes' own types. tests/lock has the client's behaviour towards a
# faulty server.

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # sh's and wait_for's text; tests are subshells
load test_helper
load tls

setup() {
  fo_setup
  K8S=$FO_ROOT/tests/k8s
}

lock() { timeout 60 gms-lock "$@" 3>&-; }

# start_api [OPTION]...: starts the stand-in. Sets PORT and LOCK.
start_api() {
  rm -f "$T/api.out"
  start_bg api "$FO_ROOT/bats/kube-api" --log "$T/bodies" "$@"
  wait_for "[ -s $T/api.out ]"
  PORT=$(cat "$T/api.out")
  LOCK="k8s:ns/pair?duration=2s&api=http://127.0.0.1:$PORT"
}

# api METHOD PATH [BODY]: sends a request of the test itself, which no fault affects.
api() {
  curl -sS -X "$1" -H 'X-Test: 1' ${3:+-d "$3"} "http://127.0.0.1:$PORT$2"
}
LEASES=/apis/coordination.k8s.io/v1/namespaces/ns/leases
count() { api GET /requests | jq ".$1 // 0"; }

# start_contender NAME: a supervised command that holds $LOCK until it is terminated. start_holder
# waits until it runs, and sets HOLDER; start_waiter, until it waits for the lock.
start_contender() {
  start_bg "$1" gms-lock acquire --lock "$LOCK" --id "$1" -- \
    sh -c 'echo "$$ $FAILOVER_GENERATION $FAILOVER_LOCK_ID" >'"$T/$1.cmd; exec sleep 1000"
}
start_holder() {
  start_contender "$1"
  HOLDER=$BG_PID
  await_command "$1"
}
start_waiter() {
  start_contender "$1"
  wait_for '[ "$(count watch)" -ge 1 ]'
}
await_command() { wait_for "[ -s $T/$1.cmd ]"; }
command_pid() { cut -d' ' -f1 "$T/$1.cmd"; }

# bats test_tags=slow
@test "an API server that hangs for good: the command ends before the lease does" {
  start_api
  start_holder engine-0
  api POST /faults '{"verb": "*", "do": "hang"}'
  expect_exit "$HOLDER" 75
  [ ! -e "/proc/$(command_pid engine-0)" ]
  grep -q "^gms-lock: error: hold lock 'k8s:ns/pair': the lease could not be renewed: " "$T/engine-0.err"
  # The next contender still waits for the end of that lease.
  api DELETE /faults
  start_holder engine-1
  [ "$(cut -d' ' -f2 "$T/engine-1.cmd")" = 2 ]
}

@test "no API server, no authority, a token without TLS: 78" {
  refused() {
    fails 78 "open lock 'k8s:ns/pair': *$1*" gms-lock "${@:2}"
  }
  local command
  for command in "acquire" "owner" "status"; do
    refused "no API server: " "$command" --lock k8s:ns/pair
    # In a pod there is an authority.
    [ -e /var/run/secrets/kubernetes.io ] || refused "https needs ca=FILE" "$command" --lock "k8s:ns/pair?api=https://127.0.0.1:1"
    refused "without TLS" "$command" --lock "k8s:ns/pair?token-file=$T/token&api=http://10.0.0.1:1"
  done
  export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=x
  ends_with 78 lock owner --lock k8s:ns/pair
  [[ $stderr == *"KUBERNETES_SERVICE_HOST '127.0.0.1' and KUBERNETES_SERVICE_PORT 'x' are not the address of an API server" ]]
}

@test "as in a pod: the address from the environment, TLS, a token" {
  make_ca ca
  make_cert server ca 2 IP:127.0.0.1,DNS:kubernetes.default.svc
  echo secret >"$T/token"
  start_api --token-file "$T/token" --cert "$T/server.crt" --key "$T/server.key"
  export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=$PORT
  # The watch has to report the release.
  LOCK="k8s:ns/pair?duration=3600s&ca=$T/ca.crt&token-file=$T/token"
  start_holder engine-0
  answers 0 engine-0 lock owner --lock "$LOCK"
  start_contender engine-1
  wait_for '[ "$(curl -sS --cacert "$T/ca.crt" "https://127.0.0.1:$PORT/requests" | jq .watch)" -ge 1 ]'
  kill -TERM "$HOLDER"
  await_command engine-1
  [ "$(cat "$T/engine-1.err")" = "" ]
  KUBERNETES_SERVICE_HOST=localhost ends_with 78 lock owner --lock "$LOCK"
}

@test "the example Role has exactly the permissions that are needed" {
  "$FO_BIN/fo-podgen" -q -f "$FO_ROOT/packaging/k8s/lease-rbac.yaml" -o json |
    jq '.items[] | select(.kind == "Role")' >"$T/role.json"
  start_api --role "$T/role.json"
  local base="?duration=2s&api=http://127.0.0.1:$PORT"
  LOCK=k8s:default/failover-pair$base
  start_holder engine-0
  start_waiter engine-1
  kill -TERM "$HOLDER"
  await_command engine-1
  [ "$(cat "$T/engine-1.err")" = "" ]
  ends_with 77 lock acquire --lock "k8s:default/other$base" -- true
  [[ $stderr == "gms-lock: error: get Lease 'default/other': the API server answers 403: "* ]]
  ends_with 77 lock acquire --lock "k8s:other/failover-pair$base" -- true
  # Each permission is needed.
  local verb
  for verb in get update create; do
    jq --arg verb "$verb" '.rules[].verbs -= [$verb]' "$T/role.json" >"$T/less.json"
    start_api --role "$T/less.json"
    if [ "$verb" = update ]; then
      api POST "${LEASES/ns\/leases/default/leases}" '{"apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease", "metadata": {"name": "failover-pair"}}'
    fi
    fails 77 "$verb Lease 'default/failover-pair': * 403: *" \
      lock acquire --lock "k8s:default/failover-pair?api=http://127.0.0.1:$PORT" -- true
  done
}

# bats test_tags=slow
@test "the example manifest, and all written objects, have Kubernetes' types" {
  need_types
  start_api
  api POST "$LEASES" '{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata":
    {"name": "pair", "labels": {"a": "b"}}, "spec": {}}'
  lock acquire --lock "$LOCK" -- true
  lock acquire --lock "${LOCK/pair/new}" -- true
  start_holder engine-0
  wait_for '[ "$(count update)" -ge 8 ]'
  kill -TERM "$BG_PID"
  wait_exit "$BG_PID"
  [ "$(jq -r .verb "$T/bodies" | sort -u | tr '\n' ' ')" = "create update " ]
  jq -c .body "$T/bodies" >"$T/bodies.json"
  jq -c 'if input_line_number == 1 then .spec.leaseTransitions |= tostring else . end' \
    "$T/bodies.json" >"$T/broken.json"
  local kube
  local -a all=()
  for kube in 1.32 1.33 1.34 1.36; do
    all+=(--kube "$kube" "$FO_ROOT/packaging/k8s/lease-rbac.yaml" "$T/bodies.json")
  done
  "$K8S/check" "${all[@]}"
  run -1 "$K8S/check" --kube 1.34 "$T/broken.json"
  [[ $output == *"spec.leaseTransitions: Type 'string'"* ]]
}
