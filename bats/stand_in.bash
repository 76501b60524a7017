# The stand-in for vLLM, SGLang and Dynamo's worker (tests/support/stand_in_worker.cc) in Bats: its
# programs first in PATH, the engines that one starts, and who of them serves.

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

# never_two_served [FILE]: fails where two engines served at one moment, by what they say of
# themselves in the discovery file; also where none ever served.
never_two_served() {
  local file=${1:-$STAND_IN_DISCOVERY}
  if ! grep -q '"event":"serving"' "$file" || grep '"event":"two_serve"' "$file"; then
    cat "$file"
    return 1
  fi
}

# served [FILE]: the engines that served, in their order: "0 1 0".
served() {
  jq -r 'select(.event == "serving").engine' "${1:-$STAND_IN_DISCOVERY}" | paste -sd ' '
}

# registered [FILE]: the last worker of Dynamo's that registered: "ENGINE PID PORT".
registered() {
  jq -r 'select(.event == "registered") | "\(.engine) \(.pid) \(.port)"' \
    "${1:-$STAND_IN_DISCOVERY}" | tail -n 1
}
