#!/usr/bin/env bats
# fo-podgen: the behaviour on its page. generate_test and k8s.bats check the manifests' contents.

# shellcheck disable=SC2030,SC2031  # tests are subshells
load test_helper

setup() {
  fo_setup
  cat >"$T/dgd.yaml" <<'EOF'
# The whole deployment.
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata:
  name: chat
spec:
  services:
    Frontend:
      componentType: frontend
      extraPodSpec:
        mainContainer: {image: registry.example.com/vllm:1}
    Worker:
      componentType: worker
      resources: {limits: {gpu: "1"}}
      gpuMemoryService: {enabled: true}
      failover: {enabled: true}
      extraPodSpec:
        mainContainer:
          image: registry.example.com/vllm:1
          command: [python3, -m, dynamo.vllm]
          args: [--model, small, --load-format, gms]
          env: [{name: DYN_NAMESPACE, value: chat}]
EOF
  cat >"$T/other.yaml" <<'EOF'
# A comment, and odd    spacing.
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}   # kept
data:
    mode: "0644"
EOF
}

podgen() { fo-podgen "$@" 3>&-; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  usage_errors fo-podgen "--layout other" "--kube-version 1" "--kube-version x.y" "--kind Job" "-o xml" \
    "--lock etcd" "--gms theirs" "--gpu-sharing mps" "--engine tgi" "extra" "diff one" "install" \
    "check -o json" "-o json check" "--only Pod check" "-f x diff a b" "--output-dir d install e" \
    "-f - -f -" "diff - -" "--unknown"
  run -64 podgen --tools-image ''
}

@test "an invalid value is reported with the valid ones" {
  fails 64 "--layout 'other': expected plan or dynamo" podgen --layout other </dev/null
}

@test "missing files are 66, invalid YAML is 65 with its place" {
  fails 66 "open '$T/none': No such file or directory" podgen -f "$T/none"
  printf 'a: 1\na: 2\n' >"$T/twice"
  fails 65 "$T/twice:2:1: *'a'*" podgen -f "$T/twice"
  [ "$(wc -l <<<"$stderr")" -eq 1 ]
  fails 65 "standard input:[0-9]*:[0-9]*: *" podgen <<<'a: ['
}

# --- the filter -----------------------------------------------------------------------------------

@test "objects that are no deployments pass byte for byte" {
  podgen -f "$T/other.yaml" >"$T/out"
  cmp "$T/out" "$T/other.yaml"
  { cat "$T/other.yaml"; printf -- '--- # next\n'; cat "$T/other.yaml"; } >"$T/two"
  podgen <"$T/two" >"$T/out"
  cmp "$T/out" "$T/two"
}

@test "several files become one, with the objects of all" {
  printf '%%YAML 1.1\n---\nkind: A\n' >"$T/a"
  printf '\xef\xbb\xbfkind: B' >"$T/b"
  printf '# nothing\n' >"$T/c"
  run -0 podgen -f "$T/other.yaml" -f "$T/a" -f "$T/b" -f "$T/c"
  run -0 podgen -o json <<<"$output"
  [ "$(jq -c '[.items[].kind]' <<<"$output")" = '["ConfigMap","A","B"]' ]
  podgen -f "$T/c" | cmp - "$T/c"
}

@test "a worker becomes a claim template and a deployment, and the rest keeps its own" {
  ends_with 0 podgen -f "$T/dgd.yaml" -o name
  [[ $stderr == "fo-podgen: warning: "*": only Dynamo's operator knows DYN_NAMESPACE_WORKER_SUFFIX"* ]]
  [ "$(wc -l <<<"$stderr")" -eq 1 ]
  [ "$output" = "dynamographdeployment.nvidia.com/chat
resourceclaimtemplate.resource.k8s.io/chat-worker-gpu
deployment.apps/chat-worker" ]
  cmp <(podgen -q -f "$T/dgd.yaml" -o name --json) - <<<"$output"
  podgen -q -f "$T/dgd.yaml" -o json >"$T/out"
  podgen -q -f "$T/dgd.yaml" --json | cmp - "$T/out"
  [ "$(jq -r '.kind' "$T/out")" = List ]
  [ "$(jq -c '.items[0].spec.services | keys' "$T/out")" = '["Frontend"]' ]
  [ "$(jq -c '[.items[2].spec.template.spec.containers[].name]' "$T/out")" = '["engine-0","engine-1"]' ]
}

@test "the same input gives the same bytes, and the output as input stays unchanged" {
  podgen -f "$T/other.yaml" -f "$T/dgd.yaml" >"$T/one"
  podgen -f "$T/other.yaml" -f "$T/dgd.yaml" >"$T/two"
  cmp "$T/one" "$T/two"
  podgen <"$T/one" >"$T/again"
  cmp "$T/one" "$T/again"
  grep -qxF "    mode: \"0644\"" "$T/one"
}

@test "--only and --generated-only select what is written" {
  run -0 podgen -q -f "$T/other.yaml" -f "$T/dgd.yaml" --generated-only -o name
  [ "${lines[0]}" = "resourceclaimtemplate.resource.k8s.io/chat-worker-gpu" ]
  [ "${#lines[@]}" -eq 2 ]
  run -0 podgen -q -f "$T/other.yaml" -f "$T/dgd.yaml" --only configmap --only deployment/chat-worker -o name
  [ "$output" = "configmap/settings
deployment.apps/chat-worker" ]
  answers 0 "deployment.apps/chat-worker" podgen -q -f "$T/dgd.yaml" --only deployment.apps/chat-worker -o name
  fails 66 "write 'Secret/x': --only matches no object" podgen -q -f "$T/dgd.yaml" --only Secret/x
}

@test "--output-dir writes a file for each object" {
  podgen -f "$T/other.yaml" -f "$T/dgd.yaml" --output-dir "$T/out/deep"
  run ls "$T/out/deep"
  [ "$output" = "configmap-settings.yaml
deployment-chat-worker.yaml
dynamographdeployment-chat.yaml
resourceclaimtemplate-chat-worker-gpu.yaml" ]
  cmp "$T/other.yaml" "$T/out/deep/configmap-settings.yaml"
  fails 65 "write '$T/out2/configmap-settings.yaml': two objects have this file name" \
    podgen -f "$T/other.yaml" -f "$T/other.yaml" --output-dir "$T/out2"
  [ ! -e "$T/out2" ]
  # Two groups have an object of the same kind and name.
  printf 'apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: s}\n' |
    podgen --output-dir "$T/out3" -o json
  run ls "$T/out3"
  [ "$output" = "service-s.json
service.serving.knative.dev-s.json" ]
  : >"$T/file"
  fails 73 "create '$T/file': *" podgen -f "$T/other.yaml" --output-dir "$T/file"
}

@test "a full stdout is an error" {
  full_stdout fo-podgen -q -f "$T/dgd.yaml"
}

@test "all errors of an input are reported with their places, and nothing is written" {
  sed 's/gpu: "1"/gpu: "0"/; s/componentType: worker/componentType: planner/' "$T/dgd.yaml" >"$T/bad.yaml"
  ends_with 65 podgen -f "$T/other.yaml" -f "$T/bad.yaml"
  [ -z "$output" ]
  local line
  while IFS= read -r line; do
    [[ $line == "fo-podgen: error: $T/bad.yaml:"[0-9]*:[0-9]*": spec.services.Worker"* ]]
  done <<<"$stderr"
  [ "$(wc -l <<<"$stderr")" -eq 2 ]
}

# --- check ----------------------------------------------------------------------------------------

@test "check explains the output, its needs, and the errors" {
  run -0 podgen check -f "$T/dgd.yaml"
  [ "${lines[0]}" = "$T/dgd.yaml: DynamoGraphDeployment chat" ]
  [ "${lines[1]}" = "Service Frontend (frontend): stays with Dynamo's operator" ]
  [ "${lines[2]}" = "Service Worker (worker): becomes a failover pod" ]
  [ "${lines[3]}" = "  writes ResourceClaimTemplate chat-worker-gpu: 1 of the class gpu.nvidia.com" ]
  [ "${lines[4]}" = "  writes Deployment chat-worker: 1 replica of engine-0, engine-1, gms-weights" ]
  [ "${lines[5]}" = "  needs Kubernetes 1.34 or later, which serves resource.k8s.io/v1 by default" ]
  [ "${lines[6]}" = "  needs NVIDIA's DRA driver for GPUs, and its DeviceClass gpu.nvidia.com" ]
  [ "${lines[7]}" = "  needs image registry.example.com/vllm:1 with the module gpu_memory_service, as in Dynamo's images" ]
  [ "${lines[8]}" = "  needs Dynamo's operator, which creates the service account chat-k8s-service-discovery" ]
  [[ ${lines[9]} == "$T/dgd.yaml:"*": spec.services.Worker: only Dynamo's operator knows "*" (warning)" ]]
  [ "${#lines[@]}" -eq 10 ]
  podgen check --kube-version 1.33 -f "$T/dgd.yaml" |
    grep -qxF "  needs Kubernetes 1.33 with the feature gate DynamicResourceAllocation and resource.k8s.io/v1beta2 switched on, which it has off by default"
  answers 0 "" podgen check -f "$T/other.yaml"
}

@test "check reports each service's errors and warnings" {
  sed 's/failover: {enabled: true}/failover: {enabled: true, numShadows: 3}/; s/componentType: frontend/componentTyp: frontend/' \
    "$T/dgd.yaml" >"$T/bad.yaml"
  ends_with 65 podgen check -f "$T/bad.yaml"
  [ -z "$stderr" ]
  [[ ${lines[1]} == "$T/bad.yaml:9:7: spec.services.Frontend.componentTyp: "*"componentType"*" (warning)" ]]
  [ "${lines[2]}" = "Service Frontend: stays with Dynamo's operator" ]
  [ "${lines[3]}" = "Service Worker (worker): refused" ]
  [[ ${lines[4]} == "$T/bad.yaml:"*": spec.services.Worker.failover.numShadows: "*" (error)" ]]
  [ "${#lines[@]}" -eq 5 ]
}

@test "check --strict fails for warnings, too" {
  sed 's/gpuMemoryService: /gpuMemoryServce: /' "$T/dgd.yaml" >"$T/misspelt.yaml"
  run -0 podgen check -f "$T/misspelt.yaml"
  [[ ${lines[1]} == *".gpuMemoryServce: unknown field; did you mean 'gpuMemoryService'? (warning)" ]]
  ends_with 65 podgen check --strict -f "$T/misspelt.yaml"
  [ -z "$stderr" ]
  [[ ${lines[1]} == *".gpuMemoryServce: unknown field; "* ]]
  run -0 podgen check --strict -f "$T/other.yaml"
}

@test "check --json prints a line for each deployment" {
  sed 's/failover: {enabled: true}/failover: {enabled: true, numShadows: 3}/' "$T/dgd.yaml" >"$T/bad.yaml"
  run -65 podgen check --json -f "$T/dgd.yaml" -f "$T/other.yaml" -f "$T/bad.yaml"
  [ "${#lines[@]}" -eq 2 ]
  [ "$(jq -c '[.file, .deployment, .namespace]' <<<"${lines[0]}")" = "[\"$T/dgd.yaml\",\"chat\",\"\"]" ]
  [ "$(jq -c '.services[] | [.name, .type, .failover, .refused, (.writes | length)]' <<<"${lines[0]}")" = \
    '["Frontend","frontend",false,false,0]
["Worker","worker",true,false,2]' ]
  [ "$(jq -r '.services[1].findings[] | select(.severity == "error") | .path' <<<"${lines[1]}")" = \
    spec.services.Worker.failover.numShadows ]
}

# --- which program waits for the lock -------------------------------------------------------------

# worker COMMAND [ARGS]: writes a deployment whose worker runs these YAML lists to $T/worker.yaml.
worker() {
  sed "s|command: .python3, -m, dynamo.vllm.|command: $1|; s|args: .--model.*|args: ${2:-[]}|" \
    "$T/dgd.yaml" >"$T/worker.yaml"
}

@test "fo-shadow accepts every generated command line" {
  local engine layout options argv
  local -a words
  for layout in plan dynamo; do
    while IFS='|' read -r engine options; do
      worker "$engine"
      # shellcheck disable=SC2086
      podgen -q --layout "$layout" --kind pod --supervise --gms ours $options -o json -f "$T/worker.yaml" >"$T/out"
      argv=$(jq -c '.. | objects | select(.name == "engine-1") | .command | .[:index("--") + 1]' "$T/out")
      mapfile -t words < <(jq -r '.[]' <<<"$argv")
      [ "${words[0]}" = fo-shadow ]
      ENGINE_ID=1 GMS_SOCKET_DIR=$T DYN_SYSTEM_PORT=9091 run -0 "${words[@]:0:${#words[@]}-1}" \
        --print-config -- true
      case $argv in
        # Such an engine publishes nothing, so no layout is waited for.
        *'"--socket-dir",""'*) [[ $engine == *sglang* && $output == *'socket-dir = ""'* ]] ;;
        *) [[ $output == *"socket-dir = \"$T\""* ]] ;;
      esac
    done <<'EOF'
[python3, -m, dynamo.vllm]|
[python3, -m, dynamo.vllm]|--engine dynamo
[python3, -m, dynamo.sglang]|
[vllm, serve, m]|
[vllm, serve, m]|--engine cold
[sglang, serve, m]|
[sglang, serve, m]|--engine sglang
[fo-refengine, serve]|--lock lockd
[/run.sh]|--engine vllm
EOF
  done
}

@test "Dynamo's GMS is ready when each GPU has a socket of each tag" {
  sed 's/gpu: "1"/gpu: "2"/' "$T/dgd.yaml" >"$T/two.yaml"
  podgen -q --gms upstream --kind pod -o json -f "$T/two.yaml" >"$T/out"
  local gms='.. | objects | select(.name == "gms-weights")'
  [ "$(jq -c "$gms | .command + (.args // [])" "$T/out")" = '["python3","-m","gpu_memory_service.cli.server"]' ]
  [ "$(jq -r "$gms | .env[] | select(.name == \"GMS_SOCKET_DIR\").value" "$T/out")" = /shared ]
  local -a probe
  mapfile -t probe < <(jq -r "$gms | .startupProbe.exec.command[]" "$T/out")
  mkdir "$T/gms"
  probe=("${probe[@]//\/shared/$T/gms}")
  bind() { python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$T/gms/$1"; }
  run -1 "${probe[@]}"
  bind gms_GPU-a_weights.sock
  bind gms_GPU-b_weights.sock
  run -1 "${probe[@]}"
  bind gms_GPU-a_kv_cache.sock
  run -1 "${probe[@]}"
  # A plain file is not a socket.
  : >"$T/gms/gms_GPU-b_kv_cache.sock"
  run -1 "${probe[@]}"
  rm "$T/gms/gms_GPU-b_kv_cache.sock"
  bind gms_GPU-b_kv_cache.sock
  run -0 "${probe[@]}"
}

# --- diff -----------------------------------------------------------------------------------------

@test "diff prints the changes in the manifests" {
  answers 0 "" podgen diff "$T/dgd.yaml" "$T/dgd.yaml"
  sed 's/small/large/' "$T/dgd.yaml" >"$T/new.yaml"
  run -1 podgen diff "$T/dgd.yaml" "$T/new.yaml"
  [ "$output" = '~ Deployment/chat-worker spec.template.spec.containers[engine-0].args[1]: "small" -> "large"
~ Deployment/chat-worker spec.template.spec.containers[engine-1].args[1]: "small" -> "large"' ]
  # The generated manifests are equivalent to their source.
  podgen -f "$T/dgd.yaml" >"$T/made.yaml"
  run -0 podgen diff "$T/dgd.yaml" "$T/made.yaml"
  run -1 podgen diff "$T/dgd.yaml" - <"$T/other.yaml"
  [[ $output == *"- Deployment/chat-worker"*"+ ConfigMap/settings"* ]]
}

# --- install --------------------------------------------------------------------------------------

@test "install knows every tool of this build except fo-plan and those of rehearsals" {
  run -0 fo-podgen install "$T/all"
  diff <(ls "$T/all/bin") <(ls --ignore=fo-plan --ignore=fo-refengine --ignore=fo-oracle "$FO_BIN")
  diff <(ls "$T/all/libexec/fo") <(ls "$FO_BUILD/libexec/fo")
}

@test "install copies the tools that exist" {
  mkdir -p "$T/image/bin" "$T/image/libexec/fo"
  cp "$FO_BIN/fo-podgen" "$T/image/bin"
  printf '#!/bin/sh\n' | tee "$T/image/bin/gms-probe" "$T/image/bin/other" >"$T/image/libexec/fo/fo-gpu"
  run -0 "$T/image/bin/fo-podgen" install "$T/fo-tools"
  [ "$output" = "3 programs installed in $T/fo-tools" ]
  run find "$T/fo-tools" -type f -perm 0755 -printf '%P\n'
  [ "$(sort <<<"$output")" = "bin/fo-podgen
bin/gms-probe
libexec/fo/fo-gpu" ]
  cmp "$T/image/bin/fo-podgen" "$T/fo-tools/bin/fo-podgen"
  # A second installation overwrites the first one.
  "$T/image/bin/fo-podgen" install "$T/fo-tools"
  fails 73 "create '$T/dgd.yaml/bin': *" "$T/image/bin/fo-podgen" install "$T/dgd.yaml"
}

# --- integrations ---------------------------------------------------------------------------------

# function_input CONFIG: prints a ResourceList with CONFIG, the deployment and a ConfigMap.
function_input() {
  jq -n --arg dgd "$(cat "$T/dgd.json")" --argjson config "$1" '{
    apiVersion: "config.kubernetes.io/v1", kind: "ResourceList",
    functionConfig: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "podgen"}, data: $config},
    items: [($dgd | fromjson), {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "a"}, data: {mode: "on"}}]}'
}

dgd_as_json() {
  sed 's/enabled: true/enabled: false/g' "$T/dgd.yaml" | fo-podgen -o json 3>&- |
    sed 's/"enabled": false/"enabled": true/' >"$T/dgd.json"
}

@test "as a KRM function it reads and writes a ResourceList" {
  dgd_as_json
  function_input '{"layout": "dynamo", "kind": "pod"}' >"$T/in"
  ends_with 0 podgen -o json -f "$T/in"
  [ "$(jq -c '[.items[].kind]' <<<"$output")" = '["DynamoGraphDeployment","ResourceClaimTemplate","Pod","ConfigMap"]' ]
  [ "$(jq -r '.items[2].spec.initContainers[0].name' <<<"$output")" = gms-server ]
  [ "$(jq -r '.items[3].data.mode' <<<"$output")" = on ]
}

@test "as a KRM function it reports errors in results" {
  dgd_as_json
  function_input '{"layout": "other"}' >"$T/in"
  ends_with 65 podgen -f "$T/in"
  [[ ${stderr%%$'\n'*} == "fo-podgen: error: $T/in:"[0-9]*:[0-9]*": functionConfig: layout 'other': expected plan or dynamo" ]]
  [[ $output == *"results:"*"severity: error"* ]]
  run -65 podgen check -f "$T/in"
  [[ ${lines[0]} == "$T/in:"[0-9]*:[0-9]*": functionConfig: layout 'other': expected plan or dynamo (error)" ]]
  jq '.functionConfig.data = {} | .items[0].spec.services.Worker.failover.numShadows = 2' "$T/in" >"$T/in2"
  ends_with 65 podgen -f "$T/in2"
  [[ $output == *"results:"*"path: spec.services.Worker.failover.numShadows"* ]]
  [[ $output == *"kind: DynamoGraphDeployment"* ]]
}

@test "a ResourceList must be the only input, and is checked and compared item by item" {
  dgd_as_json
  function_input '{}' >"$T/in"
  local args
  for args in "-f $T/other.yaml" "-o name" "--only Pod" "--generated-only" "--output-dir $T/out"; do
    # shellcheck disable=SC2086
    fails 64 "read '$T/in': a ResourceList has *" podgen $args -f "$T/in"
  done
  run -0 podgen check -f "$T/in"
  jq '.items[0].spec.services.Worker.failover.numShadows = 2' "$T/in" >"$T/in2"
  run -65 podgen check -f "$T/in2"
  [[ $output == *"numShadows: "*"(error)" ]]
  jq '.items[1].data.mode = "off"' "$T/in" >"$T/in3"
  answers 1 '~ ConfigMap/a data.mode: "on" -> "off"' podgen diff "$T/in" "$T/in3"
}

@test "the examples for Helm and kustomize work" {
  # shellcheck disable=SC2016
  post_render() { bash -c 'cd "$1" && ./post-render <"$2" 3>&-' bash "$FO_ROOT/packaging/k8s/helm" \
    "$FO_ROOT/packaging/k8s/kustomize/dgd.yaml"; }
  FO_TOOLS_IMAGE=registry.example.com/fo-tools:2 run -0 post_render
  [[ $output == *"image: registry.example.com/fo-tools:2"* ]]
  unset FO_TOOLS_IMAGE
  run ! --separate-stderr post_render
  [ "$output" = "" ]
  [[ $stderr == *"FO_TOOLS_IMAGE: is not set"* ]]
  # The input that kustomize gives to the function.
  cd "$FO_ROOT/packaging/k8s/kustomize"
  {
    printf 'apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nfunctionConfig:\n'
    sed 's/^/  /' podgen.yaml
    printf 'items:\n-\n'
    sed 's/^/  /' dgd.yaml
  } >"$T/list"
  ends_with 0 ./fo-podgen -f "$T/list"
  [[ $output == *"kind: Deployment"* ]]
  if command -v kustomize >/dev/null; then
    ends_with 0 kustomize build --enable-alpha-plugins --enable-exec .
    [[ $output == *"kind: Deployment"* ]]
  fi
}
