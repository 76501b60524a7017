#!/usr/bin/env bats
# fo-canary: the behaviour on its page, with workers of fo-oracle.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
load test_helper
load route

setup() {
  fo_setup
  unset FO_STATE_REGISTRY
  export FO_REGISTRY=dir:$T/registry
}

canary() { timeout 60 fo-canary "$@" 3>&-; }

# fails STATUS MESSAGE COMMAND...: it prints nothing but one line, an error that matches.
fails() {
  run "-$1" --separate-stderr "${@:3}"
  [ "$output" = "" ]
  # shellcheck disable=SC2053
  [[ ${stderr_lines[0]} == "fo-canary: error: "$2 ]] || { echo "$stderr"; return 1; }
}

# id N: prints the id of a worker.
id() { printf '%032x' "$1"; }

# put_verdict WORKER WRITER MEMBERS: writes a verdict.
put_verdict() {
  printf '{"version":1,"id":"%s","since":"2026-11-21T05:33:00.123Z",%s}' "$1" "$3" |
    fo-reg put "verdicts/$1/$2"
}
CONVICTED='"health":"convicted","weight":0,"reason":"wrong tokens","expires":null'

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  usage_errors fo-canary "" "frob" "acquit" "acquit x" "acquit $(id 1) $(id 2)" \
    "acquit $(id 1) --timeout 5" "acquit $(id 1) --registry x"
  fails 64 "id 'x': not the id of a worker" canary acquit x
}

# --- acquit ---------------------------------------------------------------------------------------

@test "acquit lifts the convictions of all canaries, and is 1 without any" {
  put_verdict "$(id 1)" a "$CONVICTED"
  put_verdict "$(id 1)" b "$CONVICTED"
  put_verdict "$(id 2)" a "$CONVICTED"
  run -0 canary acquit "$(id 1)"
  [ "$output" = "" ]
  run -0 bash -c "fo-reg get verdicts/$(id 1)/a | jq -r '.health, .acquits'"
  [ "$output" = $'healthy\n2026-11-21T05:33:00.123Z' ]
  [ "$(fo-reg get "verdicts/$(id 2)/a" | jq -r .health)" = convicted ]
  run -1 canary acquit "$(id 1)"
}

@test "a registry that is unreachable is 69" {
  run -69 canary acquit "$(id 1)"
  fails 69 "*Connection refused" canary acquit "$(id 1)" --registry etcd:http://127.0.0.1:1/fleet
}
