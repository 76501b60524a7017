# The stand-in for vLLM, SGLang and Dynamo's worker (tests/support/stand_in_worker.cc) in Bats: its
# programs in front of PATH, and the engines that serve.

# shellcheck disable=SC2034  # what is set here is for tests
ENGINES=$FO_BUILD/tests/engines
WORKER_CLASS=gpu_memory_service.integrations.vllm.worker.GMSWorker
READ_ONLY='{"gms_read_only": true}'

need_stand_in() {
  if [ ! -x "$ENGINES/vllm" ]; then
    echo "no stand-in in $ENGINES: build stand_in_worker first"
    return 1
  fi
}

# never_two_served [FILE]: fails if two engines served at the same time, according to the discovery
# file, or if none ever served.
never_two_served() {
  local file=${1:-$STAND_IN_DISCOVERY}
  if ! grep -q '"event":"serving"' "$file" || grep '"event":"two_serve"' "$file"; then
    cat "$file"
    return 1
  fi
}

# served [FILE]: prints the engines that served, in their order: "0 1 0".
served() {
  jq -r 'select(.event == "serving").engine' "${1:-$STAND_IN_DISCOVERY}" | paste -sd ' '
}

# registered [FILE]: prints Dynamo's worker that registered last: "ENGINE PID PORT".
registered() {
  jq -r 'select(.event == "registered") | "\(.engine) \(.pid) \(.port)"' \
    "${1:-$STAND_IN_DISCOVERY}" | tail -n 1
}

# frontend_finds: prints "ENGINE PORT" of the workers that a Frontend finds which Dynamo's operator
# runs from the remaining deployment. Like Dynamo's runtime, it selects ready pods, or containers if
# the deployment says so, that have its labels in its namespace; and workers that registered with
# Kubernetes under that name, with rights to do so, in a Dynamo namespace that begins with its own.
frontend_finds() {
  jq -r -n --slurpfile manifests "$T/manifests.json" --slurpfile pods "$T/pod.json" \
    --slurpfile states "$T/pod/status.json" --slurpfile events "$DISCOVERY" '
    ([$manifests[0] | .. | objects | select(.kind? == "DynamoGraphDeployment")] | first) as $graph |
    $pods[0] as $pod | $states[0] as $state |
    ($graph.metadata.namespace // "default") as $namespace |
    ($graph.metadata.name) as $name |
    (($namespace + "-" + $name) | gsub("[.]"; "-")) as $prefix |
    ($graph.metadata.annotations["nvidia.com/dynamo-kube-discovery-mode"] // "pod") as $mode |
    if any($graph.spec.services[]; .componentType == "frontend") and
      $pod.metadata.labels["nvidia.com/dynamo-discovery-backend"] == "kubernetes" and
      $pod.metadata.labels["nvidia.com/dynamo-discovery-enabled"] == "true" and
      ($pod.metadata.namespace // "default") == $namespace and
      $pod.spec.serviceAccountName == $name + "-k8s-service-discovery" then
      # The last registration of each engine.
      ([$events[] | select(.event | test("registered"))] | group_by(.engine)[] | last) |
      select(.event == "registered" and .env.DYN_DISCOVERY_BACKEND == "kubernetes") |
      # The name under which it has registered, and the names that are selected.
      (if .env.DYN_KUBE_DISCOVERY_MODE == "container" then .env.POD_NAME + "-" + .env.CONTAINER_NAME
        else .env.POD_NAME end) as $own |
      (if $mode == "container"
        then [$state | to_entries[] | select(.value.ready? == true) | $pod.metadata.name + "-" + .key]
        else [$pod.metadata.name | select($state.pod.ready)] end) as $wanted |
      select(IN($own; $wanted[])) |
      select(.env.POD_NAMESPACE == $namespace and .env.POD_UID != "" and .env.DYN_COMPONENT != "") |
      select(.env.DYN_NAMESPACE == $prefix or (.env.DYN_NAMESPACE | startswith($prefix + "-"))) |
      "\(.engine) \(.port)"
    else empty end'
}
