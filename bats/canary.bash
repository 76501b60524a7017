# shellcheck shell=bash disable=SC2034,SC2154  # variables of the tests, of test_helper and of route
# Workers of fo-oracle in a registry, and canaries that watch them. route.bash must be loaded, too.

# setup_canary: the settings of each test.
setup_canary() {
  fo_setup
  unset FO_STATE_REGISTRY
  export FO_REGISTRY=dir:$T/registry FO_CANARY_ADMIN=$T/admin/canary.sock
}

canary() { timeout 60 fo-canary "$@" 3>&-; }

# id N: prints the id of a worker.
id() { printf '%032x' "$1"; }

# start_oracles N [OPTION]...: starts N workers; their URLs are in URLS, their pids in ORACLES.
start_oracles() {
  local n
  URLS=()
  ORACLES=()
  for n in $(seq "$1"); do
    start_oracle "oracle$n" "${@:2}"
    URLS+=("$WORKER")
    ORACLES+=("$ORACLE")
  done
}
# learn [OPTION]...: from the first two workers.
# shellcheck disable=SC2120  # run passes options
learn() {
  canary learn -q --model oracle --worker "${URLS[0]}" --worker "${URLS[1]}" -o "$T/canaries.json" "$@" >"$T/learned"
}
# knobs N MEMBERS: the worker N does this from now on.
knobs() { curl -sSf "${URLS[$1 - 1]}/oracle" -d "{$2}" >/dev/null; }
# fault N FAULT: the worker N fails like this from now on.
fault() { knobs "$1" "\"fail\":\"$2\""; }

# start_canary [OPTION]...: starts a canary with the name a; its pid is in CANARY.
start_canary() {
  FO_CANARY_INTERVAL=200ms FO_CANARY_NAME=a start_bg canary fo-canary run --canaries "$T/canaries.json" "$@"
  CANARY=$BG_PID
}
# register N: registers the workers 1 to N.
register() {
  local n
  for n in $(seq "$1"); do
    start_bg "put$n" fo-reg put --endpoint ns/worker/generate --url "${URLS[$n - 1]}" --model oracle --id "$(id "$n")"
  done
}
healths() { canary state --json | jq -r '[.workers[].health] | join(" ")'; }
await_healths() { wait_for "[ \"\$(healths)\" = '$1' ]"; }
# convict_the_fourth: four workers, of which the canary convicts the last one for wrong tokens. The
# canary has the state file $T/state.json.
convict_the_fourth() {
  start_oracles 4
  learn
  register 4
  fault 4 wrong@2
  start_canary --state "$T/state.json"
  await_healths "healthy healthy healthy convicted"
}
