#!/usr/bin/env bats
# fo-podgen's input and output, checked by software from elsewhere: Kubernetes' own types under tsc,
# npm's YAML reader, and the resource definition of DynamoGraphDeployments with NVIDIA's examples,
# which are read from FO_DGD_EXAMPLES, or from ../shared/dgd-examples beside the checkout.
# bats file_tags=slow

# shellcheck disable=SC1003,SC2016,SC2030,SC2031,SC2154  # jq's text; tests are subshells
load test_helper

setup() {
  fo_setup
  DGD=$FO_ROOT/tests/dgd
  K8S=$FO_ROOT/tests/k8s
  EXAMPLES=${FO_DGD_EXAMPLES:-$FO_ROOT/../shared/dgd-examples}
  LOOK_ALIKES=("$DGD"/*.yaml "$DGD"/*.json)
}

need_examples() {
  [ -f "$EXAMPLES/crd.yaml" ] || skip_because dgd-examples "no DynamoGraphDeployments in $EXAMPLES"
  mapfile -t EXAMPLE_FILES < <(find "$EXAMPLES" -name '*.yaml' ! -name crd.yaml | sort)
}

# say PATTERN FILE...: sets FILES to the files that contain PATTERN; do_not_say, to the others.
say() { mapfile -t FILES < <(grep -lE -- "$1" "${@:2}" </dev/null); }
do_not_say() { mapfile -t FILES < <(grep -LE -- "$1" "${@:2}" </dev/null); }

# Combines most values of the options: Kubernetes' version first, then options.
COMBINATIONS=(
  "1.32 --layout plan --kind pod"
  "1.32 --layout dynamo --lock lockd --supervise --tools-image registry.example.com/fo-tools:1"
  "1.33 --layout plan --gms upstream"
  "1.33 --layout plan --lock lockd --supervise --engine dynamo --gms ours"
  "1.33 --layout dynamo --gpu-sharing device-plugin"
  "1.34 --layout plan --supervise --tools-image registry.example.com/fo-tools:1"
  "1.34 --layout dynamo --gms upstream --gpu-sharing device-plugin --kind pod"
  "1.36 --layout plan --gpu-sharing device-plugin --lock lockd --supervise --gms ours --kind pod"
  "1.36 --layout dynamo --tools-image registry.example.com/fo-tools:1"
)

# checked FILE...: fo-podgen's output for these, in each combination, has Kubernetes' types.
checked() {
  local combination kube file out n=0
  local -a options manifests=()
  for combination in "${COMBINATIONS[@]}"; do
    read -r -a options <<<"$combination"
    kube=${options[0]}
    manifests+=(--kube "$kube")
    for file in "$@"; do
      out=$T/$((n += 1)).$(basename "${file%.*}").yaml
      # A Pod has one replica.
      if ! sed -E 's/("?replicas"?: *)[0-9]+/\11/g' "$file" |
        fo-podgen -q --generated-only --kube-version "${options[@]}" >"$out" 2>"$T/err"; then
        wrong "fo-podgen --kube-version $combination -f $file: $(cat "$T/err")"
      fi
      manifests+=("$out")
    done
  done
  none_wrong && "$K8S/check" "${manifests[@]}"
}

@test "errors in a manifest are found" {
  need_types
  cat >"$T/good.json" <<'END'
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {
  "containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 80}],
                  "env": [{"name": "A", "value": "1"}],
                  "livenessProbe": {"httpGet": {"port": "system"}}}],
  "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "claim"}]}}
{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "claim"},
 "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": {
   "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}}]}}}}
END
  local -a broken=()
  # broken NAME FILTER: writes the same manifests with one change.
  broken() {
    jq "$2" "$T/good.json" >"$T/$1.json"
    broken+=("$T/$1.json")
  }
  broken misspelt 'if .kind == "Pod" then .spec.containers[0].imag = "b" else . end'
  broken number 'if .kind == "Pod" then .spec.containers[0].env[0].value = 1 else . end'
  broken string 'if .kind == "Pod" then .spec.containers[0].ports[0].containerPort = "80" else . end'
  broken missing 'if .kind == "Pod" then del(.spec.containers[0].name) else . end'
  broken null 'if .kind == "Pod" then .spec.containers[0].image = null else . end'
  broken group 'if .kind == "Pod" then .apiVersion = "apps/v1" else . end'
  broken kind 'if .kind == "Pod" then .kind = "Pot" else . end'
  broken shape 'if .kind == "Pod" then . else .spec.spec.devices.requests[0] |= .exactly + {name} end'
  # The fields in "exactly" of v1beta2 are one level higher in v1beta1.
  broken version 'if .kind == "Pod" then . else .apiVersion = "resource.k8s.io/v1beta1" end'
  answers 0 "" "$K8S/check" --kube 1.34 "$T/good.json" --kube 1.36 "$T/good.json"
  run -1 "$K8S/check" --kube 1.34 "${broken[@]}" --kube 1.33 "$T/good.json"
  # says FILE KUBE PATTERN: the output has this error.
  says() { grep -qE "^check: error: $T/$1\.json \($2\): $3" <<<"$output" || { echo "$output"; return 1; }; }
  says misspelt 1.34 "Pod 'pod': spec\.containers\[0\]\.imag: .*does not exist"
  says number 1.34 "Pod 'pod': spec\.containers\[0\]\.env\[0\]\.value: Type 'number'"
  says string 1.34 "Pod 'pod': spec\.containers\[0\]\.ports\[0\]\.containerPort: Type 'string'"
  says missing 1.34 "Pod 'pod': spec\.containers\[0\]: .*'name'' is missing"
  says null 1.34 "Pod 'pod': spec\.containers\[0\]\.image: Type 'null'"
  says group 1.34 "Pod 'pod': apiVersion: there is no Pod in 'apps/v1'"
  says kind 1.34 "Pot 'pod': unknown kind 'Pot'"
  says shape 1.34 "ResourceClaimTemplate 'claim': spec\.spec\.devices\.requests\[0\]\."
  says version 1.34 "ResourceClaimTemplate 'claim': spec\.spec\.devices\.requests\[0\]\.exactly: "
  says good 1.33 "ResourceClaimTemplate 'claim': apiVersion: Kubernetes 1.33 has no .* 'resource.k8s.io/v1'"
}

@test "types of each version belong to that Kubernetes" {
  need_types
  local version
  for version in 1.32 1.33 1.34 1.36; do
    run -0 grep -h 'OpenAPI spec version' \
      "$FO_BUILD/k8s/node_modules/kubernetes-$version/dist/gen/models/V1Pod.d.ts"
    [[ "$output" == *"version: "*"$version"* ]]
  done
}

@test "manifests of the look-alikes have Kubernetes' types" {
  need_types
  say 'failover"?: *(\{\}|\{"?enabled"?: true|\{numShadows|$)' "${LOOK_ALIKES[@]}"
  [ "${#FILES[@]}" -ge 14 ]
  checked "${FILES[@]}"
}

@test "other readers read YAML and JSON output as the same" {
  need_types
  local file name
  for file in "${LOOK_ALIKES[@]}"; do
    name=$(basename "$file")
    fo-podgen -q -f "$file" >"$T/$name.out.yaml"
    fo-podgen -q -f "$file" -o json >"$T/$name.out.json"
  done
  "$K8S/read" "$T"/*.out.yaml >"$T/from-yaml"
  "$K8S/read" "$T"/*.out.json >"$T/from-json"
  [ "$(wc -l <"$T/from-yaml")" -ge "${#LOOK_ALIKES[@]}" ]
  cmp <(jq -S . "$T/from-yaml") <(jq -S . "$T/from-json")
}

@test "other readers read strings as strings" {
  need_types
  "$K8S/read" "$DGD/strings.yaml" >"$T/in.json"
  jq -e '.spec.services.Worker.envs' "$T/in.json" >"$T/before"
  fo-podgen -q -f "$DGD/strings.yaml" --generated-only >"$T/out.yaml"
  "$K8S/read" "$T/out.yaml" >"$T/out.json"
  jq -e 'select(.kind == "Deployment").spec.template.spec.containers[0].env' "$T/out.json" >"$T/after"
  answers 0 "[]" jq -n --slurpfile before "$T/before" --slurpfile after "$T/after" '$before[0] - $after[0]'
}

# The first line of a broken input is "# wants: PATTERN", for an error that matches, "# warns:
# PATTERN", for a warning, or "# leaves: PATTERN", for output without a message, which the API
# server would refuse.
@test "every broken input is refused with its error, or left to the API server" {
  local file word pattern wanted
  local -a files=("$DGD"/broken/*.yaml)
  [ "${#files[@]}" -ge 40 ]
  for file in "${files[@]}"; do
    read -r _ word pattern <"$file"
    case $word in
      wants:) wanted=65 ;;
      warns: | leaves:) wanted=0 ;;
      *)
        wrong "$file: its first line does not say what it wants"
        continue
        ;;
    esac
    observe fo-podgen -f "$file"
    if [ "$status" -ne "$wanted" ] || { [ "$wanted" -ne 0 ] && [ "$output" != "" ]; }; then
      wrong "$file: status $status: $output"
    fi
    if [ "$word" = leaves: ]; then
      stderr=$(grep -v DYN_NAMESPACE <<<"$stderr" || true)
      if [ "$stderr" != "" ] || ! grep -qE -- "$pattern" <<<"$output"; then
        wrong "$file: leaves $pattern: $stderr"
      fi
      continue
    fi
    if ! grep -qE -- "$file:[0-9]+:[0-9]+:" <<<"$stderr" || ! grep -qE -- "$pattern" <<<"$stderr"; then
      wrong "$file: wants $pattern: $stderr"
    fi
  done
  none_wrong
}

@test "the look-alikes have no errors" {
  local file
  for file in "${LOOK_ALIKES[@]}"; do
    run -0 fo-podgen check --layout dynamo -f "$file"
    # Warnings about features of the operator are expected.
    [ "$(grep '(warning)$' <<<"$output" | grep -vE 'useAsCompilationCache: |DYN_NAMESPACE|the planner can')" = "" ]
  done
}

@test "no field of NVIDIA's examples is unknown" {
  need_examples
  local file
  for file in "${EXAMPLE_FILES[@]}"; do
    run fo-podgen check -f "$file"
    [[ "$output" != *"unknown field"* ]]
  done
}

@test "v1beta1's pod templates have Kubernetes' types" {
  need_types
  local files=("$DGD"/beta*.yaml)
  if [ -d "$EXAMPLES/v1beta1" ]; then files+=("$EXAMPLES"/v1beta1/*.yaml); fi
  "$K8S/read" "${files[@]}" >"$T/read.json"
  jq -e 'select(.apiVersion == "nvidia.com/v1beta1") |
    {apiVersion: "v1", kind: "PodTemplate", metadata: {name: .metadata.name}} +
    {template: .spec.components[].podTemplate}' "$T/read.json" >"$T/templates.json"
  "$K8S/check" --kube 1.34 "$T/templates.json"
}

@test "the look-alikes match the resource definition" {
  need_types
  need_examples
  say '/v1alpha1' "${LOOK_ALIKES[@]}"
  do_not_say 'extraClientContainers' "${FILES[@]}"
  [ "${#FILES[@]}" -ge 10 ]
  "$K8S/check-crd" "$EXAMPLES/crd.yaml" "${FILES[@]}"
}

@test "the resource definition rejects broken input" {
  need_types
  need_examples
  local name
  local -a files=()
  for name in argument-number container-twice misspelt misspelt-service not-a-map shadows \
    value-boolean value-octal version volume-twice; do
    files+=("$DGD/broken/$name.yaml")
  done
  run -1 "$K8S/check-crd" "$EXAMPLES/crd.yaml" "${files[@]}"
  # Each file has exactly one error.
  answers 0 "$(printf '%s\n' "${files[@]}")" sed 's/^check-crd: error: \([^:]*\): .*/\1/' <<<"$output"
}

@test "examples without failover pass through byte for byte" {
  need_examples
  local file
  do_not_say '^ *failover:' "${EXAMPLE_FILES[@]}"
  [ "${#FILES[@]}" -ge 10 ]
  for file in "${FILES[@]}" "$DGD/plain.yaml"; do
    fo-podgen -q -f "$file" >"$T/out"
    cmp "$file" "$T/out"
  done
}

@test "examples with failover become manifests with Kubernetes' types" {
  need_types
  need_examples
  say '^ *failover:' "${EXAMPLE_FILES[@]}"
  local -a with_failover=("${FILES[@]}")
  do_not_say '^ *multinode:' "${with_failover[@]}"
  [ "${#FILES[@]}" -ge 2 ]
  checked "${FILES[@]}"
  say '^ *multinode:' "${with_failover[@]}"
  [ "${#FILES[@]}" -ge 1 ]
  ends_with 65 fo-podgen -f "${FILES[0]}"
  [ "$output" = "" ]
  [[ "$stderr" == *"failover is not supported with multinode deployments"* ]]
}

@test "examples changed to use failover become manifests with Kubernetes' types" {
  need_types
  need_examples
  do_not_say '^ *failover:' "${EXAMPLE_FILES[@]}"
  "$K8S/read" "${FILES[@]}" >"$T/read.json"
  # Changes every worker that has NVIDIA's GPUs, on one node.
  jq -c 'select(.kind == "DynamoGraphDeployment") |
    (.spec.services[]? | select(.componentType == "worker" and .resources.limits.gpu)) |=
      (del(.multinode, .frontendSidecar) + {failover: {enabled: true}, gpuMemoryService: {enabled: true}}) |
    (.spec.components[]? | select(.type == "worker")) |=
      (del(.multinode) + {experimental: {failover: {}, gpuMemoryService: {}}}) |
    select(any(.. | objects; has("failover")))' "$T/read.json" >"$T/switched.json"
  [ "$(wc -l <"$T/switched.json")" -ge 10 ]
  sed 's/^/---\n/' "$T/switched.json" >"$T/switched.yaml"
  checked "$T/switched.yaml"
}
