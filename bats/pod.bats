#!/usr/bin/env bats
# A pod of fo-podgen, run on this machine: bats/kubelet replaces the kubelet, fo-refengine is the
# engine, and the simulated driver the GPU.
# bats file_tags=slow

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # text for other shells; tests are subshells
load test_helper

KUBELET=$FO_ROOT/bats/kubelet
# The pod's address in bats/kubelet.
POD=127.1.0.1

setup() {
  fo_setup
  # Containers may run as other users.
  chmod 755 "$T"
  # The engines' own /dev/shm would hide a folder there.
  rmdir "$GMS_SIM_DIR"
  GMS_SIM_DIR=$T/gpu
  mkdir -m 777 "$GMS_SIM_DIR"
}

# generate [OPTION]...: writes the pod of $DGD to $T/pod.json.
DGD=$FO_ROOT/bats/pods/refengine.yaml
generate() {
  fo-podgen -f "$DGD" --supervise --kind pod -o json "$@" \
    >"$T/manifests.json"
  jq -e '[.. | objects | select(.kind == "Pod")] | first' "$T/manifests.json" >"$T/pod.json"
}
# edit FILTER [OPTION]...: changes $T/pod.json.
edit() {
  jq -e "$1" "${@:2}" "$T/pod.json" >"$T/pod.json.new"
  mv "$T/pod.json.new" "$T/pod.json"
}

# plain_pod [FILTER]: writes a handwritten pod to $T/pod.json, changed by the filter. It has a
# sidecar and a container, which end on SIGTERM.
plain_pod() {
  jq -n '{apiVersion: "v1", kind: "Pod", metadata: {name: "plain"}, spec: {
    initContainers: [{name: "sidecar", restartPolicy: "Always"}], containers: [{name: "main"}]}} |
    (.spec.initContainers, .spec.containers)[] +=
      {command: ["sh", "-c", "trap \"exit 0\" TERM; while :; do sleep 0.05; done"]}' |
    jq "${1:-.}" >"$T/pod.json"
}

# is_pod FILTER: succeeds if the filter is true for $T/pod.json.
is_pod() { jq -e "$1" "$T/pod.json" >/dev/null; }

# start_pod: runs it by the command in AS, 50 times as fast as a kubelet, or as TIME_SCALE says.
AS=()
start_pod() {
  start_bg kubelet "${AS[@]}" "$KUBELET" run --root "$T/pod" --tools "$FO_BUILD" --time-scale "${TIME_SCALE:-0.02}" \
    --gpu-dir "$GMS_SIM_DIR" --gpu-env GMS_DRIVER=sim --gpu-env "GMS_SIM_DIR=$GMS_SIM_DIR" \
    --gpu-env "GMS_SIM_DEVICES=${GPUS:-1}" --gpu-env GMS_SIM_VRAM=1GiB --gpu-env GMS_SIM_CONTEXT_SIZE=0 \
    --gpu-env "GMS_SIM_LIBRARY=$FO_BUILD/lib/sim/libcuda.so.1" "$T/pod.json"
  KUBELET_PID=$BG_PID
  wait_for "[ -e $T/pod/status.json ] || ! kill -0 $KUBELET_PID"
  if [ ! -e "$T/pod/status.json" ]; then
    wait_exit "$KUBELET_PID"
    if [ "$status" -eq 77 ]; then skip_because namespaces "$(cat "$T/kubelet.err")"; fi
    cat "$T/kubelet.err"
    return 1
  fi
}

# teardown prints the pod's status, events and logs if a test failed.
teardown() {
  if [ -z "${BATS_TEST_COMPLETED:-}" ] && [ -e "$T/pod/status.json" ]; then
    jq -c 'to_entries[]' "$T/pod/status.json"
    grep -v '"Unhealthy"' "$T/pod/events.jsonl" | tail -n 30
    tail -n 10 "$T"/pod/logs/*
  fi
  fo_teardown
}

# is FILTER: succeeds if it is true for the pod's status. wait_until FILTER [SECONDS]: waits for it.
is() { jq -e "$1" "$T/pod/status.json" >/dev/null; }
wait_until() { wait_for "is '$1'" "${2:-30}"; }
# has_event NAME REASON PATTERN: succeeds if there was such an event.
has_event() {
  jq -e -n --arg name "$1" --arg reason "$2" --arg pattern "$3" \
    'first(inputs | select(.object == $name and .reason == $reason and (.message | test($pattern))))' \
    "$T/pod/events.jsonl" >/dev/null
}
pid_of() { jq -e --arg name "$1" '.[$name].pid' "$T/pod/status.json"; }
# within CONTAINER COMMAND...: runs it in the container.
within() { "$KUBELET" exec --root "$T/pod" "$1" -- "${@:2}"; }
# from_outside COMMAND...: runs it in the pod's network, but outside its containers.
from_outside() {
  local -a namespaces=(--net --uts)
  # A process can't enter its own user namespace again.
  if [ ! "/proc/$KUBELET_PID/ns/user" -ef /proc/self/ns/user ]; then
    namespaces+=(--user --preserve-credentials)
  fi
  nsenter --target "$KUBELET_PID" "${namespaces[@]}" -- "$@"
}

# wait_state N STATE: waits until the status page of engine N shows it.
wait_state() {
  from_outside gms-probe engine -q --url "http://$POD:$((9090 + $1))/live" --state "$2" --wait 30s \
    >/dev/null
}
# find_active: sets ACTIVE to the number of the active engine, and OTHER to the other one's.
find_active() {
  wait_for 'page 0 | grep -q active || page 1 | grep -q active'
  ACTIVE=0
  if page 1 | grep -q active; then ACTIVE=1; fi
  OTHER=$((1 - ACTIVE))
}
page() { from_outside curl -s --max-time 5 "http://$POD:$((9090 + $1))/live" | jq -r .state; }
# complete: prints the tokens that the pod generates.
complete() {
  from_outside curl -sS --fail --max-time 20 -d '{"prompt":"Hello","max_tokens":4}' \
    "http://$POD:8000/v1/completions" | jq -ce '.choices[0].token_ids'
}

# start_pair: starts a pod, and waits until one engine serves and the other is in standby. Sets
# EXPECTED to the generated tokens.
start_pair() {
  start_pod
  wait_until .pod.ready
  find_active
  wait_state "$OTHER" standby
  EXPECTED=$(complete)
}

# fail_over: kills the active engine's container, and expects the other one to take over.
fail_over() {
  local active=$ACTIVE restarts
  restarts=$(jq --arg name "engine-$active" '.[$name].restarts' "$T/pod/status.json")
  kill -KILL "$(pid_of "engine-$active")"
  wait_state "$OTHER" active
  [ "$(complete)" = "$EXPECTED" ]
  wait_until ".\"engine-$active\" | .restarts == $restarts + 1 and .exit_status == 137 and .ready"
  wait_state "$active" standby
  wait_until .pod.ready
  ACTIVE=$OTHER
  OTHER=$active
}

# stop_pod: ends the pod, and expects status 0 of all containers.
stop_pod() {
  terminate "$KUBELET_PID"
  is '[.[] | select(has("exit_status"))] | all(.state == "terminated" and .exit_status == 0)'
}

# --- failovers ------------------------------------------------------------------------------------

@test "one engine serves and the other is in standby; each takes over from the other" {
  generate
  start_pair
  is '[."engine-0", ."engine-1", ."gms-weights"] | all(.restarts == 0)'
  fail_over
  fail_over
  is '[."engine-0", ."engine-1"] | all(.restarts == 1)'
  is '."gms-weights".restarts == 0'
  stop_pod
}

@test "the engine's death ends its container" {
  generate
  start_pair
  local engine
  engine=$(within "engine-$ACTIVE" fo-shadow status --json |
    jq '.engines[] | select(.state == "active").engine_pid')
  # The container may end before this shell does.
  within "engine-$ACTIVE" sh -c "kill -KILL $engine" || [ "$?" -eq 137 ]
  wait_state "$OTHER" active
  [ "$(complete)" = "$EXPECTED" ]
  wait_until ".\"engine-$ACTIVE\" | .restarts == 1 and .exit_status == 137 and .ready"
  wait_state "$ACTIVE" standby
}

@test "a killed gms-serve restarts, the active engine serves on, and the pair still fails over" {
  generate
  start_pair
  kill -KILL "$(pid_of gms-weights)"
  wait_until '."gms-weights" | .restarts == 1 and .exit_status == 137 and .started'
  # The container "weights" loads the weights into the new server, once that accepts connections.
  wait_until '.weights | .restarts >= 1 and .ready'
  within weights gms-probe sockets -q --tags weights --committed --wait 30s >/dev/null
  [ "$(complete)" = "$EXPECTED" ]
  is '[."engine-0", ."engine-1"] | all(.restarts == 0)'
  fail_over
  is ".\"engine-$ACTIVE\".restarts == 0"
}

@test "a crash inside of gms-serve restarts no container" {
  generate
  start_pair
  local server
  server=$(within gms-weights sh -c 'cat /proc/1/task/1/children')
  within gms-weights sh -c "kill -KILL $server"
  within weights gms-probe sockets -q --tags weights --committed --wait 30s >/dev/null
  fail_over
  is '."gms-weights".restarts == 0'
  is '.weights.restarts == 0'
}

@test "the liveness probe ends an active engine that is stopped" {
  generate
  start_pair
  kill -STOP "$(pid_of "engine-$ACTIVE")"
  wait_state "$OTHER" active
  has_event "engine-$ACTIVE" Unhealthy '^livenessProbe: no answer in 4 s$'
  has_event "engine-$ACTIVE" Killing '^the liveness probe failed: '
  [ "$(complete)" = "$EXPECTED" ]
  wait_state "$ACTIVE" standby
  is ".\"engine-$ACTIVE\".restarts == 1"
  wait_until .pod.ready
}

@test "the liveness probe ends a wake that hangs, and the pod recovers" {
  generate
  # The default timeout is two minutes.
  edit '(.spec.containers[] | select(.name | startswith("engine-")).command) |=
    (index("--") as $at | .[:$at] + ["--wake-timeout", "2s"] + .[$at:])'
  start_pair
  local engine
  engine=$(within "engine-$OTHER" fo-shadow status --json |
    jq '.engines[] | select(.state == "standby").engine_pid')
  within "engine-$OTHER" sh -c "kill -STOP $engine"
  kill -KILL "$(pid_of "engine-$ACTIVE")"
  wait_for "grep -q 'standby -> waking' $T/pod/logs/engine-$OTHER.0.log"
  wait_until ".\"engine-$OTHER\".restarts == 1"
  has_event "engine-$OTHER" Killing '^the liveness probe failed: '
  wait_until .pod.ready
  find_active
  [ "$(complete)" = "$EXPECTED" ]
}

# --- other pods -----------------------------------------------------------------------------------

@test "a pair in the layout of NVIDIA's operator fails over" {
  generate --layout dynamo
  start_pair
  fail_over
  is '."gms-server".restarts == 0'
  stop_pod
}

@test "a pair with a lock server fails over, and survives the server's death" {
  generate --lock lockd
  start_pair
  fail_over
  kill -KILL "$(pid_of gms-lockd)"
  wait_until '."gms-lockd" | .restarts == 1 and .started'
  [ "$(complete)" = "$EXPECTED" ]
  fail_over
  is '[."engine-0", ."engine-1"] | all(.restarts == 1)'
  stop_pod
}

@test "a pair whose tools come from the tools image fails over" {
  generate --tools-image registry.example.com/fo-tools:1
  start_pair
  fail_over
}

@test "a pair with GPUs of a device plugin fails over" {
  generate --gpu-sharing device-plugin
  is_pod '[.spec.containers[].resources.limits."nvidia.com/gpu"] | all(. != null)'
  start_pair
  fail_over
}

@test "a pair whose engines span two GPUs fails over" {
  sed -E 's/gpu: "1"/gpu: "2"/
    s/--kv-bytes, 64MiB/--kv-bytes, 64MiB, --ranks, "2"/
    s/(gms-load [^|]*) /\1 --device 0 \&\& \1 --device 1 /' "$DGD" >"$T/two.yaml"
  DGD=$T/two.yaml generate
  GPUS=2 start_pair
  fail_over
}

@test "a pair whose engines are started by a shell fails over" {
  local script="exec fo-refengine serve --model /models/demo --port 8000 --kv-bytes 64MiB"
  sed -E "s|command: \[fo-refengine, serve\]|command: [sh, -c]|
    s|args: \[--model.*|args: [\"$script\"]|" "$DGD" >"$T/shell.yaml"
  DGD=$T/shell.yaml generate
  is_pod '.spec.containers[0] | .command + .args | index("sh") != null'
  start_pair
  fail_over
}

# --- the stand-in behaves like a kubelet ----------------------------------------------------------

@test "no engine starts before the startup probe of the memory server has passed" {
  generate
  edit '(.spec.initContainers[] | select(.name == "gms-weights").startupProbe.exec.command) = ["false"]'
  start_pod
  wait_for "[ \"\$(grep -c 'startupProbe: exit status 1' $T/pod/events.jsonl)\" -ge 10 ]"
  is '.pod.phase == "Pending"'
  is '."gms-weights" | .state == "running" and (.started | not)'
  is '[."engine-0", ."engine-1"] | all(.state == "waiting" and .pid == null)'
}

@test "a container without a GPU in its resources has none" {
  generate
  edit 'del(.spec.containers[] | select(.name == "engine-1").resources)'
  start_pod
  wait_until '."engine-1" | .restarts >= 2 and .exit_status == 69'
  is '.pod.ready == false'
  wait_state 0 active
}

@test "a memory server without a GPU never starts" {
  generate
  edit 'del(.spec.initContainers[] | select(.name == "gms-weights").resources)'
  start_pod
  wait_until '."gms-weights" | .restarts >= 2 and .exit_status == 69'
  is '.pod.phase == "Pending"'
}

@test "an engine that listens on 127.0.0.1 only is never ready" {
  generate
  edit '(.spec.containers[] | select(.name == "engine-0").command) |=
    (index("--") as $at | .[:$at] + ["--host", "127.0.0.1"] + .[$at:])'
  start_pod
  wait_until '."engine-1".ready'
  wait_for "has_event engine-0 Unhealthy '^startupProbe: .* Connect call failed'"
  is '."engine-0".started == false'
}

@test "containers run as the users of their pod" {
  plain_pod '.spec.securityContext = {runAsUser: 1000, runAsGroup: 1001} |
    .spec.initContainers[0].securityContext = {
      runAsUser: 1002, allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}'
  start_pod
  wait_until .pod.ready
  is .pod.users || skip_because users "there is one user in this namespace"
  run -0 grep -E '^[UG]id:' "/proc/$(pid_of main)/status"
  [ "$output" = $'Uid:\t1000\t1000\t1000\t1000\nGid:\t1001\t1001\t1001\t1001' ]
  run -0 grep -E '^[UG]id:' "/proc/$(pid_of sidecar)/status"
  [ "$output" = $'Uid:\t1002\t1002\t1002\t1002\nGid:\t1001\t1001\t1001\t1001' ]
  run -0 grep -E '^(CapBnd|NoNewPrivs):' "/proc/$(pid_of sidecar)/status"
  [ "$output" = $'CapBnd:\t0000000000000000\nNoNewPrivs:\t1' ]
}

@test "a pod runs without root, too" {
  plain_pod
  chmod 777 "$T"
  if [ "$(id -u)" -eq 0 ]; then AS=(setpriv --reuid 65534 --regid 65534 --clear-groups); fi
  "${AS[@]}" test -x "$KUBELET" -a -x "$FO_BIN" || skip_because users "nobody may read this folder"
  "${AS[@]}" unshare --user --map-root-user --net true ||
    skip_because namespaces "none without root here"
  FO_MUST_RUN=namespaces start_pod
  wait_until .pod.ready
  is '.pod.users == false'
  answers 0 plain from_outside hostname
  stop_pod
}

@test "containers share the pod's time to end" {
  plain_pod '.spec.terminationGracePeriodSeconds = 30 |
    .spec.containers[0].command[2] |= sub("exit 0"; "sleep 0.5; exit 0")'
  TIME_SCALE=1 start_pod
  wait_until .pod.ready
  stop_pod
  # grace NAME: prints its time to end, in milliseconds.
  grace() {
    jq -r --arg name "$1" 'select(.object == $name and .reason == "Killing").message' \
      "$T/pod/events.jsonl" | sed -nE 's/^the pod ends: ([0-9]+)\.([0-9]{3}) s to end$/\1\2/p'
  }
  [ "$(grace main)" -gt 29500 ]
  [ "$(grace sidecar)" -le $(($(grace main) - 500)) ]
}

@test "the host's folders and mounts are read-only in a container" {
  plain_pod '.spec.containers[0].command[2] |= "
    cut -d \" \" -f 2,4 /proc/mounts | tee mounts; touch /etc/x '"$FO_BUILD"'/x 2>&1; " + . |
    .spec.volumes = [{name: "shared", emptyDir: {}}] |
    (.spec.containers[0], .spec.initContainers[0]).volumeMounts = [{name: "shared", mountPath: "/shared"}] |
    .spec.initContainers[0].volumeMounts[0].readOnly = true'
  start_pod
  wait_until .pod.ready
  wait_for "[ \$(grep -c 'Read-only file system' $T/pod/logs/main.0.log) -eq 2 ]"
  run -1 grep -E "^(/bin|/etc|/lib|/opt|/sbin|/sys|/usr|$FO_BUILD)[^ ]* (rw|.*,rw)\b" "$T/pod/logs/main.0.log"
  within main touch /shared/here
  run -1 within sidecar touch /shared/here
  stop_pod
}

@test "an error of the stand-in is not reported as a missing permission" {
  plain_pod
  start_pod
  ends_with 71 timeout 20 "$KUBELET" run --root "$T/other" --tools "$T/none" "$T/pod.json"
  [[ $stderr == "kubelet: error: make a pod's namespaces: "*"mount: No such file or directory: '$T/none'" ]]
  # This "true" always fails.
  mkdir -p "$T/tools/bin"
  printf '#!/bin/sh\nexit 3\n' >"$T/tools/bin/true"
  chmod +x "$T/tools/bin/true"
  ends_with 71 timeout 20 "$KUBELET" run --root "$T/pod2" --tools "$T/tools" "$T/pod.json"
  [ "$stderr" = "kubelet: error: run 'true' in a container: exit status 3" ]
}

@test "the stand-in reports that namespaces are not permitted" {
  unshare --user --map-root-user true || skip_because namespaces "no user namespaces here"
  generate
  ends_with 77 unshare --user --map-root-user sh -c \
    'echo 0 >/proc/sys/user/max_net_namespaces && exec "$0" run --root "$1/pod" "$1/pod.json"' \
    "$KUBELET" "$T" 3>&-
  [[ $stderr == "kubelet: error: make a pod's namespaces: "* ]]
}

@test "fields that the stand-in does not know are refused" {
  generate
  cp "$T/pod.json" "$T/good.json"
  local change
  for change in '.spec.hostNetwork = true' '.spec.containers[0].envFrom = []' '.kind = "Job"' \
    '.spec.containers[0].livenessProbe = {"grpc": {"port": 1}}' 'del(.spec.resourceClaims)' \
    '.spec.volumes[0] = {"name": "x", "hostPath": {"path": "/"}}' 'del(.spec)' \
    'del(.spec.containers[0].command)' '.spec.securityContext.supplementalGroups = [1]' \
    '.spec.containers[0].env += [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]' \
    '.spec.containers[0].securityContext.capabilities = {"add": ["NET_ADMIN"]}' \
    '.spec.containers[0].livenessProbe.httpGet.scheme = "HTTPS"' \
    '.spec.containers[0].securityContext = {"runAsNonRoot": true}'; do
    cp "$T/good.json" "$T/pod.json"
    edit "$change"
    observe timeout 20 "$KUBELET" run --root "$T/pod" "$T/pod.json"
    [ "$status" -eq 65 ] || { echo "status $status after $change"; return 1; }
    [[ $stderr == "kubelet: error: $T/pod.json: "* ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
  done
}

# --- other engines, imitated by tests/support/stand_in_worker.cc ----------------------------------

load stand_in

# use_stand_in NAME [OPTION]...: generates the pod of bats/pods/NAME.yaml, or of a file by its path,
# and puts the stand-ins first in its PATH. DISCOVERY is the file in which they record who serves.
use_stand_in() {
  need_stand_in
  local file=$1
  if [[ $file != /* ]]; then file=$FO_ROOT/bats/pods/$1.yaml; fi
  fo-podgen -q -f "$file" --kind pod -o json "${@:2}" >"$T/manifests.json"
  jq -e '[.. | objects | select(.kind == "Pod")] | first' "$T/manifests.json" >"$T/pod.json"
  local folder volume
  folder=$(dirname "$(jq -r '.spec.containers[0].env[] |
    select(.name == "FAILOVER_LOCK_PATH").value' "$T/pod.json")")
  volume=$(jq -r --arg folder "$folder" '.spec.containers[0].volumeMounts[] |
    select(.mountPath == $folder).name' "$T/pod.json")
  DISCOVERY=$T/pod/volumes/$volume/discovery
  edit '((.spec.containers, .spec.initContainers)[] | select(.name | test("^(engine|gms)-")).env) += [
    {name: "PATH", value: $path}, {name: "STAND_IN_DISCOVERY", value: "\($folder)/discovery"}]' \
    --arg folder "$folder" --arg path "$ENGINES:$FO_BUILD/bin:/usr/bin:/bin"
}

# both_layouts COMMAND...: runs it once with each layout, in two pods one after the other.
both_layouts() {
  local layout
  for layout in plan dynamo; do
    "$@" --layout "$layout"
    never_two_served "$DISCOVERY"
    [ "$(served "$DISCOVERY" | wc -w)" -eq 3 ]
    stop_pod
    rm -rf "$T/pod"
  done
}

# play_pair NAME OPTION...: engines with their own API, two failovers.
play_pair() {
  use_stand_in "$@"
  start_pair
  fail_over
  fail_over
}

# play_workers NAME [OPTION]...: Dynamo's workers, two failovers.
play_workers() {
  use_stand_in "$@"
  start_pod
  wait_until .pod.ready
  wait_for "[ -n \"\$(registered $DISCOVERY)\" ]"
  find_worker
  EXPECTED=$(ask_worker)
  kill_worker
  kill_worker
}

# find_worker: sets WORKER and WORKER_PORT to the worker that registered last.
find_worker() { read -r WORKER _ WORKER_PORT <<<"$(registered "$DISCOVERY")"; }
# ask_worker: prints its tokens.
ask_worker() {
  from_outside curl -sS --fail --max-time 20 -d '{"prompt":"Hello","max_tokens":4}' \
    "http://$POD:$WORKER_PORT/v1/completions" | jq -ce '.choices[0].token_ids'
}
# kill_worker: kills its container; the other worker registers and generates the same tokens, and
# the killed one returns to standby.
kill_worker() {
  local killed=$WORKER
  kill -KILL "$(pid_of "engine-$killed")"
  wait_for "find_worker && [ \"\$WORKER\" = $((1 - killed)) ]"
  [ "$(ask_worker)" = "$EXPECTED" ]
  wait_until ".\"engine-$killed\" | .restarts == 1 and .ready"
  wait_until .pod.ready
}

@test "vLLM under fo-shadow: one serves, and each takes over from the other, in both layouts" {
  both_layouts play_pair vllm --supervise --gms ours
}

@test "SGLang under fo-shadow: one runs, and each takes over from the other, in both layouts" {
  both_layouts play_pair sglang --supervise --gms ours
}

@test "dynamo.vllm by itself: one registers, and each takes over from the other, in both layouts" {
  both_layouts play_workers dynamo-vllm
}

@test "dynamo.vllm under fo-shadow: one runs, and each takes over from the other, in both layouts" {
  both_layouts play_workers dynamo-vllm --supervise --gms ours
}

# --- shapes of workers, with a Frontend that Dynamo's operator still runs -------------------------

# graph TYPE MAIN: writes a deployment to $T/graph.yaml whose worker of that type has the fields
# MAIN in its main container.
graph() {
  cat >"$T/graph.yaml" <<EOF
# Source: chart/templates/graph.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: prod}
data:
  transfer: '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
---
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: qwen3-0.6b, namespace: prod}
spec:
  services:
    Frontend:
      componentType: frontend
      extraPodSpec: {mainContainer: {image: registry.example.com/dynamo:1}}
    Worker:
      componentType: $1
      resources: {limits: {gpu: "1"}}
      gpuMemoryService: {enabled: true}
      failover: {enabled: true}
      extraPodSpec:
        mainContainer:
          image: registry.example.com/dynamo:1
          securityContext: {runAsUser: 1000, runAsGroup: 1000}
          env:
            - {name: KV, value: "268435456"}
            - {name: TRANSFER, valueFrom: {configMapKeyRef: {name: settings, key: transfer}}}
$(sed 's/^/          /' <<<"$2")
EOF
}

# use_graph OPTION...: generates its pod. Variables from the ConfigMap get their values, as the
# kubelet would set them.
use_graph() {
  use_stand_in "$T/graph.yaml" "$@"
  edit '(.spec.containers[].env[]? | select(.valueFrom.configMapKeyRef)) |=
    {name, value: $transfer}' --arg transfer '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
}

# the_frontend_finds_one: succeeds if it finds one worker, and sets WORKER and WORKER_PORT.
the_frontend_finds_one() {
  local -a found
  mapfile -t found < <(frontend_finds)
  [ "${#found[@]}" -eq 1 ] && read -r WORKER WORKER_PORT <<<"${found[0]}"
}

# workers OPTION...: the Frontend finds the worker that serves, and after its death the other one.
workers() {
  use_graph "$@"
  start_pod
  wait_until .pod.ready
  wait_for the_frontend_finds_one
  EXPECTED=$(ask_worker)
  local killed=$WORKER
  kill -KILL "$(pid_of "engine-$killed")"
  wait_for "the_frontend_finds_one && [ \"\$WORKER\" = $((1 - killed)) ]"
  [ "$(ask_worker)" = "$EXPECTED" ]
  wait_until ".\"engine-$killed\" | .restarts == 1 and .ready"
  never_two_served "$DISCOVERY"
}

# servers OPTION...: engines with their own API, which no Frontend finds.
servers() {
  use_graph "$@"
  start_pair
  fail_over
  never_two_served "$DISCOVERY"
  [ "$(frontend_finds)" = "" ]
  stop_pod
}

TOOLS=(--tools-image registry.example.com/fo-tools:1)
LIST='command: [python3, -m, dynamo.vllm]
args: [--model, model, --kv-transfer-config, $(TRANSFER), --kv-cache-memory-bytes, $(KV)]'
# The engine's line comes after preparations, conditions and a function.
SCRIPT='command: [/bin/bash, -c]
args:
  - |
    set -Eeuo pipefail
    log() { echo "[$(date +%T)] $*" >&2; }
    [ -n "${KV:-}" ] || { log "no KV"; exit 1; }
    if [ -d /dev/shm ]; then
      log "shared memory: $(df -h /dev/shm | tail -n 1)"
    fi
    ulimit -c 0 || true
    exec python3 -m dynamo.vllm \
      --model model \
      --kv-transfer-config "$TRANSFER" \
      --kv-cache-memory-bytes ${KV} 2>&1'

@test "a worker as a list of arguments, as NVIDIA's image runs it" {
  graph worker "$LIST"
  workers
  stop_pod
}

# A shell that is the first process of its container ignores SIGTERM: these two pods are killed at
# their end.

@test "a prefill worker as a line of sh" {
  graph prefill 'command: [sh, -c]
args: ["python3 -m dynamo.vllm --model model --disaggregation-mode prefill --kv-cache-memory-bytes $KV | tee log"]'
  workers "${TOOLS[@]}"
}

@test "a decode worker as a script, in the layout of NVIDIA's operator" {
  graph decode "$SCRIPT"
  workers --layout dynamo
  stop_pod
}

@test "a worker as arguments alone, which Dynamo's operator gives to a shell" {
  graph worker 'args: ["python3 -m dynamo.vllm --model model --kv-cache-memory-bytes $KV"]'
  workers --layout dynamo "${TOOLS[@]}"
}

@test "a worker as a list, under fo-shadow" {
  graph worker "$LIST"
  workers --supervise "${TOOLS[@]}"
  stop_pod
}

@test "a decode worker as a script, under fo-shadow, in the layout of NVIDIA's operator" {
  graph decode "$SCRIPT"
  workers --layout dynamo --supervise "${TOOLS[@]}"
  stop_pod
}

@test "vLLM as a list, under fo-shadow" {
  graph worker 'command: [vllm, serve]
args: [model, --kv-transfer-config, $(TRANSFER), --kv-cache-memory-bytes, $(KV)]'
  servers --supervise "${TOOLS[@]}"
}

@test "vLLM as a line of sh, under fo-shadow, in the layout of NVIDIA's operator" {
  graph prefill 'command: [sh, -c, "exec vllm serve model --kv-cache-memory-bytes $KV"]'
  servers --layout dynamo --supervise "${TOOLS[@]}"
}

@test "vLLM as a script with a filter for its output, under fo-shadow" {
  graph decode "$(sed 's/exec python3 -m dynamo.vllm/vllm serve/; s/--model model/model/; s/2>&1/2>\&1 | sed -u s,^,engine:,/' <<<"$SCRIPT")"
  grep -q 'vllm serve' "$T/graph.yaml"
  servers --supervise "${TOOLS[@]}"
}

@test "SGLang as a list, under fo-shadow, in the layout of NVIDIA's operator" {
  graph worker 'command: [python3, -m, sglang.launch_server]
args: [--model-path, model, --load-format, gms, --port, "8000", --mem-fraction-static, "0.4"]'
  servers --layout dynamo --supervise "${TOOLS[@]}"
}

@test "SGLang as a script, under fo-shadow" {
  graph decode 'command: [bash, -ec]
args:
  - |
    PORT=8000
    export NCCL_DEBUG=WARN
    exec python3 -m sglang.launch_server --model-path model --load-format gms --port $PORT --mem-fraction-static 0.4'
  servers --supervise "${TOOLS[@]}"
}

@test "a Frontend finds only workers with its labels, names and rights" {
  graph worker "$LIST"
  use_graph
  cp "$T/manifests.json" "$T/good.json"
  start_pod
  wait_for the_frontend_finds_one
  local change
  for change in 'del(.. | .annotations?)' '(.. | .name? | select(. == "qwen3-0.6b")) = "other"' \
    '(.. | .namespace? | select(. == "prod")) = "test"' 'del(.. | .Frontend?)'; do
    jq "$change" "$T/good.json" >"$T/manifests.json"
    [ "$(frontend_finds)" = "" ] || { echo "found after $change"; return 1; }
  done
  cp "$T/good.json" "$T/manifests.json"
  for change in 'del(.metadata.labels)' '.spec.serviceAccountName = "default"' \
    '.metadata.name = "other"'; do
    jq "$change" "$T/pod.json" >"$T/other.json"
    cp "$T/pod.json" "$T/kept.json"
    mv "$T/other.json" "$T/pod.json"
    [ "$(frontend_finds)" = "" ] || { echo "found after $change"; return 1; }
    mv "$T/kept.json" "$T/pod.json"
  done
  the_frontend_finds_one
}

# --- packaging/k8s --------------------------------------------------------------------------------

APPLIED=$FO_ROOT/packaging/k8s

# as_json FILE: prints its documents as an array.
as_json() { fo-podgen -q -o json -f "$1" | jq -c 'if .kind == "List" then .items else [.] end'; }

# use_folder NAME: writes the pod of packaging/k8s/NAME to $T/pod.json, with the variables of its
# ConfigMap, as kustomize and the API server would.
use_folder() {
  as_json "$APPLIED/$1/kustomization.yaml" | jq '.[0]' >"$T/kustomization.json"
  jq -c '[.configMapGenerator[0].literals[] | capture("^(?<name>[^=]*)=(?<value>.*)$")]' \
    "$T/kustomization.json" >"$T/variables.json"
  as_json "$APPLIED/$1/deployment.yaml" | jq --slurpfile variables "$T/variables.json" '.[0] as $it |
    {apiVersion: "v1", kind: "Pod", metadata: {name: $it.metadata.name}, spec: $it.spec.template.spec} |
    (.spec.initContainers[], .spec.containers[] | select(.envFrom)) |=
      (.env = $variables[0] + .env | del(.envFrom))' >"$T/pod.json"
}

@test "the manifests of packaging/k8s have Kubernetes' types, and agree with each other" {
  need_types
  local name file
  local -a manifests=()
  for name in vllm rehearsal; do
    for file in "$APPLIED/$name"/*.yaml; do
      case $file in
        */kustomization.yaml | */podmonitor.yaml) ;;
        *) manifests+=("$file") ;;
      esac
    done
    use_folder "$name"
    # The kustomization has every file and every image, and the name of the ConfigMap.
    diff <(jq -r '.resources[]' "$T/kustomization.json" | sort) \
      <(cd "$APPLIED/$name" && printf '%s\n' [!k]*.yaml)
    diff <(jq -r '.images[].name' "$T/kustomization.json" | sort) \
      <(jq -r '.spec.initContainers[], .spec.containers[] | .image' "$T/pod.json" | sort -u)
    as_json "$APPLIED/$name/deployment.yaml" |
      jq -e --slurpfile all "$T/kustomization.json" '[.. | .configMapRef?.name // empty] |
        length > 0 and all(. == $all[0].configMapGenerator[0].name)'
    # The named ports exist; the Service and the PodMonitor select this pod.
    jq -s -e --slurpfile pod "$T/pod.json" '
      ([$pod[0].spec | .initContainers[], .containers[] | .ports[]?.name]) as $ports |
      (.[0].spec.ports[].targetPort, .[1].spec.podMetricsEndpoints[].port) | IN($ports[])' \
      <(as_json "$APPLIED/$name/service.yaml" | jq '.[0]') \
      <(as_json "$APPLIED/$name/podmonitor.yaml" | jq '.[0]') >"$T/found"
    [ "$(sort -u "$T/found")" = true ]
    jq -s -e '.[0].spec.template.metadata.labels as $labels |
      (.[1].spec.selector, .[2].spec.selector.matchLabels, .[0].spec.selector.matchLabels) | . == $labels' \
      <(as_json "$APPLIED/$name/deployment.yaml" | jq '.[0]') \
      <(as_json "$APPLIED/$name/service.yaml" | jq '.[0]') \
      <(as_json "$APPLIED/$name/podmonitor.yaml" | jq '.[0]') >"$T/found"
    [ "$(sort -u "$T/found")" = true ]
  done
  [ "$(jq -r '.spec.resourceClaims' "$T/pod.json")" = null ]
  use_folder vllm
  [ "$(jq -r '.spec.resourceClaims[0].resourceClaimTemplateName' "$T/pod.json")" = \
    "$(as_json "$APPLIED/vllm/claim-template.yaml" | jq -r '.[0].metadata.name')" ]
  "$FO_ROOT/tests/k8s/check" --kube 1.34 "${manifests[@]}"
}

@test "the manifests of a fleet have Kubernetes' types, and find the pods of the rehearsal" {
  local fleet=$APPLIED/fleet
  use_folder rehearsal
  as_json "$fleet/service.yaml" | jq '.[0]' >"$T/service.json"
  as_json "$fleet/kustomization.yaml" | jq '.[0]' >"$T/kustomization.json"
  jq -e --slurpfile pod "$T/pod.json" '.spec.ports[].targetPort |
    IN($pod[0].spec.containers[].ports[]?.name)' "$T/service.json"
  jq -s -e '.[0].spec.selector == .[1].spec.template.metadata.labels' "$T/service.json" \
    <(as_json "$APPLIED/rehearsal/deployment.yaml" | jq '.[0]')
  jq -s -e '.[1].configMapGenerator[0] |
    .options.labels["kubernetes.io/service-name"] == $service and .files == ["card.json"]' \
    --arg service "$(jq -r .metadata.name "$T/service.json")" "$T/service.json" "$T/kustomization.json"
  diff <(jq -r '.resources[]' "$T/kustomization.json" | sort) <(cd "$fleet" && printf '%s\n' [!k]*.yaml)
  # The card is that of the model that the pod makes.
  local -a make
  mapfile -t make < <(jq -r '.spec.initContainers[] | select(.name == "model") | .command[]' "$T/pod.json")
  make[-1]=$T${make[-1]}
  mkdir "$T/models"
  "${make[@]}" >"$T/made"
  fo-reg card "${make[-1]}" | diff "$fleet/card.json" -
  need_types
  local kube
  for kube in 1.32 1.36; do
    "$FO_ROOT/tests/k8s/check" --kube "$kube" "$fleet/service.yaml" "$fleet/rbac.yaml"
  done
}

@test "the rehearsal without a GPU serves, and each engine takes over from the other" {
  use_folder rehearsal
  start_pair
  fail_over
  fail_over
  stop_pod
}

@test "the pair of vLLM in packaging/k8s serves, and each engine takes over from the other" {
  use_folder vllm
  need_stand_in
  DISCOVERY=$T/pod/volumes/shared/discovery
  edit '(.spec.containers[].env) += [{name: "PATH", value: $path},
    {name: "STAND_IN_DISCOVERY", value: "/shared/discovery"}]' --arg path "$ENGINES:$FO_BUILD/bin:/usr/bin:/bin"
  start_pair
  fail_over
  fail_over
  never_two_served "$DISCOVERY"
  [ "$(served "$DISCOVERY" | wc -w)" -eq 3 ]
  stop_pod
}
