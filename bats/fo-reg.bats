#!/usr/bin/env bats
# fo-reg: the behaviour on its page.

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # text for other shells; tests are subshells
load test_helper
load etcd

setup() {
  fo_setup
  unset FO_REGISTRY FO_STATE_REGISTRY
  export XDG_CACHE_HOME=$T/cache
  cat >"$T/dgd.yaml" <<'END'
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: llama}
spec:
  services:
    Frontend: {componentType: frontend}
    Decode:
      componentType: worker
      subComponentType: decode
      replicas: 2
      extraPodSpec: {mainContainer: {image: vllm:1}}
END
}

teardown() {
  end_etcd
  fo_teardown
}

reg() { timeout 30 fo-reg "$@" 3>&-; }

# a_model FOLDER: creates a small model of random weights, always the same.
a_model() { fo-refengine make-model -q --hidden 64 --layers 1 --seed 1 "$1" >/dev/null; }

# --- registries -----------------------------------------------------------------------------------

ENDPOINT=llama-0123456789abcdef/worker/generate
WORKER=(--endpoint "$ENDPOINT" --url http://127.0.0.1:8000)

# id N: prints an id.
id() { printf '%032x' "$1"; }
ID=$(id 1)
KEY=instances/$ENDPOINT/$ID

use_dir() { export FO_REGISTRY=dir:$T/registry; }
# use_etcd [TTL], etcd_registry [TTL]: with and without starting it.
use_etcd() {
  need_etcd
  start_etcd
  etcd_registry "$@"
}
etcd_registry() { export FO_REGISTRY="etcd:http://127.0.0.1:$PORT/fleet?ttl=${1:-10s}"; }

# start_put [OPTION...]: registers worker ID. Sets PUT.
start_put() {
  start_bg put fo-reg put "${WORKER[@]}" --id "$ID" "$@"
  PUT=$BG_PID
  wait_for "grep -qx $ID $T/put.out"
}

# start_watch [OPTION...]: watches the registry, which it has listed. Sets WATCH.
start_watch() {
  start_bg watch fo-reg watch "$@"
  WATCH=$BG_PID
  wait_for "grep -q listed $T/watch.out"
}

# start_run [OPTION...] -- COMMAND...: runs a worker with ID. Sets RUN.
start_run() {
  start_bg run fo-reg run "${WORKER[@]}" --id "$ID" "$@"
  RUN=$BG_PID
}

# life [ID]: prints the life in a record.
life() { reg get "${1:-$ID}" | jq -r .life; }
await_life() { wait_for "[ \"\$(life)\" = $1 ]"; }
# ready START...: starts it, and waits until the worker is ready.
ready() { "$@"; await_life ready; }

# nothing_left: succeeds if no process of this test runs any more, except its servers.
nothing_left() {
  export -n FO_TEST_MARK
  ! processes_left | grep -vxF -e "${ETCD:-none}" -e "${SERVER:-none}"
}
# no_message: succeeds if the run has logged nothing.
no_message() { run ! grep '^fo-reg: ' "$T/run.err"; }

# ended STATUS: waits for the run, which ends with STATUS.
ended() { expect_exit "$RUN" "$1"; }

# start_server ANSWER: starts a server at $SERVED, which gives this answer at first. Sets SERVER.
start_server() {
  SERVED=unix:$T/http.sock:/
  answer "$1"
  http_server "$T/http.sock"
  SERVER=$BG_PID
}

@test "bad command lines are usage errors" {
  usage_errors fo-reg "" "unknown" "id extra" "id --endpoint a/b" "id --endpoint ''" "id -f - -f -" \
    "card" "card a b" "card a --context-length -1" "card a --context-length x" "card a --stop-ids 1,x" \
    "card a --end-of-thinking -1" "card a --adapter sql" "card a --adapter =d" "card a --adapter sql=" \
    "card a --adapter s=a --adapter s=b" "explain" "explain a" "explain - -" "explain a b c"
  fails 64 "--adapter: 'sql' is not NAME=DIR" reg card a --adapter sql
}

# bats test_tags=slow
@test "bad command lines of subcommands that use a registry are usage errors, in one line" {
  use_dir
  local worker="--endpoint $ENDPOINT --url http://127.0.0.1:1"
  usage_errors fo-reg "--registry dir:x ls" "ls --registry k8s:x" "ls --registry x" "ls --registry dir:" \
    "ls --registry etcd:x" "ls --registry etcd:http://127.0.0.1:1" "ls --registry etcd:https://127.0.0.1:1/f" \
    "ls --registry etcd:http://127.0.0.1:1/f?ttl=0" "ls --registry etcd:http://127.0.0.1:1/f?no=1" \
    "ls --timeout 5" "ls a b" "ls -- true" "watch a b" "get" "get a b" "check a" "rm" "rm a --host b" "drain" \
    "drain a b" "undrain" "set" "set a" "set a=b" "set a =b" "set --host h" "set --host h a b=c" \
    "put x" "put weights/a/b" "put weights/.a" "put $KEY" "put routers/x" "put --url http://127.0.0.1:1" \
    "put --endpoint $ENDPOINT" "put --endpoint a/b --url http://127.0.0.1:1" \
    "put --endpoint A/b/c --url http://127.0.0.1:1" "put $worker --id x" "put $worker --id ${ID^^}a" \
    "put $worker --slots -1" "put $worker --kv-tokens x" "put $worker --label x" "put $worker --label =x" \
    "put $worker --life gone" "put $worker --pid x" "put $worker --allow-workers x" \
    "put --endpoint $ENDPOINT --url ftp://127.0.0.1" "put --endpoint $ENDPOINT --url http://8.8.8.8:1" \
    "put --endpoint $ENDPOINT --url http://a@127.0.0.1:1" "put --endpoint $ENDPOINT --url http://169.254.169.254:1" \
    "put --endpoint $ENDPOINT --url http://169.254.169.254:1 --allow-workers 0.0.0.0/0" \
    "put --endpoint $ENDPOINT --url unix:/x:/" "run $worker" "run $worker --" "run -- true" \
    "run $worker --ready x -- true" "run $worker --drain x -- true" "run $worker --ready-timeout 5 -- true" \
    "run $worker --grace -1s -- true"
  [ ! -e "$T/registry" ]
  fails 64 "registry 'etcd:x': expected etcd:http://*" reg ls --registry etcd:x
  fails 64 "URL 'http://169.254.169.254:80': not an address of the allowed networks" \
    reg put --endpoint "$ENDPOINT" --url http://169.254.169.254:80 --allow-workers 0.0.0.0/0
}

# the_verbs: what each subcommand does with a registry, which is empty at first.
the_verbs() {
  local key text
  reg check | grep -q ': 0 records$'
  [ "$(reg check --json)" = '{"records":0,"version":1}' ]
  answers 1 "" reg ls
  answers 1 '{"records":{},"version":1}' reg ls --json
  start_put --model llama --slots 8 --kv-tokens 4096 --gpu 0000:17:00.0 --gpu 0000:18:00.0 --host node-1 \
    --label zone=a --pid 42 --life starting
  [ "$(cat "$T/put.out")" = "$ID" ]
  ends_with 0 reg get "$ID"
  [ "$stderr" = "" ]
  [ "${#lines[@]}" -eq 1 ]
  jq -e --arg id "$ID" 'del(.started_at) == {version: 1, $id, url: "http://127.0.0.1:8000", model: "llama",
    card: "", kv_abi: "", life: "starting", slots: 8, kv_tokens: 4096, host: "node-1", pid: 42,
    gpus: ["0000:17:00.0", "0000:18:00.0"], labels: {zone: "a"}} and (.started_at | endswith("Z"))' <<<"$output"
  [ "$(reg get "$KEY")" = "$output" ]
  [ "$(reg ls --json | jq -c --arg key "$KEY" '.records[$key]')" = "$(jq -c . <<<"$output")" ]
  run -0 reg ls
  [ "$(tr -s ' ' <<<"$output")" = "ID ENDPOINT LIFE URL MODEL HOST
$ID $ENDPOINT starting http://127.0.0.1:8000 llama node-1" ]
  [ "$(reg ls "instances/llama-")" = "$output" ]
  run -1 reg ls instances/other
  # Labels, and the marks of an operator; a worker's own record has an id that others can't use.
  reg set "$ID" zone= rack=7 note='a=b c'
  [ "$(reg get "$ID" | jq -c .labels)" = '{"note":"a=b c","rack":"7"}' ]
  reg set --host node-1 note=
  [ "$(reg get "$ID" | jq -c .labels)" = '{"rack":"7"}' ]
  reg drain "$ID"
  [ "$(life)" = draining ]
  reg drain --host node-1
  reg undrain --host node-1
  [ "$(life)" = starting ]
  fails 75 "record '$KEY': another process keeps it" reg put "${WORKER[@]}" --id "$ID"
  for key in "drain" "undrain" "rm" "get"; do
    answers 1 "" reg "$key" "$(id 2)"
  done
  run -1 reg set "$(id 2)" a=b
  run -1 reg drain --host node-2
  # Records that no process keeps.
  reg put weights/llama <<<'{"sha256:aa": 1,
    "sha256:bb": 3}'
  [ "$(reg get weights/llama | jq -c .)" = '{"sha256:aa":1,"sha256:bb":3}' ]
  reg put weights/llama <<<'{"sha256:bb": 1}'
  [ "$(reg ls weights/)" = 'weights/llama  {"sha256:bb": 1}' ]
  reg put "verdicts/$ID/canary" <<<"{\"id\": \"$ID\", \"health\": \"convicted\", \"weight\": 0,
    \"since\": \"2026-01-01T00:00:00.000Z\", \"expires\": null}"
  reg check | grep -q ': 3 records$'
  [ "$(reg ls "" --json | jq '.records | length')" = 3 ]
  reg rm weights/llama
  run -1 reg rm weights/llama
  run -1 reg get weights/llama
  for text in '' '[1]' '{' 'null'; do
    fails 65 "record 'weights/llama': *" reg put weights/llama <<<"$text"
  done
  fails 65 "record 'verdicts/$ID/canary': its id is 'x'" reg put "verdicts/$ID/canary" <<<'{"id": "x"}'
  fails 65 "record 'verdicts/$ID/canary': missing id" reg put "verdicts/$ID/canary" <<<'{}'
  fails 65 "record 'verdicts/$ID/canary': health 'good': unknown" reg put "verdicts/$ID/canary" \
    <<<"{\"id\": \"$ID\", \"health\": \"good\"}"
  fails 65 "read standard input: longer than 64 KiB" reg put weights/llama < <(head -c 65537 /dev/zero)
  run -1 reg get weights/llama
  # The worker is deregistered, although the process that keeps its record lives.
  reg rm "$ID"
  run -1 reg ls
  run -1 reg get "$ID"
  run -1 reg undrain "$ID"
  kill -0 "$PUT"
  terminate "$PUT"
  [ ! -s "$T/put.err" ]
  # The end of put deregisters its worker.
  start_put --ready-fd 7 7>"$T/ready"
  wait_for "[ -s $T/ready ]"
  [ "$(life)" = ready ]
  kill -INT "$PUT"
  expect_exit "$PUT" 0
  run -1 reg ls
}

@test "dir: put, ls, get, set, drain, undrain, rm and check" {
  use_dir
  mkdir -m 700 "$T/registry"
  the_verbs
}

@test "etcd: put, ls, get, set, drain, undrain, rm and check" {
  use_etcd
  the_verbs
}

# the_watch LAST: what watch prints, up to the SIGKILL of a worker's process, whose event is LAST.
the_watch() {
  reg put weights/llama <<<'{"a": 1}'
  start_put
  start_watch
  reg put weights/llama <<<'{"a": 2}'
  start_bg weights fo-reg watch weights/
  local weights=$BG_PID
  wait_for "grep -q listed $T/weights.out"
  reg drain "$ID"
  wait_for "grep -q draining $T/watch.out"
  kill "$PUT"
  wait_for "grep -q gone $T/watch.out"
  start_put
  wait_for "[ \$(grep -c '\"life\":\"ready\"' $T/watch.out) -eq 2 ]"
  kill -KILL "$PUT"
  wait_for "[ \$(tail -n 1 $T/watch.out | jq -r .event) = $1 ]"
  reg rm weights/llama
  wait_for "grep -q gone $T/weights.out"
  kill "$WATCH" "$weights"
  expect_exit "$WATCH" 0
  [ ! -s "$T/watch.err" ]
  [ "$(jq -r '[.event, .record.life // "-"] | join(" ")' "$T/watch.out")" = "put ready
listed -
put draining
gone -
put ready
$1 -" ]
  [ "$(jq -r 'select(.event != "listed").key' "$T/watch.out" | sort -u)" = "$KEY" ]
  [ "$(jq -c '[.event, .key, .record.a]' "$T/weights.out")" = '["put","weights/llama",2]
["listed",null,null]
["gone","weights/llama",null]' ]
}

@test "dir: watch prints the records, and each change; a killed process is gone" {
  use_dir
  the_watch gone
}

@test "etcd: watch prints the records, and each change; a killed process is stale" {
  use_etcd 4s
  the_watch stale
}

@test "dir: a folder that others may write to, or that can't be used, is refused" {
  use_dir
  fails 69 "registry 'dir:$T/registry': No such file or directory" reg ls
  fails 69 "registry 'dir:$T/registry': *" reg check
  fails 73 "registry 'dir:$T/no/registry': No such file or directory" \
    reg run "${WORKER[@]}" --registry "dir:$T/no/registry" -- touch "$T/ran"
  touch "$T/file"
  fails 69 "registry 'dir:$T/file': Not a directory" reg put "${WORKER[@]}" --registry "dir:$T/file"
  local mode
  for mode in 0777 0770 0702; do
    mkdir "$T/registry"
    chmod "$mode" "$T/registry"
    for args in "ls" "get $ID" "check" "watch" "rm $ID" "drain $ID" "set $ID a=b" "put ${WORKER[*]}" \
      "run ${WORKER[*]} -- touch $T/ran"; do
      # shellcheck disable=SC2086
      fails 77 "registry 'dir:$T/registry': other users may write to it" reg $args
    done
    rmdir "$T/registry"
  done
  ln -s "$T" "$T/registry"
  run ! reg put weights/a <<<'{}'
  rm "$T/registry"
  [ ! -e "$T/ran" ]
  reg put weights/a <<<'{}'
  [ "$(stat -c %a "$T/registry")" = 700 ]
}

@test "etcd: invalid records are ignored, with a warning, and servers that are not etcd are 76" {
  use_etcd
  reg put weights/good <<<'{}'
  etcdctl put fleet/weights/bad '[' 3>&-
  etcdctl put fleet/other/x '{}' 3>&-
  ends_with 0 reg ls weights/
  [ "$output" = "weights/good  {}" ]
  [[ $stderr == "fo-reg: warning: registry 'etcd:http://127.0.0.1:$PORT/fleet': record 'weights/bad' is ignored: "* ]]
  fails 76 "query etcd 'http://127.0.0.1:$PEER_PORT': *" reg ls --registry "etcd:http://127.0.0.1:$PEER_PORT/fleet"
  fails 66 "open '$T/absent': *" reg ls --registry "etcd:https://127.0.0.1:$PORT/fleet?ca=$T/absent"
  kill_now "$ETCD"
  fails 69 "fetch 'http://127.0.0.1:$PORT/*" reg ls
  fails 69 "fetch 'http://127.0.0.1:$PORT/*" reg put "${WORKER[@]}"
  fails 69 "fetch 'http://127.0.0.1:$PORT/*" reg put weights/a <<<'{}'
}

@test "etcd: missing permissions are 77" {
  use_etcd
  enable_auth fleet/
  fails 77 "query etcd *" reg ls
  fails 77 "query etcd *" reg run "${WORKER[@]}" -- touch "$T/ran"
  [ ! -e "$T/ran" ]
  FO_REGISTRY+="&user=engine&password-file=$T/password"
  reg put weights/a <<<'{}'
  [ "$(reg get weights/a)" = '{}' ]
  run -0 reg run "${WORKER[@]}" -- fo-reg ls
  # The same by options, also for the state registry.
  etcd_registry
  export FO_REG_ETCD_USER=engine FO_REG_ETCD_PASSWORD_FILE=$T/password
  [ "$(reg get weights/a)" = '{}' ]
  [ "$(reg get weights/a --registry static:http://127.0.0.1:1 --state-registry "$FO_REGISTRY")" = '{}' ]
  fails 64 "registry 'etcd:*': parameter 'user' is given twice" reg ls --registry "$FO_REGISTRY&user=x"
}

# start_api [OPTION]...: starts a stand-in for Kubernetes' API server. Sets API.
start_api() {
  rm -f "$T/api.out"
  start_bg api "$FO_ROOT/bats/kube-api" "$@"
  wait_for "[ -s $T/api.out ]"
  API=http://127.0.0.1:$(cat "$T/api.out")
}
# create PLURAL NAME [MEMBER...]: creates an object of Service llama with these members of JSON.
create() {
  local kind=EndpointSlice version=discovery.k8s.io/v1 path=/apis/discovery.k8s.io/v1 member
  if [ "$1" = configmaps ]; then kind=ConfigMap version=v1 path=/api/v1; fi
  member=$(printf ', %s' "${@:3}")
  curl -sSf -o "$T/created" -H 'X-Test: 1' "$API$path/namespaces/default/$1" -d "{\"apiVersion\": \"$version\",
    \"kind\": \"$kind\", \"metadata\": {\"name\": \"$2\",
    \"labels\": {\"kubernetes.io/service-name\": \"llama\"}}$member}"
}
# endpoint N ADDRESS: prints an endpoint, of a pod whose uid is id N.
endpoint() {
  printf '{"addresses": ["%s"], "conditions": {"ready": true}, "nodeName": "node-%d",' "$2" "$1"
  printf ' "targetRef": {"kind": "Pod", "name": "pod-%d", "uid": "00000000-0000-0000-0000-%012d"}}' "$1" "$1"
}
HTTP='"ports": [{"name": "http", "port": 8000}]'

# the_read_only ID: what each subcommand does with a registry that has worker ID, which is only read.
the_read_only() {
  local args registry=${FO_REGISTRY%%\?*}
  export FO_STATE_REGISTRY=dir:$T/state
  for args in "drain $1" "undrain $1" "set $1 a=b" "rm $1" \
    "put --endpoint $ENDPOINT --url http://127.0.0.1:1" \
    "run --endpoint $ENDPOINT --url http://127.0.0.1:1 -- touch $T/ran"; do
    # shellcheck disable=SC2086
    fails 77 "registry '$registry': its workers are read-only" reg $args
  done
  [ ! -e "$T/ran" ]
  [ ! -e "$T/state" ]
  run -1 reg drain "$(id 9)"
  reg put weights/llama <<<'{"a": 1}'
  [ "$(FO_REGISTRY=dir:$T/state reg get weights/llama)" = '{"a": 1}' ]
  [ "$(reg get weights/llama)" = '{"a": 1}' ]
  [ "$(reg check --json | jq .records)" -eq 3 ]
  reg rm weights/llama
  run -1 reg rm weights/llama
  fails 64 "registry 'k8s:x': expected dir:PATH or etcd:*" reg ls --state-registry k8s:x
  export FO_STATE_REGISTRY=dir:$T/absent
  ends_with 0 reg check
  [[ $stderr == "fo-reg: warning: registry 'dir:$T/absent': "*": its records are left out" ]]
  run -69 reg ls weights/
}

@test "k8s: workers are those of EndpointSlices, with the card in a ConfigMap" {
  a_model "$T/model"
  start_api
  create endpointslices llama-1 "$HTTP" "\"endpoints\": [$(endpoint 1 10.0.0.1), $(endpoint 2 169.254.169.254)]"
  create configmaps llama "\"data\": {\"card.json\": $(reg card "$T/model" --name llama | jq -Rs .)}"
  export FO_REGISTRY="k8s:default/kubernetes.io/service-name=llama?api=$API"
  ends_with 0 reg ls
  [ "$(tr -s ' ' <<<"$output")" = "ID ENDPOINT LIFE URL MODEL HOST
$ID llama/worker/generate ready http://10.0.0.1:8000 llama node-1" ]
  [ "$stderr" = "fo-reg: warning: registry 'k8s:default/kubernetes.io/service-name=llama': an endpoint of EndpointSlice 'llama-1' is ignored: URL 'http://169.254.169.254:8000': not an address of the allowed networks" ]
  jq -e --arg card "$(reg card "$T/model" --name llama | jq -r .checksum)" \
    '.card == $card and .labels.pod == "pod-1"' <(reg get "$ID" 2>"$T/warning")
  start_watch
  create endpointslices llama-2 "$HTTP" "\"endpoints\": [$(endpoint 3 10.0.0.3)]"
  wait_for "grep -q $(id 3) $T/watch.out"
  curl -sSf -o "$T/fault" "$API/faults" -d '{"verb": "*", "status": 503}'
  curl -sSf -o "$T/fault" "$API/faults" -d '{"do": "hang-up"}'
  wait_for "[ \$(grep -c '\"stale\"' $T/watch.out) -eq 2 ]"
  fails 69 "list configmaps in 'default': the API server answers 503: *" reg ls
  curl -sSf -o "$T/fault" -X DELETE "$API/faults"
  wait_for "[ \$(tail -n 2 $T/watch.out | grep -c '\"put\"') -eq 2 ]"
  curl -sSf -o "$T/fault" -X DELETE "$API/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/llama-1"
  wait_for "grep -q gone $T/watch.out"
  the_read_only "$(id 3)"
  curl -sSf -o "$T/fault" "$API/faults" -d '{"verb": "list", "status": 403}'
  fails 77 "list configmaps in 'default': the API server answers 403: *" reg ls
}

@test "k8s: the example Role has exactly the permissions that are needed" {
  local resource registry
  fo-podgen -q -f "$FO_ROOT/packaging/k8s/fleet/rbac.yaml" -o json |
    jq '.items[] | select(.kind == "Role")' >"$T/role.json"
  start_api --role "$T/role.json"
  create endpointslices llama-1 "$HTTP" "\"endpoints\": [$(endpoint 1 10.0.0.1)]"
  registry="k8s:default/kubernetes.io/service-name=llama?api=$API"
  start_watch --registry "$registry"
  wait_for "[ \$(curl -sS $API/requests | jq .watch) -eq 2 ]"
  [ ! -s "$T/watch.err" ]
  for resource in endpointslices configmaps; do
    jq --arg of "$resource" '(.rules[] | select(.resources == [$of]) | .verbs) -= ["list"]' \
      "$T/role.json" >"$T/less.json"
    start_api --role "$T/less.json"
    fails 77 "list $resource in 'default': the API server answers 403: *" \
      reg ls --registry "k8s:default/app=llama?api=$API"
  done
  # Without "watch", they are listed repeatedly.
  jq '.rules[].verbs -= ["watch"]' "$T/role.json" >"$T/less.json"
  start_api --role "$T/less.json"
  start_bg polling fo-reg watch --registry "${registry/api=*/api=$API}"
  wait_for "grep -q listed $T/polling.out"
  create endpointslices llama-1 "$HTTP" "\"endpoints\": [$(endpoint 1 10.0.0.1)]"
  wait_for "grep -q put $T/polling.out"
}

@test "k8s: outside of a pod, the API server must be named" {
  fails 78 "registry 'k8s:default/app=llama': no API server: its URI has no api=URL, and *" \
    reg ls --registry k8s:default/app=llama
}

@test "static: workers are URLs that never change" {
  export FO_REGISTRY=static:http://127.0.0.1:8000,http://10.0.0.2:8000
  run -0 reg ls
  [ "$(tail -n +2 <<<"$output" | tr -s ' ' | cut -d ' ' -f 2-4 | sort)" = "static/worker/generate ready http://10.0.0.2:8000
static/worker/generate ready http://127.0.0.1:8000" ]
  start_watch
  [ "$(grep -c put "$T/watch.out")" -eq 2 ]
  the_read_only "$(reg ls --json | jq -r '[.records[].id][0]')"
  terminate "$BG_PID"
  [ "$(wc -l <"$T/watch.out")" -eq 3 ]
  fails 64 "URL 'x': expected *" reg ls --registry static:x
}

@test "a card is in the registry, and its values in the worker's record" {
  use_dir
  a_model "$T/model"
  reg card "$T/model" --name org/tiny --kv-abi nixl/f32 >"$T/card.json"
  local sum
  sum=$(jq -r .checksum "$T/card.json")
  start_put --card "$T/card.json"
  [ "$(reg get "$ID" | jq -c '[.model, .card, .kv_abi]')" = "[\"org/tiny\",\"$sum\",\"nixl/f32\"]" ]
  [ "$(reg get "cards/$sum" | jq -S .)" = "$(jq -S . "$T/card.json")" ]
  fails 66 "open '$T/absent': No such file or directory" reg put "${WORKER[@]}" --card "$T/absent"
  fails 65 "read 'standard input': *" reg run "${WORKER[@]}" --card - -- touch "$T/ran" <<<'{}'
  [ ! -e "$T/ran" ]
}

# --- run ------------------------------------------------------------------------------------------

# the_life: a worker's record follows its life, and ends when all of its processes have ended.
the_life() {
  start_server "503 Unavailable"
  start_run --ready "$SERVED" --grace 1000s -- bash -c '
    (trap "" TERM; exec setsid bash -c "until [ -e $0/die ]; do sleep 0.01; done") &
    trap "touch $0/term; exit 5" TERM
    echo $$
    while :; do sleep 0.01; done' "$T"
  wait_for "[ -s $T/run.out ]"
  [ "$(life)" = starting ]
  [ "$(reg get "$ID" | jq .pid)" = "$RUN" ]
  answer "200 OK"
  await_life ready
  kill "$RUN"
  wait_for "[ -e $T/term ]"
  # The command has ended, but not all of its processes.
  wait_for "! kill -0 $(cat "$T/run.out")"
  await_life draining
  touch "$T/die"
  ended 5
  run -1 reg ls
  nothing_left
  no_message
}

@test "dir: run registers a worker as starting, ready and draining, until all of its processes have ended" {
  use_dir
  the_life
}

@test "etcd: run registers a worker as starting, ready and draining, until all of its processes have ended" {
  use_etcd
  the_life
}

@test "run returns the status of its command, also if that ends before it is ready" {
  use_dir
  ends_with 7 reg run "${WORKER[@]}" -- sh -c 'echo out; echo err >&2; exit 7'
  [ "$output:$stderr" = "out:err" ]
  run -137 reg run "${WORKER[@]}" -- sh -c 'kill -KILL $$'
  fails 127 "run '/absent': No such file or directory" reg run "${WORKER[@]}" -- /absent
  fails 126 "run '$T': *" reg run "${WORKER[@]}" -- "$T"
  run -1 reg ls
  # What outlives the command is waited for; meanwhile, the worker is not awaited any more.
  start_server "503 Unavailable"
  start_run --ready "$SERVED" --grace 1000s -- bash -c '
    trap "" TERM
    bash -c "until [ -e $0/die ]; do sleep 0.01; done" &
    exit 3' "$T"
  await_life draining
  touch "$T/die"
  ended 3
  no_message
}

@test "a worker that is not ready in time is ended: 69" {
  use_dir
  start_server "503 Unavailable"
  fails 69 "the worker was not ready within 300ms: *" \
    reg run "${WORKER[@]}" --ready "$SERVED" --ready-timeout 300ms -- sleep 1000
  run -1 reg ls
  nothing_left
}

# A command that ignores SIGTERM, and has orphans.
STUBBORN='trap "touch $0/term" TERM; setsid sleep 1000 & (trap "" TERM HUP; exec setsid sleep 1000 &)
  touch "$0/up"; while :; do sleep 0.01; done'

@test "SIGTERM is followed by SIGKILL, after --grace" {
  use_dir
  start_run --grace 300ms -- bash -c "$STUBBORN" "$T"
  wait_for "[ -e $T/up ]"
  terminate "$RUN" 137
  [ -e "$T/term" ]
  nothing_left
  run -1 reg ls
}

@test "SIGTERM is for the command alone, until it has ended" {
  use_dir
  start_run --grace 1000s -- bash -c '
    bash -c "trap \"touch $0/other; exit\" TERM; touch $0/up; while :; do sleep 0.01; done" &
    trap "touch $0/term" TERM
    until [ -e "$0/die" ]; do sleep 0.01; done
    [ ! -e "$0/other" ] && exit 5' "$T"
  wait_for "[ -e $T/up ]"
  await_life ready
  kill "$RUN"
  wait_for "[ -e $T/term ]"
  touch "$T/die"
  ended 5
  [ -e "$T/other" ]
  no_message
}

@test "a second signal ends everything at once" {
  use_dir
  local first second
  for first in TERM INT HUP QUIT; do
    second=TERM
    rm -f "$T/up" "$T/term"
    start_run --grace 1000s -- bash -c "$STUBBORN" "$T"
    wait_for "[ -e $T/up ]"
    kill -s "$first" "$RUN"
    wait_for "[ -e $T/term ]"
    await_life draining
    kill -s "$second" "$RUN"
    ended 137
    nothing_left
    run -1 reg ls
  done
}

@test "SIGKILL of fo-reg ends the command, and with it the record" {
  use_dir
  start_run -- bash -c 'echo $$; while :; do sleep 0.01; done'
  wait_for "[ -s $T/run.out ]"
  await_life ready
  kill_now "$RUN"
  run -1 reg ls
  wait_for "! kill -0 $(cat "$T/run.out")"
  # Its files do not prevent a worker with the same id.
  run -0 reg run "${WORKER[@]}" --id "$ID" -- true
}

@test "SIGTERM waits for the end of requests, for --drain-timeout" {
  use_dir
  start_server "503 Unavailable"
  start_run --drain "$SERVED" --drain-timeout 1000s -- \
    bash -c 'trap "touch $0/term; exit 6" TERM; touch "$0/up"; while :; do sleep 0.01; done' "$T"
  wait_for "[ -e $T/up ]"
  await_life ready
  kill "$RUN"
  await_life draining
  [ ! -e "$T/term" ]
  answer "200 OK"
  ended 6
  no_message
  # A second signal ends this, too.
  answer "503 Unavailable"
  ready start_run --drain "$SERVED" --drain-timeout 1000s -- sleep 1000
  kill "$RUN"
  await_life draining
  terminate "$RUN" 137
  ready start_run --drain "$SERVED" --drain-timeout 100ms -- sleep 1000
  terminate "$RUN" 143
  [[ $(cat "$T/run.err") == "fo-reg: warning: drain: requests may be aborted: "* ]]
}

@test "a drained worker stays drained, whatever it reports, until it is undrained" {
  use_dir
  start_server "503 Unavailable"
  start_run --ready "$SERVED" -- sleep 1000
  await_life starting
  reg drain "$ID"
  answer "200 OK"
  wait_for '[ "$(reg get $ID | jq -r .drained_from)" = ready ]'
  [ "$(life)" = draining ]
  reg undrain "$ID"
  [ "$(life)" = ready ]
  reg rm "$ID"
  kill -0 "$RUN"
  terminate "$RUN" 143
  no_message
}

# an_id_that_lives: another worker with the same id is refused.
an_id_that_lives() {
  ready start_run -- sleep 1000
  fails 75 "record '$KEY': another process keeps it" reg run "${WORKER[@]}" --id "$ID" -- touch "$T/ran"
  [ ! -e "$T/ran" ]
  [ "$(life)" = ready ]
  terminate "$RUN" 143
  run -0 reg run "${WORKER[@]}" --id "$ID" -- true
}

@test "dir: an id that another process keeps is refused: 75" {
  use_dir
  an_id_that_lives
}

@test "etcd: an id that another process keeps is refused: 75" {
  use_etcd
  an_id_that_lives
}

@test "dir: a worker starts without its registry, and is registered later" {
  use_dir
  a_model "$T/model"
  reg card "$T/model" >"$T/card.json"
  touch "$T/registry"
  start_run --card "$T/card.json" -- bash -c 'touch "$0/up"; exec sleep 1000' "$T"
  wait_for "[ -e $T/up ]"
  head -n 1 "$T/run.err" | grep -qx "fo-reg: warning: registry 'dir:$T/registry': Not a directory: the worker starts without its record"
  rm "$T/registry"
  await_life ready
  [ "$(reg get "cards/$(jq -r .checksum "$T/card.json")" | jq -S .)" = "$(jq -S . "$T/card.json")" ]
  terminate "$RUN" 143
  run -1 reg ls
  # The end of a worker does not need its registry, either.
  rm -r "$T/registry"
  touch "$T/registry"
  run -4 reg run "${WORKER[@]}" -- sh -c 'exit 4'
}

@test "dir: a worker writes its record again when its registry is removed" {
  use_dir
  ready start_run -- sleep 1000
  local engine round
  engine=$(pgrep -P "$RUN")
  start_watch
  for round in 1 2; do
    rm -r "$T/registry"
    wait_for "[ \$(grep -c was.lost $T/run.err) -eq $round ]"
    [ "$(life)" = ready ]
    wait_for "tail -n 1 $T/watch.out | grep -q '\"put\"'"
  done
  grep -q '"stale"' "$T/watch.out"
  run ! grep '"gone"' "$T/watch.out"
  [ "$(pgrep -P "$RUN")" = "$engine" ]
  terminate "$RUN" 143
  run -1 reg ls
  wait_for "tail -n 1 $T/watch.out | grep -q gone"
}

@test "etcd: a worker runs without its registry, which may lose its data" {
  need_etcd
  etcd_registry 3s
  start_run -- bash -c 'touch "$0/up"; exec sleep 1000' "$T"
  wait_for "[ -e $T/up ]"
  local engine
  engine=$(pgrep -P "$RUN")
  grep -q "the worker starts without its record$" "$T/run.err"
  start_etcd
  await_life ready
  start_watch
  # With its data, and with none.
  local round
  for round in with without; do
    kill_now "$ETCD"
    if [ "$round" = without ]; then rm -r "$T/etcd"; fi
    start_etcd
    await_life ready
  done
  wait_for "grep -q was.lost $T/run.err"
  wait_for "[ \$(jq -r 'select(.event == \"put\").event' $T/watch.out | wc -l) -ge 2 ]"
  run ! grep '"gone"' "$T/watch.out"
  [ "$(pgrep -P "$RUN")" = "$engine" ]
  # The end of a worker does not wait for it, either.
  kill_now "$ETCD"
  terminate "$RUN" 143
  grep -q "fo-reg: warning: deregister: " "$T/run.err"
  terminate "$WATCH"
}

# an_outage N STATUS REASON: the registry can't be used for FO_AWAY seconds, 600 for the real thing: a
# new worker N starts, the others go on, `ls` ends with STATUS, and watch reports at most stale workers.
an_outage() {
  local changes until
  changes=$(grep -v '"stale"' "$T/watch.out")
  start_bg "worker$1" fo-reg run "${WORKER[@]}" --id "$(id "$1")" --timeout 1s -- \
    bash -c 'touch "$0"; exec sleep 1000' "$T/up$1"
  WORKERS+=("$BG_PID")
  wait_for "[ -e $T/up$1 ]"
  grep -q "the worker starts without its record$" "$T/worker$1.err"
  wait_for "grep -q '$3' $T/worker1.err"
  # A watch of a server that does not answer waits for it.
  if [ "$2" -eq 69 ]; then wait_for "grep -q '$3' $T/watch.err"; fi
  until=$((SECONDS + ${FO_AWAY:-3}))
  while [ "$SECONDS" -lt "$until" ]; do
    fails "$2" "*: $3" reg ls --timeout 1s
    kill -0 "${WORKERS[@]}" "$WATCH"
    [ "$(grep -v '"stale"' "$T/watch.out")" = "$changes" ]
    sleep 0.1
  done
}
# outage_is_over: all workers are registered, also for the watch, which has seen none of them end.
outage_is_over() {
  local number=${#WORKERS[@]}
  wait_for "[ \"\$(lives | wc -w)\" -eq $number ] && [ \"\$(lives | tr -d ' ')\" = $(printf 'ready%.0s' "${WORKERS[@]}") ]"
  wait_for "[ \$(jq -s 'map(select(.key)) | group_by(.key) | map(last | select(.record.life == \"ready\")) | length' $T/watch.out) -eq $number ]"
  run ! grep '"gone"' "$T/watch.out"
  [ "$(pgrep -P "${WORKERS[0]}")" = "$ENGINE" ]
}
# start_workers: one worker with id 1, and a watch. Sets WORKERS, ENGINE and WATCH.
start_workers() {
  start_bg worker1 fo-reg run "${WORKER[@]}" --id "$ID" --timeout 1s -- sleep 1000
  WORKERS=("$BG_PID")
  await_life ready
  ENGINE=$(pgrep -P "${WORKERS[0]}")
  start_watch
}

# replace_registry AWAY BACK: the folder is moved to AWAY, and BACK is moved in its place, while no
# process looks: it would create a missing folder.
replace_registry() {
  kill -STOP "${WORKERS[@]}" "$WATCH"
  wait_for "! ps -o stat= -p $(IFS=,; echo "${WORKERS[*]},$WATCH") | grep -v ^T"
  mv "$T/registry" "$T/$1"
  mv "$T/$2" "$T/registry"
  kill -CONT "${WORKERS[@]}" "$WATCH"
}

# bats test_tags=slow
@test "dir: a registry that is away for a long time ends nothing" {
  use_dir
  start_workers
  touch "$T/file"
  replace_registry away file
  an_outage 2 69 "Not a directory"
  # It is back, as it was.
  grep -q '"stale"' "$T/watch.out"
  replace_registry file away
  outage_is_over
  # It is lost.
  replace_registry away file
  an_outage 3 69 "Not a directory"
  rm "$T/registry"
  outage_is_over
}

# bats test_tags=slow
@test "etcd: a registry that is away for many leases ends nothing" {
  use_etcd 1s
  start_workers
  kill_now "$ETCD"
  an_outage 2 69 "Connection refused"
  start_etcd
  outage_is_over
  kill -STOP "$ETCD"
  an_outage 3 75 "timed out"
  kill -CONT "$ETCD"
  outage_is_over
}

@test "etcd: a registry that does not answer keeps no worker from starting and ending" {
  use_etcd
  ready start_run --timeout 300ms -- sleep 1000
  kill -STOP "$ETCD"
  run -6 reg run "${WORKER[@]}" --timeout 300ms -- sh -c 'exit 6'
  fails 75 "fetch 'http://127.0.0.1:$PORT/*: timed out" reg ls --timeout 300ms
  terminate "$RUN" 143
  kill -CONT "$ETCD"
}

@test "pid 1: it ends on SIGTERM, with all its processes, and reaps orphans" {
  need_pid_namespace
  use_dir
  start_bg container unshare --pid --fork --kill-child --mount-proc fo-reg run "${WORKER[@]}" --id "$ID" -- \
    bash -c '(true & exec true); (sleep 0.01 &); echo "$PPID"; exec sleep 1000'
  await_life ready
  wait_for "[ -s $T/container.out ]"
  [ "$(cat "$T/container.out")" = 1 ]
  [ "$(reg get "$ID" | jq .pid)" = 1 ]
  local init
  init=$(tr -d ' ' <"/proc/$BG_PID/task/$BG_PID/children")
  wait_for '[ "$(pgrep -P '"$init"' -c)" -eq 1 ]'
  kill "$init"
  expect_exit "$BG_PID" 143
  run -1 reg ls
}

# --- a failover pair ------------------------------------------------------------------------------

# start_member N: one engine of the pair. Sets MEMBER[N].
start_member() {
  start_bg "$1" fo-reg run --endpoint "$ENDPOINT" --url http://127.0.0.1:8000 --id "$(id "$1")" -- \
    fo-shadow -q --id "$1" --gpu-free 0 --engine command --sleep : --wake : --health : --prove : \
    --port 0 --host 127.0.0.1 -- sleep 1000
  MEMBER[$1]=$BG_PID
}

# lives: prints the lives in all records, sorted.
lives() { reg ls --json | jq -r '[.records[].life] | sort | join(" ")'; }
# is_pair N: engine N is active, and only its record is ready.
is_pair() {
  [ "$(lives)" = "ready spare" ] && [ "$(life "$(id "$1")")" = ready ] && [ "$(gms-lock owner)" = "$1" ]
}

# FO_ROUNDS is the number of failovers, for long runs, of which the first are one of each kind, and
# FO_SEED selects the others.
# bats test_tags=slow
@test "only the active engine of a pair is ready, whatever is killed" {
  use_dir
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_CONTEXT_SIZE=0
  local -a MEMBER=()
  local active=1 other=2 round kind shadow expected
  local -a kinds=(engine fo-shadow fo-reg switchover terminate)
  local rounds=${FO_ROUNDS:-${#kinds[@]}} seed=${FO_SEED:-$RANDOM}
  echo "FO_SEED=$seed"
  RANDOM=$seed
  mkdir -m 700 "$T/registry"
  start_watch
  start_member 1
  wait_for '[ "$(lives)" = ready ]'
  start_member 2
  wait_for "is_pair 1"
  for ((round = 0; round < rounds; ++round)); do
    kind=${kinds[round < ${#kinds[@]} ? round : RANDOM % ${#kinds[@]}]}
    echo "failover $round: $kind"
    shadow=$(pgrep -P "${MEMBER[active]}")
    expected=137
    case $kind in
      engine) kill -KILL "$(pgrep -P "$shadow" -x sleep)" ;;
      fo-shadow) kill -KILL "$shadow" ;;
      fo-reg) kill -KILL "${MEMBER[active]}" ;;
      switchover) [ "$(fo-shadow switchover --timeout 30s)" = "$other" ] ;;
      terminate)
        kill "${MEMBER[active]}"
        expected=0
        ;;
    esac
    if [ "$kind" != switchover ]; then
      expect_exit "${MEMBER[active]}" "$expected"
      wait_for '[ "$(lives)" = ready ]'
      [ "$(life "$(id "$other")")" = ready ]
      start_member "$active"
    fi
    wait_for "is_pair $other"
    [ "$(reg get "$(id "$other")" | jq .generation)" = "$(gms-lock status --json | jq .generation)" ]
    read -r active other <<<"$other $active"
  done
  # A record that was ready later has a higher generation, and each failover is one.
  jq 'select(.record.life == "ready").record.generation' "$T/watch.out" >"$T/generations"
  sort -nc "$T/generations"
  [ "$(uniq "$T/generations" | wc -l)" -eq $((rounds + 1)) ]
  # Between any two changes, at most one record of each generation is ready.
  jq -n 'reduce inputs as $change ({records: {}, both_ready: 0, ambiguous: 0};
    if $change.event == "put" then .records[$change.key] = $change.record
    elif $change.key then del(.records[$change.key]) else . end
    | [.records[] | select(.life == "ready").generation] as $ready
    | if $ready | length > 1 then .both_ready += 1 else . end
    | if ($ready | unique | length) < ($ready | length) then .ambiguous += 1 else . end)
    | del(.records)' "$T/watch.out" | tee "$T/observed"
  [ "$(jq .ambiguous "$T/observed")" -eq 0 ]
  # The end of both is no takeover.
  kill "${MEMBER[other]}"
  wait_exit "${MEMBER[other]}"
  terminate "${MEMBER[active]}"
  run -1 reg ls
}

@test "SIGTERM of fo-reg ends a fo-shadow and its engine in their order" {
  use_dir
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_CONTEXT_SIZE=0
  ready start_run -- fo-shadow -q --id 1 --gpu-free 0 --engine command --sleep : --wake : --health : --prove : \
    --register : --deregister "sleep 0.1; echo deregistered" --port 0 --host 127.0.0.1 -- \
    bash -c 'trap "echo ended; exit" TERM; while :; do sleep 0.01; done'
  terminate "$RUN"
  grep -q ended "$T/run.out"
  no_message
  run ! grep '^fo-shadow: ' "$T/run.err"
  run -1 reg ls
}

@test "etcd: a switchover of a pair changes both records" {
  use_etcd
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_CONTEXT_SIZE=0
  local -a MEMBER=()
  local round
  start_member 1
  wait_for '[ "$(lives)" = ready ]'
  start_member 2
  wait_for "is_pair 1"
  for ((round = 0; round < ${FO_ROUNDS:-2}; ++round)); do
    fo-shadow switchover --timeout 30s
    wait_for "is_pair 2"
    fo-shadow switchover --timeout 30s
    wait_for "is_pair 1"
  done
}

# --- id -------------------------------------------------------------------------------------------

@test "id prints the ids of all services, with one namespace" {
  ends_with 0 reg id -f "$T/dgd.yaml"
  [[ ${lines[0]} =~ ^(llama-[0-9a-f]{16})/worker-decode/generate\ \ Decode$ ]]
  [ "${lines[1]}" = "${BASH_REMATCH[1]}/frontend/generate  Frontend" ]
  [ "${#lines[@]}" -eq 2 ]
  [ "$stderr" = "" ]
  run -0 reg id --endpoint clear <"$T/dgd.yaml"
  [[ ${lines[0]} == llama-*/worker-decode/clear\ \ Decode ]]
  run -0 reg id -f "$T/dgd.yaml" --json
  [ "$(jq -c '[.deployment, .service, .id == "llama-\(.hash)/worker-decode/generate"]' <<<"${lines[0]}")" = '["llama","Decode",true]' ]
}

@test "id reads several files and documents, or prints nothing" {
  sed 's/name: llama/name: qwen/' "$T/dgd.yaml" >"$T/qwen.yaml"
  run -0 reg id -f "$T/dgd.yaml" -f "$T/qwen.yaml"
  [ "${#lines[@]}" -eq 4 ]
  run -0 reg id -f - < <(cat "$T/dgd.yaml"; echo ---; echo 'kind: ConfigMap'; echo ---; cat "$T/qwen.yaml")
  [ "${#lines[@]}" -eq 4 ]
  run -0 reg id < <(printf 'kind: List\nitems:\n- kind: ConfigMap\n- '; sed '2,$s/^/  /' "$T/dgd.yaml")
  [ "${#lines[@]}" -eq 2 ]
  fails 65 "read 'standard input': no DynamoGraphDeployment in it" reg id -f "$T/dgd.yaml" -f - <<<'kind: ConfigMap'
}

@test "id reports bad input with its place" {
  fails 66 "open '$T/absent': No such file or directory" reg id -f "$T/absent"
  fails 65 "standard input:2:*" reg id <<<'a: ['
  sed -i 's/componentType: worker/componentType: my-worker/' "$T/dgd.yaml"
  fails 65 "$T/dgd.yaml:8:22: spec.services.Decode.componentType: 'my-worker-decode': not a component*" \
    reg id -f "$T/dgd.yaml"
}

# --- card and explain -----------------------------------------------------------------------------

@test "card prints a card that explain reads" {
  a_model "$T/model"
  ends_with 0 reg card "$T/model" --kv-abi nixl/f32/16/NHD --alias chat
  [ "$stderr" = "" ]
  printf '%s\n' "$output" >"$T/a.json"
  [ "$(jq -c '[.version, .name, .architecture, .dtype, .context_length, .aliases]' "$T/a.json")" = \
    '[1,"model","LlamaForCausalLM","float32",4096,["chat"]]' ]
  run -0 reg card "$T/model" --kv-abi nixl/f32/16/NHD --alias chat --json
  [ "${#lines[@]}" -eq 1 ]
  [ "$(jq -S . <<<"$output")" = "$(jq -S . "$T/a.json")" ]
  ends_with 0 reg explain "$T/a.json" "$T/a.json"
  [ "$output" = "may share traffic: they have a name in common
may migrate: the checksums are equal
may pair: the KV caches match" ]
}

@test "explain prints what two workers may not do" {
  a_model "$T/model"
  reg card "$T/model" >"$T/a.json"
  reg card "$T/model" --kv-abi other >"$T/b.json"
  ends_with 1 reg explain "$T/a.json" "$T/b.json"
  [ "$output" = 'kv_abi: none and "other"
may share traffic: they have a name in common
may migrate: the checksums are equal
may not pair: kv_abi differs' ]
  run -1 reg explain "$T/a.json" - --json < <(reg card "$T/model" --context-length 1024 --name other)
  [ "$(jq -c '[.may_share_traffic, .may_migrate, .may_pair, .differences[].field]' <<<"$output")" = \
    '[false,false,false,"name","context_length"]' ]
  sed -i 's/"dtype": "float32"/"dtype": "float16"/' "$T/b.json"
  fails 65 "read '$T/b.json': field 'checksum': not that of the card, sha256:*" reg explain "$T/a.json" "$T/b.json"
  fails 66 "open '$T/absent': No such file or directory" reg explain "$T/a.json" "$T/absent"
}

@test "card reports files that it may not read" {
  need_root
  a_model "$T/model"
  chmod 755 "$T"
  chmod 600 "$T/model/model.safetensors"
  cp "$FO_BIN/fo-reg" "$T/fo-reg"
  ends_with 77 setpriv --reuid 65534 --clear-groups "$T/fo-reg" card "$T/model"
  [ "${stderr_lines[-1]}" = "fo-reg: error: open '$T/model/model.safetensors': Permission denied" ]
}

@test "card keeps digests, and does without a damaged cache" {
  a_model "$T/model"
  local card
  card=$(reg card "$T/model")
  # A digest is kept once the file's last change is older than the clock's resolution.
  wait_for 'reg card "$T/model" && jq -e ".files | length == 1" "$XDG_CACHE_HOME/fo/digests.json"'
  echo garbage >"$XDG_CACHE_HOME/fo/digests.json"
  answers 0 "$card" reg card "$T/model"
  touch "$T/file"
  XDG_CACHE_HOME=$T/file ends_with 0 reg card "$T/model"
  [ "$output" = "$card" ]
}

@test "card --verify reads the blobs of the Hugging Face cache" {
  local snapshot=$T/models--org--tiny/snapshots/abc sum
  a_model "$T/model"
  sum=$(sha256sum <"$T/model/model.safetensors")
  sum=${sum%% *}
  mkdir -p "$snapshot" "$T/models--org--tiny/blobs"
  cp "$T/model/config.json" "$snapshot"
  mv "$T/model/model.safetensors" "$T/models--org--tiny/blobs/$sum"
  ln -s "../../blobs/$sum" "$snapshot/model.safetensors"
  printf x | dd of="$T/models--org--tiny/blobs/$sum" bs=1 seek=9000 conv=notrunc status=none
  reg card "$snapshot" --json
  fails 65 "read '$snapshot/model.safetensors': its SHA-256 is *, but it is named $sum" reg card "$snapshot" --verify
}

@test "a full or closed stdout is an error" {
  a_model "$T/model"
  full_stdout reg id -f "$T/dgd.yaml"
  full_stdout reg card "$T/model"
  use_dir
  reg put weights/llama <<<'{}'
  start_put
  local args
  for args in "ls" "ls --json" "ls weights/" "get $ID" "watch" "check" "check --json" "put ${WORKER[*]}"; do
    # shellcheck disable=SC2086
    full_stdout reg $args
  done
  # The worker that could not be reported is not left in the registry.
  [ "$(reg check --json | jq .records)" = 2 ]
}
