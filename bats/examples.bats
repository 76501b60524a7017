#!/usr/bin/env bats
# Runs the examples of the pages and of the README unchanged, on a machine of their own: see
# examples.bash. documents.bats checks that none is left out.
# bats file_tags=slow

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
load test_helper
load gms_client
load examples
load lockd

setup() {
  fo_setup
  start_machine
  standard_stubs
}

teardown() {
  local pid
  # Ends the background processes of an example; the machine ends last.
  for pid in $(processes_left); do
    if [ "$pid" != "${MACHINE:-}" ]; then kill -TERM "$pid" 2>/dev/null || :; fi
  done
  fo_teardown
}

# no_example DOCUMENT WORDS: a block that is neither a command nor its output.
no_example() { :; }
no_example man/fo-shadow.1 'init --> standby --> waking'

# --- fo-exit-status(7) ----------------------------------------------------------------------------

@test "fo-exit-status(7): a wait for a server, which a typing error ends" {
  example man/fo-exit-status.7 'until gms-probe'
  stub sleep 'exec /bin/sleep 0.01'
  start_example waits
  local waits=$BG_PID
  wait_for 'called "sleep 1"'
  GMS_SOCKET_DIR=/run/gms a_server
  expect_exit "$waits" 0
  EXAMPLE=${EXAMPLE/sockets/sokets} run_example 1
}

# --- fo-gpu(8) ------------------------------------------------------------------------------------

@test "fo-gpu(8): a device's memory" {
  example man/fo-gpu.8 'free --device 1'
  EXAMPLE=${EXAMPLE/#\/usr/$FO_BUILD}
  GMS_SIM_DEVICES=2 run_example
  [[ $output == '{"free":'* ]]
}

@test "fo-gpu(8): GPUs that need service" {
  [ -e "$FO_BUILD/tests/libfake_nvml.so" ] || skip_because tests "the tests' fake NVML is not built"
  ln -s "$FO_BUILD/tests/libfake_nvml.so" "$T/libnvidia-ml.so.1"
  example man/fo-gpu.8 'fo-gpu health'
  EXAMPLE=${EXAMPLE/#\/usr/$FO_BUILD}
  run_example 1 LD_LIBRARY_PATH="$T"
  [[ $output =~ problems\.0\ +GPU\ is\ lost ]]
}

# --- fo-canary(1) ---------------------------------------------------------------------------------

@test "fo-canary(1): learns from two replicas, and checks a third one" {
  local port
  for port in 8001 8002 8003; do
    start_bg "worker-$port" "${INSIDE[@]}" fo-oracle --port "$port" --model llama
    wait_for "inside curl -sSf http://127.0.0.1:$port/health"
  done
  example man/fo-canary.1 'fo-canary learn'
  run_example
  [ -s "$ROOM/root/here/llama.json" ]
}

@test "fo-runbook(7): the rules and their tests" {
  need_promtool
  example man/fo-runbook.7 'fo-canary rules'
  run_example
  [ -s "$ROOM/root/here/fo-rules.yaml" ]
}

@test "fo-canary(1): acquits a worker" {
  an_etcd
  local key=verdicts/00112233445566778899aabbccddeeff/a registry=etcd:http://etcd:2379/fleet
  printf '{"id":"%s","health":"convicted","weight":0,"since":"2026-01-01T00:00:00.000Z","expires":null}' \
    00112233445566778899aabbccddeeff | inside fo-reg put --registry "$registry" "$key"
  example man/fo-canary.1 'fo-canary acquit'
  run_example
  [ "$(inside fo-reg get --registry "$registry" "$key" | jq -r .health)" = healthy ]
}

# --- fo-oracle(1) ---------------------------------------------------------------------------------

@test "fo-oracle(1): two engines, one of which refuses requests" {
  example man/fo-oracle.1 'fo-oracle --port 8001'
  start_example engines
  wait_for 'inside curl -fsS http://127.0.0.1:8001/health'
  wait_for 'inside curl -fsS http://127.0.0.1:8002/health'
  example man/fo-oracle.1 'curl localhost:8001/oracle'
  run_example
  [ "$(jq .refuse_next <<<"$output")" = 10 ]
}

# --- fo-plan(1) -----------------------------------------------------------------------------------

@test "fo-plan(1): failures, spares, replicas as a file, and a level by JSON" {
  example man/fo-plan.1 'fo-plan mtbf'
  run_example
  [[ $output == "One of 1024 GPUs fails every 285.2 h "* ]]
  example man/fo-plan.1 '--spares 4'
  run_example
  example man/fo-plan.1 'replicas.csv'
  run_example
  [ "$(wc -l <"$ROOM/root/here/replicas.csv")" -eq 11 ]
  example man/fo-plan.1 'fo-plan degrade'
  run_example
  [ "$output" = 2 ]
}

@test "fo-plan(1): draws false drains" {
  need_gnuplot
  example man/fo-plan.1 '--plot drains.svg'
  run_example
  grep -q '<svg' "$ROOM/root/here/drains.svg"
}

# --- fo-podgen(1) ---------------------------------------------------------------------------------

@test "fo-podgen(1): manifests applied to a cluster" {
  example man/fo-podgen.1 'kubectl apply --dry-run=server'
  cp "$FO_ROOT/bats/pods/refengine.yaml" "$ROOM/root/here/dgd.yaml"
  run_example
  called 'kubectl apply --dry-run=server -f -'
  [[ $output == *created* ]]
}

@test "fo-podgen(1): a post-renderer for Helm" {
  example man/fo-podgen.1 'helm install'
  mkdir "$ROOM/root/here/chart"
  cp "$FO_ROOT/bats/pods/refengine.yaml" "$ROOM/root/here/chart"
  stub helm '
    if [ "$1 $2 $4" != "install vllm --post-renderer" ]; then exit 64; fi
    chart=$3 renderer=$5
    shift 5
    for option; do
      case $option in --post-renderer-args=*) options+=("${option#*=}") ;; esac
    done
    cat "$chart"/*.yaml | "$renderer" "${options[@]}" | kubectl apply -f -'
  run_example
  [[ $output == *Deployment/* ]]
}

@test "fo-podgen(1): a review of changes" {
  example man/fo-podgen.1 'fo-podgen diff old.yaml new.yaml'
  local work=$ROOM/root/here
  cp "$FO_ROOT/bats/pods/refengine.yaml" "$work/old.yaml"
  cp "$work/old.yaml" "$work/new.yaml"
  run_example 0
  sed -i 's/64MiB/128MiB/' "$work/new.yaml"
  run_example 1
  [[ $output == *64MiB*128MiB* ]]
  echo 'a: [' >"$work/new.yaml"
  run_example 65
}

# --- fo-refengine(1) ------------------------------------------------------------------------------

@test "fo-refengine(1): a model is published, served and queried" {
  example man/fo-refengine.1 'fo-refengine make-model --layers 6'
  mkdir "$ROOM/tmp/gms"
  start_example serves
  wait_for 'inside gms-probe http http://127.0.0.1:8000/health' 60
  example man/fo-refengine.1 'curl localhost:8000'
  run_example
  [ "$(jq -cs '[.[] | .object, (.choices | length)]' <<<"$output")" = \
    '["text_completion",1,"chat.completion",1]' ]
}

@test "fo-refengine(1): an engine of a failover pair" {
  example man/fo-refengine.1 'exec gms-lock acquire --exec -- fo-refengine'
  weights
  a_model /models/m
  start_example engine
  wait_for 'inside gms-probe http http://127.0.0.1:8000/health'
  run -0 inside gms-lock owner
  end_example "$BG_PID"
}

# --- fo-reg(1) ------------------------------------------------------------------------------------

@test "fo-reg(1): the namespace of a deployment" {
  example man/fo-reg.1 'fo-reg id -f dgd.yaml'
  cp "$FO_ROOT/bats/pods/refengine.yaml" "$ROOM/root/here/dgd.yaml"
  run_example
  [[ $output =~ ^[a-z-]+-[0-9a-f]{16}$ ]]
}

@test "fo-reg(1): two cards of a model" {
  example man/fo-reg.1 'fo-reg explain old.json new.json'
  a_model /models/llama
  run_example 1
  prints 'may not migrate: the checksums differ by context_length'
}

# use_registry: sets REGISTRY to the folder that the documents have for it.
use_registry() {
  REGISTRY=dir:/run/fo/registry
  mkdir "$ROOM/run/fo"
}
# a_record NAME [OPTION...]: registers a worker in $REGISTRY, until the end of the test.
a_record() {
  start_bg "$1" "${INSIDE[@]}" fo-reg put --registry "$REGISTRY" --url http://127.0.0.1:8000 \
    --endpoint llama-0123456789abcdef/worker/generate "${@:2}"
  wait_for "[ -s $T/$1.out ]"
}
# lives: prints the lives of the workers in $REGISTRY, sorted.
lives() {
  inside fo-reg ls --registry "$REGISTRY" --json | jq -r '[.records[].life] | sort | join(" ")'
}

@test "fo-reg(1): a worker that is registered while it runs" {
  use_registry
  weights
  example man/fo-reg.1 'fo-reg run --endpoint'
  start_example worker
  wait_for '[ "$(lives)" = ready ]'
  inside curl -fsS http://127.0.0.1:8000/health
  end_example "$BG_PID"
  run -1 inside fo-reg ls
}

@test "fo-reg(1): drains a machine, and follows the workers' lives" {
  use_registry
  a_record worker
  example man/fo-reg.1 'fo-reg watch'
  start_example watch
  wait_for "grep -qx 'ready http://127.0.0.1:8000' $T/watch.out"
  example man/fo-reg.1 'fo-reg drain --host'
  run_example
  wait_for "grep -qx 'draining http://127.0.0.1:8000' $T/watch.out"
}

# --- fo-route(1) ----------------------------------------------------------------------------------

no_example man/fo-route.1 'worker_lost'

@test "fo-route(1): the keys of clients" {
  two_workers
  example man/fo-route.1 'requests_per_minute'
  # The page has the SHA-256 of nothing.
  sed "1s/.*/[$(printf mine | sha256sum | cut -d ' ' -f 1)]/" <<<"$EXAMPLE" >"$ROOM/root/here/keys.toml"
  start_bg router "${INSIDE[@]}" fo-route serve --lame-duck 0s --worker http://127.0.0.1:8001 --keys keys.toml
  wait_for 'inside curl -sSf -H "Authorization: Bearer mine" http://127.0.0.1:8080/v1/models'
  run -22 inside curl -sSf http://127.0.0.1:8080/v1/models
}

@test "fo-route(1): two engines behind one address, one of which is drained" {
  two_workers
  example man/fo-route.1 'fo-route serve --worker'
  # Typed by hand, the first command has done its work before the second one.
  EXAMPLE=${EXAMPLE/curl /"until fo-route ctl state 2>/dev/null | grep -q llama; do sleep 0.01; done; curl "}
  start_example router FO_ROUTE_LAME_DUCK=0s
  wait_for "jq -e '.choices[0].text' $T/router.out"
  example man/fo-route.1 'fo-route ctl drain'
  run_example
  [ "$output" = 0 ]
}

@test "fo-route(1): the engines of a registry, with TLS" {
  an_etcd
  REGISTRY=etcd:http://etcd:2379/fleet
  a_record worker --model llama
  start_bg engine "${INSIDE[@]}" fo-oracle --model llama
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node-3 \
    -keyout "$ROOM/root/here/tls.key" -out "$ROOM/root/here/tls.crt" 2>"$T/openssl"
  example man/fo-route.1 'fo-route serve --listen'
  start_example router FO_ROUTE_LAME_DUCK=0s
  wait_for 'inside curl -sSfk https://node-3:8443/v1/models | grep -q llama'
}

# --- fo-shadow(1) ---------------------------------------------------------------------------------

@test "fo-shadow(1): a pair, its status, and its maintenance" {
  weights
  example man/fo-shadow.1 'exec fo-shadow --publish'
  EXAMPLE=${EXAMPLE/fo-shadow/fo-shadow -q}
  export VLLM_SERVER_DEV_MODE=1
  start_example engine-0 ENGINE_ID=0
  wait_for 'inside gms-probe engine -q --id engine-0 --state active'
  start_example engine-1 ENGINE_ID=1 DYN_SYSTEM_PORT=9091
  wait_for 'inside gms-probe engine -q --id engine-1 --state standby'
  wait_for 'inside curl -fsS http://127.0.0.1:9090/health'
  inside curl -fsS http://127.0.0.1:9090/health >"$T/health"
  tokens
  # The page shows all members of the answer.
  example man/fo-shadow.1 '{"status":"ready","state":"active"'
  [ "$(jq -c 'keys' <<<"$EXAMPLE")" = "$(jq -c 'keys' "$T/health")" ]
  [ "$(jq -c '[.status, .state, .endpoints]' <<<"$EXAMPLE")" = \
    "$(jq -c '[.status, .state, .endpoints]' "$T/health")" ]
  example man/fo-shadow.1 'fo-shadow status'
  run_example
  grep -q 'engine-0.*active' <<<"$output"
  example man/fo-shadow.1 'fo-shadow switchover'
  run_example
  [ "${lines[0]}" = engine-1 ]
  called 'kubectl delete pod ...'
}

@test "fo-shadow(1): registration" {
  weights
  example man/fo-shadow.1 'fo-shadow --register'
  stub registry 'read -r line; echo "$line" >>/tmp/registry
    printf "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"'
  start_bg registry "${INSIDE[@]}" socat TCP-LISTEN:8500,fork,reuseaddr EXEC:registry
  wait_for 'inside bash -c ": <>/dev/tcp/127.0.0.1/8500"'
  start_example engine VLLM_SERVER_DEV_MODE=1
  wait_for 'inside gms-probe engine -q --state active'
  grep -q '^PUT /e ' "$ROOM/tmp/registry"
  end_example "$BG_PID"
  grep -q '^DELETE /e ' "$ROOM/tmp/registry"
}

# --- gms-load(1), gms-save(1) ---------------------------------------------------------------------

@test "gms-load(1): publishes a model on two devices, or finds it published" {
  example man/gms-load.1 'gms-load --device 0'
  a_model /models/llama/rank{0,1}
  GMS_SIM_DEVICES=2 a_server
  run_example 0 GMS_SIM_DEVICES=2
  [[ ${lines[0]} == published* && ${lines[1]} == published* ]]
  run_example 0 GMS_SIM_DEVICES=2
  [[ ${lines[0]} == imported* && ${lines[1]} == imported* ]]
}

@test "gms-load(1): replaces and verifies what is published; another process waits for it" {
  a_model /models/llama
  a_server
  example man/gms-load.1 'ENGINE_ID=1'
  start_example waits
  local waits=$BG_PID
  example man/gms-load.1 '--pin-content'
  run_example
  jq -e .memory_layout_hash <<<"$output"
  expect_exit "$waits" 0
  run_example
}

@test "gms-save(1), gms-load(1): saves twice, publishes the snapshot, and unpublishes it" {
  weights
  example man/gms-save.1 'sha256sum -c'
  run_example
  [[ $output == *": OK"* && $output != *FAILED* ]]
  example man/gms-save.1 '--replace'
  run_example
  jq -e .memory_layout_hash <<<"$output"
  example man/gms-load.1 'gms-load --snapshot'
  run_example
  [ "$(inside gms-stat --json | jq -r .state)" = EMPTY ]
}

# --- gms-lock(1) ----------------------------------------------------------------------------------

@test "gms-lock(1): an active engine, and a query for it" {
  example man/gms-lock.1 'exec gms-lock acquire'
  start_example engine-0
  local engine=$BG_PID
  engine_runs
  called 'my-engine --port 8000'
  example man/gms-lock.1 '$ gms-lock owner'
  run_session
  end_example "$engine" 143
}

@test "gms-lock(1): supervises, and gives workers a minute to end" {
  example man/gms-lock.1 '--grace 1m'
  start_example engine
  local engine=$BG_PID
  engine_runs
  run -0 inside gms-lock owner
  end_example "$engine" 143
  run -1 inside gms-lock owner
}

@test "gms-lock(1): takes over only once the memory is free" {
  example man/gms-lock.1 '--gpu-free 60GiB'
  start_example small GMS_SIM_VRAM=50GiB
  expect_exit "$BG_PID" 64
  run -1 called 'my-engine --port 8000'
  run_engine large GMS_SIM_VRAM=80GiB
}

# an_etcd: starts a real etcd on the machine.
an_etcd() {
  need etcd
  start_bg etcd "${INSIDE[@]}" etcd --data-dir "$T/etcd" --listen-client-urls http://10.0.0.5:2379 \
    --advertise-client-urls http://etcd:2379 --listen-peer-urls http://10.0.0.5:2380 \
    --initial-advertise-peer-urls http://10.0.0.5:2380 \
    --initial-cluster default=http://10.0.0.5:2380 \
    --heartbeat-interval 10 --election-timeout 100 --unsafe-no-fsync --logger zap --log-level warn
  wait_for 'inside curl -sf http://etcd:2379/health'
}

@test "gms-lock(1): elects a leader across nodes by etcd" {
  an_etcd
  example man/gms-lock.1 '--lock etcd:'
  run_engine engine
  run -0 inside gms-lock owner --lock etcd:http://etcd:2379/locks/pair
  run -0 inside gms-lock owner
}

@test "gms-lock(1): runs a command only if no engine is active" {
  example man/gms-lock.1 'maintenance'
  printf '#!/bin/sh\ngms-lock owner\n' >"$ROOM/root/here/upgrade"
  chmod +x "$ROOM/root/here/upgrade"
  run_example
  [ "$output" = maintenance ]
  a_holder engine-0
  run_example 9
}

# --- gms-lockd(8) ---------------------------------------------------------------------------------

@test "gms-lockd(8): a pod's lock server, its probe, its status, and a holder that hangs" {
  example man/gms-lockd.8 'exec gms-lockd'
  start_example lockd
  local server=$BG_PID
  example man/gms-lockd.8 'gms-probe lock'
  wait_for 'inside gms-probe lock --lock unix:/shared/failover.sock'
  run_example
  local lock=unix:/shared/failover.sock
  a_holder engine-0 "$lock"
  local holder=$HOLDER
  start_bg engine-1 "${INSIDE[@]}" gms-lock acquire --id engine-1 --lock "$lock" -- sleep infinity
  wait_for "inside gms-lock status --lock $lock | grep -q '^waiter: .*engine-1'"
  example man/gms-lockd.8 'socat -t1'
  run_example
  [ "$(jq -c '[.answer, .holder, .waiters[].engine_id]' <<<"$output")" = '["status","engine-0","engine-1"]' ]
  # The server is killed, and the new one waits for a holder that does not reconnect.
  kill -STOP "$holder"
  kill_now "$server"
  start_bg lockd2 "${INSIDE[@]}" gms-lockd --reconnect-window 100ms
  wait_for "grep -q '^gms-lockd: warning: process $holder of' $T/lockd2.err"
  example man/gms-lockd.8 'gms-lockd: warning: process 4711'
  [ "$(grep '^gms-lockd: warning: process' "$T/lockd2.err" | shape)" = "$(shape <<<"$EXAMPLE")" ]
  example man/gms-lockd.8 'kill -KILL 4711'
  EXAMPLE=${EXAMPLE/4711/$holder} run_example
  wait_for "inside gms-lock owner --lock $lock | grep -qx engine-1"
}

@test "gms-lockd(8): for engines on several machines" {
  example man/gms-lockd.8 '--tls-cert server.pem'
  local name work=$ROOM/root/here
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca \
    -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
  for name in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
      -keyout "$work/$name.key" -out "$work/$name.csr" 2>/dev/null
    openssl x509 -req -in "$work/$name.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" \
      -CAcreateserial -days 2 -extfile <(echo subjectAltName=IP:10.0.0.5) -out "$work/$name.pem" 2>/dev/null
  done
  start_example lockd
  wait_for 'inside gms-probe lock --lock unix:/run/failover.sock'
  local lock="tcp:10.0.0.5:7070?ca=/root/here/ca.pem&cert=/root/here/client.pem&key=/root/here/client.key"
  run -0 inside gms-lock status --lock "$lock"
  [ -e "$ROOM/var/lib/failover.state" ]
  end_example "$BG_PID"
}

@test "gms-lockd(8): a rehearsal of the server's death" {
  example man/gms-lockd.8 'kill -KILL %1'
  local -a line
  mapfile -t line <<<"$EXAMPLE"
  # In place of a person, who waits until the lock is held.
  local until_held='until gms-lock owner --lock unix:/tmp/lock.sock 2>/dev/null; do sleep 0.02; done'
  EXAMPLE="${line[0]}
${line[1]}
$until_held
${line[2]} || :
${line[3]}
$until_held"
  start_example rehearsal
  wait_for "[ \"\$(cat $T/rehearsal.out)\" = $'engine-0\nengine-0' ]"
}

@test "gms-lockd(8): each request of the page is valid" {
  example man/gms-lockd.8 '{"request":"acquire","engine_id":"engine-0"}'
  S=$ROOM/shared/failover.sock lockd_knows_it_free
  start_bg lockd "${INSIDE[@]}" gms-lockd --listen 127.0.0.1:7070
  wait_for 'inside gms-probe lock --lock unix:/shared/failover.sock'
  # await_answers ADDRESS ANSWERS REQUEST...: sends these on one connection, expects these sorted answers.
  await_answers() {
    printf '%s\n' "${@:3}" >"$T/requests"
    start_bg client "${INSIDE[@]}" socat "OPEN:$T/requests,rdonly,ignoreeof!!STDOUT" "$1"
    wait_for "[ \"\$(jq -r '\"\\(.answer) \\(.status)\"' $T/client.out | sort | paste -s -d ' ')\" = '$2' ]"
    kill "$BG_PID" 2>/dev/null || :
    wait_exit "$BG_PID"
  }
  local -a request
  mapfile -t request <<<"$EXAMPLE"
  local unix=UNIX-CONNECT:/shared/failover.sock tcp=TCP:127.0.0.1:7070
  await_answers "$unix" 'granted null' "${request[0]}"
  await_answers "$unix" 'granted null' "${request[1]}"
  await_answers "$tcp" 'refused 75' "${request[2]/3b1f.../3b1f0123456789abcdef0123456789ab}"
  await_answers "$unix" 'status null' "${request[3]}"
  await_answers "$unix" 'granted null' "${request[0]}" "${request[4]}"
  await_answers "$tcp" 'granted null heartbeat null' "${request[0]}" "${request[5]}"
}

# --- gms-probe(1) ---------------------------------------------------------------------------------

# probe_command: prints the command of EXAMPLE's probe, which is YAML, as words for a shell.
probe_command() {
  fo-podgen -q -o json <<<"$EXAMPLE" | jq -er '.startupProbe.exec.command | @sh'
}

@test "gms-probe(1): a startup probe, and an entrypoint that waits for the servers" {
  example man/gms-probe.1 'startupProbe:'
  EXAMPLE=$(probe_command)
  export GMS_SIM_DEVICES=2
  run_example 1
  local probe=$EXAMPLE
  example man/gms-probe.1 'gms-probe sockets --wait 30s'
  start_example engine
  a_server
  EXAMPLE=$probe run_example
  engine_runs
  [ "$(inside gms-lock owner)" = engine-0 ]
}

@test "gms-probe(1): checks that weights are published, and that an engine could wake" {
  a_model /models/llama
  a_server --tags weights
  example man/gms-probe.1 '--tags weights --committed'
  run_example 1
  inside gms-load -q --role rw /models/llama >/dev/null
  run_example
  example man/gms-probe.1 'gms-probe remap'
  run_example 0 GMS_SIM_VRAM=80GiB
  run_example 64 GMS_SIM_VRAM=16GiB
}

@test "gms-probe(1): checks that the engine is healthy, and that the other one is in standby" {
  weights
  example man/gms-probe.1 'gms-probe engine'
  start_example waits
  local waits=$BG_PID
  example man/gms-probe.1 'gms-probe http'
  run_example 1
  a_holder engine-0
  start_bg shadow "${INSIDE[@]}" fo-shadow -q --id engine-1 --gpu-free 0 \
    --engine command --sleep : --wake : -- sleep infinity
  expect_exit "$waits" 0
  run_example
}

@test "gms-probe(1): waits for a lock server" {
  example man/gms-probe.1 'gms-probe lock'
  start_example waits
  local waits=$BG_PID
  start_bg lockd "${INSIDE[@]}" gms-lockd
  expect_exit "$waits" 0
}

# --- gms-protocol(7) ------------------------------------------------------------------------------

@test "gms-protocol(7): a request from a shell" {
  example man/gms-protocol.7 'get_runtime_state_request'
  a_server
  run_example
  [[ $output == *g*e*t*_*r*u*n*t*i*m*e*_*s*t*a*t*e*_*r*e*s*p*o*n*s*e* ]]
}

@test "gms-protocol(7): a writer publishes one tensor, whose hash is the documented one" {
  local value hash
  example man/gms-protocol.7 '"tensor_type": "parameter"}'
  value=$EXAMPLE
  example man/gms-protocol.7 '"handshake_request"'
  a_server --devices 0 --tags weights
  inside /usr/bin/python3 - "$EXAMPLE" "$value" /shared/gms_0_weights.sock <<'PYTHON'
# Sends the requests of argv[1], each in a frame, and reads the answers.
import json, re, socket, struct, sys

def packed(value):
    if isinstance(value, dict):
        return bytes([0x80 + len(value)]) + b"".join(packed(x) for pair in value.items() for x in pair)
    if isinstance(value, int):
        return struct.pack(">BI", 0xCE, value)
    if isinstance(value, bytes):
        return struct.pack(">BH", 0xC5, len(value)) + value
    return struct.pack(">BH", 0xDA, len(value.encode())) + value.encode()

text, metadata, path = sys.argv[1:]
peer = socket.socket(socket.AF_UNIX)
peer.connect(path)
allocation = None
for line in re.sub(r",\n", ",", text).splitlines():
    request = json.loads(re.sub(r"b'\{.*?\}'", '"bytes"', line))
    if "value" in request:
        request["value"] = metadata.encode()
    if "allocation_id" in request:
        request["allocation_id"] = allocation
    body = packed(request)
    peer.sendall(struct.pack(">I", len(body)) + body)
    answer, fds, *_ = socket.recv_fds(peer, 65536, 8)
    wanted = request["type"].replace("_request", "_response").encode()
    if wanted not in answer:
        sys.exit(f"{request}: {answer}")
    found = re.search(rb"allocation_id\xd9\x24(.{36})", answer)
    allocation = found and found[1].decode() or allocation
PYTHON
  hash=$(inside gms-stat --json | jq -r .memory_layout_hash)
  # hashed WORD=VALUE...: prints the line in EXAMPLE with these words replaced.
  hashed() {
    local pair
    for pair; do EXAMPLE=${EXAMPLE/"${pair%%=*}"/"${pair#*=}"}; done
    printf '%s' "$EXAMPLE"
  }
  example man/gms-protocol.7 'rank:size:aligned_size:tag'
  hashed rank=0 aligned_size=2097152 size=12 tag=weights >"$T/hashed"
  example man/gms-protocol.7 'key:rank:offset_bytes:value'
  hashed key=w rank=0 offset_bytes=0 "value=$value" >>"$T/hashed"
  [ "$(sha256sum <"$T/hashed")" = "$hash  -" ]
}

# --- gms-remap-check(1) ---------------------------------------------------------------------------

@test "gms-remap-check(1): saves the hash of a layout, and checks it" {
  weights
  mkdir "$ROOM/run/engine"
  example man/gms-remap-check.1 '--save-hash'
  run_example
  [ -s "$ROOM/run/engine/layout" ]
  fo-refengine make-model -q --hidden 64 --layers 5 --seed 1 "$ROOM/models/other" >/dev/null
  inside gms-load -q --role rw /models/other >/dev/null
  EXAMPLE=${EXAMPLE#*$'\n'} run_example 65
}

@test "gms-remap-check(1): starts an engine only if it could import its weights" {
  example man/gms-remap-check.1 'exec gms-lock acquire'
  run_example 69
  weights
  run_engine engine
  [ "$(inside gms-lock owner)" = engine-0 ]
}

# --- gms-serve(8) ---------------------------------------------------------------------------------

@test "gms-serve(8): serves all GPUs of a node; its startup probe" {
  export GMS_SIM_DEVICES=2
  example man/gms-serve.8 'startupProbe:'
  local probe
  probe=$(probe_command)
  run -1 inside bash -c "$probe"
  example man/gms-serve.8 'exec gms-serve --socket-dir /shared'
  start_example serves
  wait_for "inside $probe"
  inside gms-probe sockets --devices 0,1
}

@test "gms-serve(8): its log lines" {
  local socket=$ROOM/shared/gms_0_weights.sock line
  GMS_SIM_VRAM=16MiB a_server -v --tags weights --alloc-retry-interval 20ms
  publish "$socket" 1 1
  ask_lock reader ro "$socket"
  wait_for "grep -q 'granted ro' $T/server.err"
  kill "$BG_PID"
  kill -KILL "$(cat "/proc/$SERVER/task/$SERVER/children")"
  {
    frame type handshake_request lock_type rw timeout_ms nil
    frame type allocate_request size 4000000 tag test
    frame type allocate_request size 4000000 tag test
    frame type allocate_request size 10000000 tag test
  } >"$T/writer.request"
  wait_for "inside gms-probe sockets --tags weights"
  start_bg writer socat "OPEN:$T/writer.request,rdonly,ignoreeof!!STDOUT" "UNIX-CONNECT:$socket"
  wait_for "grep -q 'out of memory for' $T/server.err"
  shape <"$T/server.err" >"$T/log"
  example man/gms-serve.8 'granted ro: device=0'
  while read -r line; do
    grep -F "$(shape <<<"${line% ...}")" "$T/log" || { cat "$T/server.err" && return 1; }
  done <<<"$EXAMPLE"
}

@test "gms-serve(8): with a snapshot, and metrics" {
  example man/gms-serve.8 '--restore /models/snapshot'
  weights
  inside gms-save -q /models/snapshot >/dev/null
  end_example "$SERVER"
  start_example serves
  wait_for 'inside gms-probe sockets --tags weights --committed'
  inside curl -fsS http://localhost:9400/metrics | grep -q '^gms_layout_published{.*} 1$'
  end_example "$BG_PID"
}

@test "gms-serve(8): one server, for the second GPU alone" {
  example man/gms-serve.8 '--socket-path /run/gms/weights.sock'
  export GMS_SIM_DEVICES=2
  start_example serves
  wait_for 'inside gms-stat --socket /run/gms/weights.sock'
  end_example "$BG_PID"
}

@test "gms-serve(8): a rehearsal without a GPU" {
  example man/gms-serve.8 'mkdir -p /tmp/gms'
  unset GMS_SIM_DEVICES
  start_example rehearsal
  wait_for "[ \$(grep -c EMPTY $T/rehearsal.out) -eq 4 ]"
}

@test "gms-serve(8): a device that is full for a while" {
  example man/gms-serve.8 'GMS_SIM_FAULTS'
  a_model /models/llama
  start_example serves
  wait_for 'inside gms-probe sockets'
  inside gms-load --role rw /models/llama
  inside gms-stat --events | grep -q allocation_oom
}

# --- gms-stat(1) ----------------------------------------------------------------------------------

@test "gms-stat(1): every server of the node: once, repeatedly, and as a log" {
  export GMS_SIM_DEVICES=2 GMS_SOCKET_DIR=/run/gms
  weights
  example man/gms-stat.1 '--all --watch 500ms'
  start_example log
  local log=$BG_PID
  example man/gms-stat.1 $'--all --watch\n'
  start_example watch
  local watch=$BG_PID
  wait_for "[ \$(wc -l <$T/watch.out) -eq 2 ] && [ \$(wc -l <$ROOM/root/here/gms.jsonl) -eq 2 ]"
  end_example "$log"
  end_example "$watch"
  example man/gms-stat.1 $'--all\n'
  run_example
  [ "${#lines[@]}" -eq 3 ]
  [ "$(jq -r .state "$ROOM/root/here/gms.jsonl" | sort)" = $'COMMITTED\nEMPTY' ]
}

@test "gms-stat(1): the tensors of the weights, who holds the memory, and the number of readers" {
  export GMS_SIM_DEVICES=2 GMS_SOCKET_DIR=/run/gms
  weights
  inside gms-load -q --device 1 /models/llama >/dev/null
  example man/gms-stat.1 '--list --events'
  run_example
  grep -q 'model.embed_tokens.weight' <<<"$output"
  grep -q committed <<<"$output"
  example man/gms-stat.1 '--holders'
  run_example
  grep -q gms-serve <<<"$output"
  example man/gms-stat.1 'ro_session_count'
  run_example
  [ "$output" = 0 ]
}

# --- failover(7) ----------------------------------------------------------------------------------

# These blocks are figures and a drawing.
no_example man/failover.7 'ms, medians of 5 (spread)'
no_example man/failover.7 'ms, by allocations published'
no_example man/failover.7 '1,000 allocations, 1,000 tensors, ms'
no_example man/failover.7 'a snapshot, not verified'
no_example man/failover.7 'engine 0     serves'
no_example man/failover.7 'ms, medians of 5       75 MiB'
no_example man/failover.7 'us                   request of 200 bytes'

@test "failover(7): a pod, step by step" {
  export VLLM_SERVER_DEV_MODE=1 DYN_GMS_SCRATCH_KV_ENABLED=1
  export GMS_SIM_LIBRARY=$FO_BUILD/lib/sim/libcuda.so.1
  a_model /models/llama
  example man/failover.7 'gms-probe sockets --socket-dir /shared'
  run_example 1
  local probe=$EXAMPLE
  example man/failover.7 'gms-serve --socket-dir /shared'
  start_example server
  wait_for "inside $probe"
  example man/failover.7 'fo-podgen install'
  run_example
  cmp "$ROOM/fo-tools/bin/gms-lock" "$FO_BIN/gms-lock"
  inside gms-load -q --role rw /models/llama >/dev/null
  example man/failover.7 'exec fo-shadow'
  start_example engine-0 ENGINE_ID=0 PATH="/fo-tools/bin:$PATH"
  wait_for 'inside gms-probe engine -q --id engine-0 --state active'
  start_example engine-1 ENGINE_ID=1 DYN_SYSTEM_PORT=9091
  wait_for 'inside gms-probe engine -q --id engine-1 --state standby'
  local before
  before=$(tokens)
  example man/failover.7 'kill -KILL'
  # The last line is for the time after the failover.
  [ "${EXAMPLE##*$'\n'}" = "fo-shadow status" ]
  EXAMPLE=${EXAMPLE%$'\n'*} run_example
  [[ $output == *"holder: engine-0"* ]]
  wait_for 'inside gms-probe engine -q --id engine-1 --state active'
  EXAMPLE=${EXAMPLE##*$'\n'} run_example
  [[ $output == *"holder: engine-1"* ]]
  [ "$(tokens)" = "$before" ]
  example man/failover.7 'gms-stat --holders'
  run_example
  [[ $output == *"holder: engine-1"*"gms-serve"* ]]
}

@test "failover(7): a pair without Kubernetes" {
  ln -s "$FO_ROOT/bats/systemctl" "$T/stubs/systemctl"
  # Installs the units as the package does.
  DESTDIR=$T/package cmake -DCMAKE_INSTALL_PREFIX=/usr -DFO_BINDIR=bin -P "$FO_ROOT/packaging/systemd/install.cmake"
  mkdir -p "$ROOM/run/systemd" "$ROOM/var/lib/fo-tools/examples"
  cp -r "$T/package/usr/lib/systemd/system" "$ROOM/run/systemd/system"
  cp "$FO_ROOT/packaging/systemd/fo-shadow@.service" "$ROOM/var/lib/fo-tools/examples"
  a_model /models/llama
  example man/failover.7 'systemctl enable --now gms-serve.service'
  run_example
  GMS_SOCKET_DIR=/run/gms inside gms-load -q --role rw /models/llama >/dev/null
  example man/failover.7 'systemctl edit --full fo-shadow@.service'
  run_example
  example man/failover.7 'systemctl kill --signal=KILL fo-shadow@0.service'
  # The last line is for the time after the failover.
  local before_kill=${EXAMPLE%$'\n'*} export_line=${EXAMPLE%%$'\n'*} last_line=${EXAMPLE##*$'\n'}
  [ "$last_line" = "fo-shadow status" ]
  EXAMPLE=$before_kill run_example
  [[ $output == *"holder: engine-0"* ]]
  wait_for "inside gms-probe engine -q --lock /run/fo/failover.lock --id engine-1 --state active"
  EXAMPLE="$export_line
$last_line" run_example
  [[ $output == *"holder: engine-1"* ]]
  tokens
}

@test "failover(7): the gate" {
  example man/failover.7 '--gpu-free 60GiB --timeout 5m'
  start_example engine-0 GMS_SIM_VRAM=80GiB
  local engine=$BG_PID
  engine_runs
  rm "$T/engine.env"
  example man/failover.7 '--exec --gpu-free 60GiB'
  start_example engine-1 GMS_SIM_VRAM=80GiB ENGINE_ID=1
  wait_for 'inside gms-lock status | grep -q ^waiter'
  end_example "$engine" 143
  engine_runs
  [ "$(inside gms-lock owner)" = engine-1 ]
}

@test "failover(7): a lock that a leftover worker keeps" {
  # An engine that ends, but leaves a worker running.
  stub my-engine '/usr/bin/python3 -c "import time; time.sleep(1000)" & exit'
  start_bg engine "${INSIDE[@]}" gms-lock acquire --exec -- my-engine
  wait_exit "$BG_PID"
  start_bg waits "${INSIDE[@]}" gms-lock acquire --id engine-1 -- sleep infinity
  wait_for 'inside gms-lock status | grep -q ^waiter'
  example man/failover.7 '$ gms-lock status'
  run_session
}

@test "failover(7): a lock across machines" {
  an_etcd
  example man/failover.7 '--lock etcd:'
  run_engine engine
  run -0 inside gms-lock owner --lock etcd:http://etcd:2379/locks/pair
}

@test "failover(7): a lock server in a container of its own" {
  local -a line
  example man/failover.7 'gms-lockd --socket /shared/failover.sock'
  mapfile -t line <<<"$EXAMPLE"
  [ "${#line[@]}" -eq 3 ]
  EXAMPLE=${line[0]} start_example lockd
  wait_for "inside ${line[1]}"
  EXAMPLE=${line[2]} start_example engine
  engine_runs
  run -0 inside gms-lock owner --lock unix:/shared/failover.sock
}

@test "failover(7): the commands within its sentences" {
  need mandoc
  weights
  inside gms-save -q /snapshots/llama >/dev/null
  inside gms-load --unpublish
  # Blocks have the commands that start or end an engine; these only query, and load.
  local count=0
  while read -r EXAMPLE; do
    echo "$EXAMPLE"
    # shellcheck disable=SC2086  # words
    run inside timeout 20 $EXAMPLE </dev/null 3>&-
    [ "$status" -le 1 ] || { echo "status $status: $output" && return 1; }
    count=$((count + 1))
  done < <(calls man/failover.7 | grep -E '^gms-(load|lock|probe|stat) ' | sed -E "$SUBSTITUTIONS")
  [ "$count" -ge 5 ]
}

# --- fleet(7) -------------------------------------------------------------------------------------

# Measurements.
no_example man/fleet.7 'fo-route  haproxy  nginx'

@test "fleet(7): a registry by hand" {
  example man/fleet.7 'fo-reg put --endpoint demo'
  # Typed by hand, the second command has done its work before the third one.
  EXAMPLE=${EXAMPLE/fo-reg ls/until fo-reg ls 2>/dev/null; do sleep 0.01; done}
  run_example
  [[ $output == *"demo-0123456789abcdef/worker/generate  ready  http://127.0.0.1:8000  demo   node-3"* ]]
  REGISTRY=dir:/tmp/registry
  wait_for '[ "$(lives)" = "" ]'
}

# a_cluster: starts a stand-in for Kubernetes' API server, and makes the machine one of its pods.
a_cluster() {
  local pod=$ROOM/var/run/secrets/kubernetes.io/serviceaccount
  mkdir -p "$pod"
  echo secret >"$pod/token"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj /CN=kubernetes -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$T/key" -out "$pod/ca.crt" 2>"$T/openssl"
  start_bg api "${INSIDE[@]}" "$FO_ROOT/bats/kube-api" --token-file "$pod/token" --cert "$pod/ca.crt" --key "$T/key"
  wait_for "[ -s $T/api.out ]"
  export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT
  KUBERNETES_SERVICE_PORT=$(cat "$T/api.out")
}

@test "fleet(7): a registry in etcd" {
  an_etcd
  example man/fleet.7 'FO_REGISTRY=etcd:'
  run_example
  [ "$output" = "etcd:http://etcd:2379/fleet: 0 records" ]
}

@test "fleet(7): applies the workers of a fleet" {
  example man/fleet.7 'kubectl apply -k packaging/k8s/fleet'
  applies packaging/k8s/fleet
}

@test "fleet(7): a registry in Kubernetes" {
  a_cluster
  local api=https://127.0.0.1:$KUBERNETES_SERVICE_PORT metadata
  metadata='"metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "rehearsal-workers"}}'
  inside curl -sSfk -H 'X-Test: 1' "$api/apis/discovery.k8s.io/v1/namespaces/default/endpointslices" \
    -d '{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", '"$metadata"',
      "ports": [{"name": "http", "port": 8000}], "endpoints": [{"addresses": ["10.0.0.1"]}]}' >"$T/created"
  inside curl -sSfk -H 'X-Test: 1' "$api/api/v1/namespaces/default/configmaps" \
    -d '{"apiVersion": "v1", "kind": "ConfigMap", '"$metadata"',
      "data": {"card.json": '"$(jq -Rs . "$FO_ROOT/packaging/k8s/fleet/card.json")"'}}' >"$T/created"
  example man/fleet.7 'service-name=rehearsal-workers'
  run_example
  [[ $output == *"rehearsal-workers/worker/generate  ready  http://10.0.0.1:8000  demo"* ]]
}

@test "fleet(7): a worker, and a registry that is removed" {
  REGISTRY=dir:/shared/registry
  weights
  example man/fleet.7 'fo-reg card /models/llama'
  start_example worker
  wait_for '[ "$(lives)" = ready ]'
  [ "$(inside fo-reg ls --registry "$REGISTRY" --json | jq -c '.records[] | [.model, .slots, (.card | length)]')" = '["llama",16,71]' ]
  example man/fleet.7 'rm -r /shared/registry'
  EXAMPLE=${EXAMPLE/sleep 2/until fo-reg ls --registry dir:/shared/registry; do sleep 0.01; done}
  run_example
  [[ $output == *ready* ]]
  end_example "$BG_PID"
  [ "$(lives)" = "" ]
}

@test "fleet(7): a failover pair" {
  REGISTRY=dir:/shared/registry
  weights
  export VLLM_SERVER_DEV_MODE=1
  example man/fleet.7 'fo-shadow --publish'
  start_example engine-0 ENGINE_ID=0
  wait_for '[ "$(lives)" = ready ]'
  start_example engine-1 ENGINE_ID=1 DYN_SYSTEM_PORT=9091
  wait_for '[ "$(lives)" = "ready spare" ]'
  tokens
  example man/fleet.7 'fo-shadow switchover'
  run_example
  [ "$(grep -cE ' (ready|spare) ' <<<"$output")" -eq 4 ]
  wait_for '[ "$(lives)" = "ready spare" ]'
  [ "$(inside gms-lock owner)" = engine-1 ]
  tokens
}

@test "fleet(7): a router" {
  REGISTRY=dir:/shared/registry
  a_record worker --model llama
  start_bg engine "${INSIDE[@]}" fo-oracle --model llama
  example man/fleet.7 'fo-route serve --registry'
  start_example router FO_ROUTE_LAME_DUCK=0s
  asks_router
  example man/fleet.7 'fo-route ctl state'
  run_example
  [[ $output == *llama*ready*yes*healthy*http://127.0.0.1:8000*"prompt tokens"* ]]
}

@test "fleet(7): lifts a conviction" {
  use_registry
  local id=00112233445566778899aabbccddeeff
  a_record worker --id "$id"
  printf '{"id":"%s","health":"convicted","weight":0,"since":"2026-01-01T00:00:00.000Z","expires":null}' "$id" |
    inside fo-reg put --registry "$REGISTRY" "verdicts/$id/canary-1"
  example man/fleet.7 'fo-canary acquit'
  run_example
  [[ $output == "verdicts/$id/canary-1 "* ]]
  [ "$(inside fo-reg get --registry "$REGISTRY" "verdicts/$id/canary-1" | jq -r .health)" = healthy ]
}

@test "fleet(7): drains a machine" {
  use_registry
  a_record worker
  example man/fleet.7 'fo-reg drain --host node-3'
  run_example
  [ "$(lives)" = draining ]
  example man/fleet.7 'fo-reg undrain --host node-3'
  run_example
  [ "$(lives)" = ready ]
}

# --- README.md ------------------------------------------------------------------------------------

@test "README: a fo-shadow above an engine" {
  weights
  export VLLM_SERVER_DEV_MODE=1
  example README.md '^fo-shadow --publish'
  # The published port is taken, so the engine listens at another one.
  if [[ $EXAMPLE != *--engine-url* ]]; then EXAMPLE=${EXAMPLE/ -- / --engine-url http://127.0.0.1:8001 -- }; fi
  [[ $EXAMPLE =~ --engine-url\ http://127.0.0.1:([0-9]+) ]]
  EXAMPLE+=" --port ${BASH_REMATCH[1]}"
  start_example engine
  wait_for 'inside gms-probe engine -q --state active'
  tokens
}

@test "README: the steps, each as a program of its own" {
  weights
  example README.md '^gms-probe sockets'
  # No KV cache is ever committed.
  if [[ $EXAMPLE != *--tags* ]]; then EXAMPLE=${EXAMPLE/--committed/--committed --tags weights}; fi
  run_engine engine
}

@test "README: a lock in Kubernetes" {
  a_cluster
  example README.md 'k8s:NAMESPACE/LEASE'
  run_engine engine
  [ "$(inside gms-lock owner --lock k8s:default/pair)" = engine-0 ]
}

@test "README: a worker in a registry" {
  example README.md 'fo-reg run --registry dir:/tmp/fleet'
  # Typed by hand, the first command has done its work before the second one.
  EXAMPLE=${EXAMPLE/fo-reg ls/until fo-reg ls 2>/dev/null}
  EXAMPLE=${EXAMPLE/dir:\/tmp\/fleet$'\n'fo-reg watch/dir:\/tmp\/fleet; do sleep 0.01; done$'\n'fo-reg watch}
  start_example registry
  wait_for "grep -q listed $T/registry.out"
  grep -q ' http://127.0.0.1:8000 ' "$T/registry.out"
  grep -q '"event":"put"' "$T/registry.out"
}

# two_workers: starts workers at the ports 8001 and 8002, which serve the model llama.
two_workers() {
  local port
  for port in 8001 8002; do
    start_bg "worker-$port" "${INSIDE[@]}" fo-oracle --port "$port" --model llama
  done
}
# asks_router: waits until a client of the router is answered.
asks_router() {
  wait_for 'inside curl -sSf -d "{\"model\":\"llama\",\"prompt\":\"a\"}" http://127.0.0.1:8080/v1/completions'
}

@test "README: a router with two workers" {
  two_workers
  example README.md 'fo-route serve --worker'
  start_example router FO_ROUTE_LAME_DUCK=0s
  asks_router
  run -0 inside fo-route ctl state
  [ "$(grep -c llama <<<"$output")" -eq 2 ]
  end_example "$BG_PID"
}

@test "README: a pod generated by fo-podgen" {
  cp "$FO_ROOT/bats/pods/refengine.yaml" "$ROOM/root/here/dgd.yaml"
  example README.md 'kubectl apply -f -'
  run_example
  called 'kubectl apply -f -'
  jq -e . "$T/applied.json"
}

# applies FOLDER: runs the example, which applies FOLDER, and checks that FOLDER exists.
applies() {
  run_example
  called "kubectl apply -k $1"
  [ -f "$FO_ROOT/$1/kustomization.yaml" ]
}

@test "README: applies a pair of vLLM" {
  example README.md 'kubectl apply -k packaging/k8s/vllm'
  applies packaging/k8s/vllm
}

@test "README: applies a rehearsal" {
  example README.md 'kubectl apply -k packaging/k8s/rehearsal'
  applies packaging/k8s/rehearsal
}

@test "README: the command of each engine's container" {
  weights
  export VLLM_SERVER_DEV_MODE=1 DYN_GMS_SCRATCH_KV_ENABLED=1
  example README.md 'exec fo-shadow --publish'
  start_example engine-0 ENGINE_ID=0
  wait_for 'inside gms-probe engine -q --id engine-0 --state active'
  EXAMPLE=$(sed 's/8001/8002/g; s/false/true/' <<<"$EXAMPLE")
  start_example engine-1 ENGINE_ID=1 DYN_SYSTEM_PORT=9091
  wait_for 'inside gms-probe engine -q --id engine-1 --state standby'
  tokens
}

@test "README: builds packages" {
  example README.md './packaging/package'
  # deb.bats and install.bats build and install them.
  cd "$FO_ROOT"
  run -0 bash -c "${EXAMPLE%%  *} --help"
  [[ ${lines[0]} == "Usage: packaging/package"* ]]
}

@test "README: builds by hand" {
  example README.md 'cmake --preset release'
  stub cmake ''
  cd "$FO_ROOT"
  run_example
  called 'cmake --preset release'
  called 'cmake --build build/release'
  jq -e '.configurePresets[] | select(.name == "release")' CMakePresets.json
}
