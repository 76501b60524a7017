#!/usr/bin/env bats
# The whole job: packaging/demo on this build.

load test_helper
load examples

setup() {
  need_release
  fo_setup
}

@test "the demo fails over twice and hands over once, with the same tokens" {
  # What the README says to type, but for what runs this test.
  example README.md './packaging/demo'
  cd "$FO_ROOT"
  run -0 env -u GMS_SIM_DIR -u GMS_DRIVER bash -c "$(grep -v packaging/test <<<"$EXAMPLE")"
  local answers
  answers=$(grep '^engine [01] answers: ' <<<"$output" | cut -d : -f 2)
  [ "$(wc -l <<<"$answers")" -eq 4 ]
  [ "$(sort -u <<<"$answers" | wc -l)" -eq 1 ]
  [ "$(grep -c '^  first token  ' <<<"$output")" -eq 2 ]
  [ "${lines[-1]}" = "Two failovers and a switchover, the same tokens each time, all memory given back." ]
  # And what it says that is printed.
  example README.md '== SIGKILL of engine 0'
  prints "$EXAMPLE"
}

# Which it takes for a GPU.
@test "the demo runs on a driver that does not say that it is simulated" {
  run -0 env -u GMS_DRIVER LD_LIBRARY_PATH="$FO_BUILD/tests/unmarked" GMS_SIM_VRAM=1GiB \
    "$FO_ROOT/packaging/demo"
  [[ "$output" == *"Running on this machine's GPU."* ]]
  [ "${lines[-1]}" = "Two failovers and a switchover, the same tokens each time, all memory given back." ]
}

@test "the demo, asked to end in the middle, ends all it started" {
  start_bg demo env -u GMS_SIM_DIR -u GMS_DRIVER "$FO_ROOT/packaging/demo"
  wait_for "grep -q '^engine 0 answers' $T/demo.out" 120
  kill -TERM "$BG_PID"
  wait_exit "$BG_PID" 60
  # Whatever still ran would fail the teardown.
  [ "$status" -eq 143 ]
}

@test "the demo names what it does not know" {
  run -64 "$FO_ROOT/packaging/demo" --kepp
  [ "$output" = "demo: error: unknown argument '--kepp'" ]
}
