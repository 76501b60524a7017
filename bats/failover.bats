#!/usr/bin/env bats
# A whole failover: packaging/demo on this build.
# bats file_tags=slow

load test_helper
load examples

setup() {
  need_release
  fo_setup
}

LAST_LINE="Three failovers and a switchover, the same tokens each time, no request lost, all memory given back."

@test "the demo fails over, switches over, and loses no request behind a router" {
  # Runs the README's commands, except packaging/test, which runs this test.
  example README.md './packaging/demo'
  cd "$FO_ROOT"
  run -0 env -u GMS_SIM_DIR -u GMS_DRIVER bash -c "$(grep -v packaging/test <<<"$EXAMPLE")"
  local answers
  answers=$(grep '^engine [01] answers: ' <<<"$output" | cut -d : -f 2)
  [ "$(wc -l <<<"$answers")" -eq 4 ]
  [ "$(sort -u <<<"$answers" | wc -l)" -eq 1 ]
  [ "$(grep -c '^  first token  ' <<<"$output")" -eq 2 ]
  [ "${lines[-1]}" = "$LAST_LINE" ]
  grep -qE '^[1-9][0-9]* requests answered, [0-9]+ resumed after the first token of a stream, 0 failed$' <<<"$output"
  # The README shows the same output.
  example README.md '== SIGKILL of engine 0'
  prints "$EXAMPLE"
}

# The demo treats such a driver as a GPU.
@test "the demo runs on a driver that does not identify itself as simulated" {
  run -0 env -u GMS_DRIVER LD_LIBRARY_PATH="$FO_BUILD/tests/unmarked" GMS_SIM_VRAM=1GiB \
    "$FO_ROOT/packaging/demo"
  [[ "$output" == *"Running on this machine's GPU."* ]]
  [ "${lines[-1]}" = "$LAST_LINE" ]
}

@test "the demo ends all its processes on SIGTERM" {
  start_bg demo env -u GMS_SIM_DIR -u GMS_DRIVER "$FO_ROOT/packaging/demo"
  wait_for "grep -q '^engine 0 answers' $T/demo.out" 120
  kill -TERM "$BG_PID"
  wait_exit "$BG_PID" 60
  # Leftover processes fail the teardown.
  [ "$status" -eq 143 ]
}

@test "the demo with --keep prints how to kill and start engines, and ends all on Ctrl-C" {
  # A signal that is ignored at a shell's start can't be trapped.
  start_bg demo env -u GMS_SIM_DIR -u GMS_DRIVER --default-signal=INT "$FO_ROOT/packaging/demo" --keep
  local demo=$BG_PID start url folder
  wait_for "grep -q '^Ctrl-C here' $T/demo.out || ! kill -0 $demo" 300
  # Runs the printed commands, as another shell would.
  eval "$(grep '^  export ' "$T/demo.out")"
  start=$(sed -n 's/^  \(.*start-engine 1\) &$/\1/p' "$T/demo.out")
  url=$(grep -o 'http://[^ ]*/v1/completions' "$T/demo.out")
  folder=${start%/start-engine 1}
  [ "$(fo-shadow status --json | jq '.engines[] | select(.state == "active").engine_pid')" = \
    "$(sed -n 's/^Engine 1 is active: process \([0-9]*\),.*/\1/p' "$T/demo.out")" ]
  eval "$(grep '^  kill -KILL ' "$T/demo.out")"
  wait_for "curl -sS --fail -d '{\"prompt\":\"Hello\",\"max_tokens\":8}' $url"
  # shellcheck disable=SC2086
  start_bg again $start
  gms-probe engine -q --id engine-1 --state standby --wait 30s
  kill -INT "$demo"
  expect_exit "$demo" 0 60
  [ ! -e "$folder" ]
  [ ! -e "$GMS_SIM_DIR" ]
}

@test "the demo reports unknown arguments" {
  reports 64 "demo: error: unknown argument '--kepp'" "$FO_ROOT/packaging/demo" --kepp
}
