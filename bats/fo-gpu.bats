#!/usr/bin/env bats
# fo-gpu, the private helper program: the behaviour on which its callers rely.

# shellcheck disable=SC2030,SC2031,SC2154  # tests are subshells
load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SIM_VRAM=64MiB GMS_SIM_CONTEXT_SIZE=0
  PATH=$FO_BUILD/libexec/fo:$PATH
}

TOTAL=67108864

# free [OPTION]...: runs fo-gpu free. field KEY: prints a member of the answer in $output.
free() { fo-gpu free "$@" 3>&-; }
field() { sed -E "s/.*\"$1\":\"?([^,\"}]*).*/\1/" <<<"$output"; }

# hold SIZE [DEVICE]: allocates memory of a device, and checks that it is reported as used.
hold() {
  fill "$@"
  run -0 free --device "${2:-0}"
  [ "$(field free)" -eq $((TOTAL - $1)) ]
}

# start_waiting [OPTION]...: starts a query in the background, and waits until its driver is open.
start_waiting() {
  start_bg waiter fo-gpu free "$@"
  wait_for "ls -l /proc/$BG_PID/fd | grep -q /book"
}

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors, before a driver is looked for" {
  GMS_DRIVER=/nonexistent/libcuda.so.1 usage_errors fo-gpu "" "unknown" \
    "free now" "free --device -1" "free --device x" "free --device 1024" \
    "free --until-free x" "free --until-free" "free --until-free -1" "free --until-free 1 --timeout 5" \
    "free --timeout 5s" "free --uuid" "free --uuid a,b" "free --socket s" \
    "map-check" "map-check --socket" "map-check --socket s --timeout x" "map-check --socket s --device -1" \
    "map-check --socket s --until-free 1" "map-check --socket s extra" \
    "health --device 0" "health --uuid a,b" "health now"
}

@test "no driver and no such device are 69 in one line, another driver's name is 78" {
  local command
  for command in "free" "free --until-free 1KiB" "map-check --socket $T/none"; do
    # shellcheck disable=SC2086
    fails 69 "no CUDA driver: *" fo-gpu $command --driver /nonexistent/libcuda.so.1
    # shellcheck disable=SC2086
    fails 69 "CUDA device 9: CUDA_ERROR_INVALID_DEVICE (101)" fo-gpu $command --device 9
    # shellcheck disable=SC2086
    ends_with 78 fo-gpu $command --driver other
  done
}

# --- health ---------------------------------------------------------------------------------------

# fake_nvml [COUNTERS]: puts the tests' NVML in the place of the real one.
fake_nvml() {
  [ -e "$FO_BUILD/tests/libfake_nvml.so" ] || skip_because tests "the tests' fake NVML is not built"
  ln -sf "$FO_BUILD/tests/libfake_nvml.so" "$T/libnvidia-ml.so.1"
  export LD_LIBRARY_PATH=$T FO_TEST_NVML=$1
}

@test "health prints what is counted, and nothing for what is not supported" {
  fake_nvml "count=1 temperature=41 corrected0=2 uncorrected0=0 uncorrected1=3 rows=4 throttle=4 link0=1 link0.1=5"
  ends_with 0 fo-gpu health --json
  [ -z "$stderr" ]
  jq -ce . <<<"$output" | diff - <(jq -c . <<'END'
{"bus_id":"0000:3b:00.0","ecc":{"corrected":{"volatile":2},"uncorrected":{"aggregate":3,"volatile":0}},
 "index":0,"name":"Fake","nvlinks":[{"active":true,"link":0,"recoveries":5}],"problems":[],
 "remapped_rows":{"corrected":4,"failed":false,"pending":false,"uncorrected":5},
 "temperature_celsius":41,"throttle_reasons":["sw_power_cap"],"uuid":"GPU-known"}
END
  )
  run -0 fo-gpu health --uuid GPU-known
  grep -qxE 'uuid +GPU-known' <<<"$output"
  grep -qxE 'ecc\.uncorrected\.aggregate +3' <<<"$output"
  grep -qxE 'problems +none' <<<"$output"
  run ! grep retired <<<"$output"
}

@test "health is 1 if a GPU needs service, and the others are printed" {
  fake_nvml "count=2 rows=0 pending=1"
  ends_with 1 fo-gpu health --json
  [ "$(jq -c '[.uuid, .problems]' <<<"$output")" = '["GPU-known",["a row remapping is pending: reset the GPU"]]
["GPU-lost",["GPU is lost"]]' ]
  [ -z "$stderr" ]
}

@test "health without NVML, without a GPU, and of an unknown one is 69 in one line" {
  fails() {
    ends_with 69 "${@:2}"
    [ "$output" = "" ]
    # shellcheck disable=SC2053
    [[ $stderr == "fo-gpu: error: query NVML for the health of "$1 ]] || { echo "$stderr"; return 1; }
  }
  : >"$T/libnvidia-ml.so.1"
  LD_LIBRARY_PATH=$T fails "all GPUs: *libnvidia-ml.so.1: file too short" fo-gpu health
  fake_nvml "count=0"
  fails "all GPUs: no GPU" fo-gpu health
  fails "'GPU-other': Not Found" fo-gpu health --uuid GPU-other
}

# --- free -----------------------------------------------------------------------------------------

@test "free prints a device's memory and its uuid in one line of JSON" {
  ends_with 0 free --device 1
  [[ $output =~ ^\{\"free\":$TOTAL,\"total\":$TOTAL,\"uuid\":\"GPU-[0-9a-f-]{36}\"\}$ ]]
  [ -z "$stderr" ]
  local second
  second=$(field uuid)
  run -0 free
  [ "$(field uuid)" != "$second" ]
}

@test "free queries a full device and allocates nothing" {
  export GMS_SIM_CONTEXT_SIZE=16MiB
  hold "$TOTAL" 1
  ends_with 0 free --device 1
  [ "$(field free)" -eq 0 ]
  run -0 free --device 0
  [ "$(field free)" -eq "$TOTAL" ]
}

@test "a uuid must be the simulated device's" {
  run -0 free --device 1
  local uuid
  uuid=$(field uuid)
  run -0 free --device 1 --uuid "$uuid"
  fails 69 "find device '$uuid': device 0 is GPU-*" free --device 0 --uuid "$uuid"
}

@test "with a uuid, NVML is queried about a real device, and no driver is started" {
  local fake=$FO_BUILD/tests/libfake_nvml.so
  [ -e "$fake" ] || skip_because tests "the tests' fake NVML is not built"
  ln -s "$fake" "$T/libnvidia-ml.so.1"
  # If this were opened, it would be reported as not a CUDA driver.
  ln -s "$fake" "$T/libcuda.so.1"
  export LD_LIBRARY_PATH=$T GMS_DRIVER=auto
  answers 0 '{"free":600,"total":1000,"uuid":"GPU-known"}' free --uuid GPU-known
  answers 0 '{"free":900,"total":1000,"uuid":"GPU-known"}' free --uuid GPU-known --until-free 850
  fails 69 "query NVML for the free memory of 'GPU-other': Not Found" free --uuid GPU-other
  fails 69 "query NVML for the free memory of 'GPU-lost': GPU is lost" free --uuid GPU-lost --until-free 1
  fails 69 "CUDA driver 'libcuda.so.1': missing function cuInit*" free
}

# --- free --until-free ----------------------------------------------------------------------------

@test "memory that is free already is not waited for" {
  ends_with 0 free --until-free 64MiB --timeout 0
  [ "$(field free)" -eq "$TOTAL" ]
  [ -z "$stderr" ]
}

@test "--until-free waits until the holder dies" {
  hold 33554432 1
  start_waiting --device 1 --until-free 64MiB
  [ ! -s "$T/waiter.out" ]
  empty
  expect_exit "$BG_PID" 0
  output=$(cat "$T/waiter.out")
  [ "$(field free)" -eq "$TOTAL" ]
  [ ! -s "$T/waiter.err" ]
}

@test "--until-free that times out is 75, with the last answer and one line" {
  hold 33554432
  ends_with 75 free --until-free 33554433 --timeout 50ms
  [ "${#lines[@]}" -eq 1 ]
  [ "$(field free)" -eq 33554432 ]
  [ "$stderr" = "fo-gpu: error: wait for free memory of device '$(field uuid)': 33554432 bytes free, 33554433 needed" ]
  run -75 free --until-free 33554433 --timeout 0
  run -0 free --until-free 33554432 --timeout 0
}

@test "more memory than the device has is 64 at once" {
  ends_with 64 free --until-free 67108865
  [ -z "$output" ]
  [[ ${stderr_lines[0]} =~ ^"fo-gpu: error: wait for free memory of device 'GPU-"[0-9a-f-]+"': it has 67108864 bytes, 67108865 needed"$ ]]
}

@test "a driver that fails during the wait is 70" {
  hold 2097152
  GMS_SIM_FAULTS=fo_simcuda_memory_info:2=999 fails 70 "free memory of device 0: CUDA_ERROR_UNKNOWN (999)" \
    free --until-free 64MiB
}

@test "SIGTERM ends the wait" {
  hold 2097152
  start_waiting --until-free 64MiB --timeout 1h
  terminate "$BG_PID" 143
  [ ! -s "$T/waiter.out" ]
}

@test "an answer that can't be written is 74" {
  full_stdout fo-gpu free
}
