#!/usr/bin/env bats
# Requests of vLLM, SGLang and Dynamo's worker to the memory server and to fo-shadow, imitated by
# tests/support/stand_in_worker.cc.
# bats file_tags=slow

# shellcheck disable=SC2030,SC2031,SC2153,SC2154  # tests are subshells; PORT is pick_port's
load test_helper
load gms_client
load stand_in

setup() {
  fo_setup
  need_stand_in
  PATH=$ENGINES:$PATH
  export GMS_SOCKET_DIR=$T FAILOVER_LOCK_PATH=$T/lock STAND_IN_DISCOVERY=$T/discovery
  # The device has no room for two KV caches.
  export GMS_SIM_DEVICES=1 GMS_SIM_VRAM=256MiB GMS_SIM_CONTEXT_SIZE=2MiB
  KV=(--kv-cache-memory-bytes $((128 << 20)))
  # Disables fo-shadow's status server on a port.
  export DYN_SYSTEM_PORT=-1
  pick_port
  PUBLISHED=127.0.0.1:$PORT
}

# --- the engines ----------------------------------------------------------------------------------

start_both_tags() { start_gms --tags weights,kv_cache; }

# start_shadow N [OPTION]... -- ENGINE...: starts fo-shadow for engine N at PORT, in the background;
# its pid is in SHADOWS[N].
declare -a SHADOWS
start_shadow() {
  local n=$1
  shift
  ENGINE_ID=$n start_bg "engine-$n" fo-shadow -q --engine-url "http://127.0.0.1:$PORT" \
    --publish "$PUBLISHED" --health-interval 200ms "$@"
  SHADOWS[n]=$BG_PID
}

# read_only N: sets ROLE to the options that make engine N a reader, unless it is engine 0.
read_only() {
  ROLE=()
  if [ "$1" -gt 0 ]; then ROLE=(--model-loader-extra-config "$READ_ONLY"); fi
}

# vllm_command N: sets VLLM to the command of engine N as plain vLLM, at its own PORT.
vllm_command() {
  pick_port
  read_only "$1"
  VLLM=(vllm serve model --load-format gms --worker-cls "$WORKER_CLASS" --enable-sleep-mode
    --host 127.0.0.1 --port "$PORT" "${KV[@]}" "${ROLE[@]}")
}

# start_vllm N: starts it under fo-shadow, as documented. SCRATCH=0: without scratch KV.
start_vllm() {
  vllm_command "$1"
  VLLM_SERVER_DEV_MODE=1 DYN_GMS_SCRATCH_KV_ENABLED=${SCRATCH:-1} start_shadow "$1" -- "${VLLM[@]}"
}

# start_sglang N: its engine starts only when fo-shadow has the lock.
start_sglang() {
  pick_port
  read_only "$1"
  start_shadow "$1" --engine cold --devices 0 -- python3 -m sglang.launch_server --model-path model \
    --load-format gms --enable-memory-saver --port "$PORT" --mem-fraction-static 0.6 "${ROLE[@]}"
}

# await_state N STATE: waits until engine N is in this state.
await_state() { gms-probe engine -q --id "engine-$1" --state "$2" --wait 30s >/dev/null; }
# active START N, standby START N: starts it, and waits until it is in this state.
active() { "$@"; await_state "$2" active; }
standby() { "$@"; await_state "$2" standby; }
# complete: prints the tokens from the published address.
complete() {
  curl -sS --fail --max-time 20 -d '{"prompt":"Hello","max_tokens":4}' \
    "http://$PUBLISHED/v1/completions" | jq -ce '.choices[0].token_ids'
}
# engine_of N: prints the pid of engine N.
engine_of() {
  fo-shadow status --json | jq --arg id "engine-$1" '.engines[] | select(.id == $id).engine_pid'
}
# waits_for_kv: succeeds if one engine has the writer's lock of the KV cache, and one waits for it.
waits_for_kv() {
  [ "$(stat_field waiting_writers --tag kv_cache)" = 1 ] &&
    [ "$(stat_field has_rw_session --tag kv_cache)" = true ]
}

# start_vllm_pair: engine 0 serves, engine 1 is in standby. Sets EXPECTED to the generated tokens.
start_vllm_pair() {
  start_both_tags
  active start_vllm 0
  standby start_vllm 1
  EXPECTED=$(complete)
}

# --- vLLM -----------------------------------------------------------------------------------------

@test "vLLM as documented fails over when the engine is killed, and when its fo-shadow is" {
  start_vllm_pair
  kill -KILL "$(engine_of 0)"
  expect_exit "${SHADOWS[0]}" 137
  await_state 1 active
  [ "$(complete)" = "$EXPECTED" ]
  # It restarts as a reader of the layout that it published before.
  standby start_vllm 0
  kill -KILL "${SHADOWS[1]}"
  await_state 0 active
  [ "$(complete)" = "$EXPECTED" ]
  never_two_served
  [ "$(served)" = "0 1 0" ]
}

@test "vLLM switches over in both directions" {
  start_vllm_pair
  answers 0 engine-1 fo-shadow switchover
  [ "$(complete)" = "$EXPECTED" ]
  await_state 0 standby
  answers 0 engine-0 fo-shadow switchover
  [ "$(complete)" = "$EXPECTED" ]
  never_two_served
  [ "$(served)" = "0 1 0" ]
}

@test "without scratch KV the standby waits for the KV cache while the active engine lives" {
  SCRATCH=0
  start_both_tags
  active start_vllm 0
  EXPECTED=$(complete)
  start_vllm 1
  wait_for waits_for_kv
  gms-probe engine -q --id engine-1 --state init >/dev/null
  # It is not in standby, so no engine can take over.
  run -75 fo-shadow switchover --timeout 10s
  [ "$(complete)" = "$EXPECTED" ]
  kill -KILL "$(engine_of 0)"
  await_state 1 active
  [ "$(complete)" = "$EXPECTED" ]
  never_two_served
}

@test "with gms_read_only engine 1 publishes nothing, and waits for engine 0 to do so" {
  start_both_tags
  vllm_command 1
  DYN_GMS_SCRATCH_KV_ENABLED=1 VLLM_SERVER_DEV_MODE=1 start_shadow 1 --start-timeout 3s -- "${VLLM[@]}"
  expect_exit "${SHADOWS[1]}" 75
  [ "$(stat_field state)" = EMPTY ]
}

@test "vLLM needs the KV cache's socket at its start, or with scratch KV at its wake" {
  start_weights
  export STAND_IN_CONNECT_TIME=500ms
  vllm_command 0
  ends_with 1 timeout 30 "${VLLM[@]}"
  [[ ${stderr_lines[0]} == "vllm: error: the engine core died: connect to socket "*"_kv_cache.sock'"* ]]
  start_vllm 0
  expect_exit "${SHADOWS[0]}" 1
  grep -q "_kv_cache.sock'" "$T/engine-0.err"
  grep -q 'the engine ended with status 1, while waking' "$T/engine-0.err"
}

@test "vLLM without the worker class does not support the load format gms" {
  start_both_tags
  ends_with 1 timeout 30 vllm serve model --load-format gms --enable-sleep-mode
  [ "${#stderr_lines[@]}" -eq 1 ]
  [[ $stderr == "vllm: error: "*"Load format \`gms\` is not supported"* ]]
}

@test "vLLM without VLLM_SERVER_DEV_MODE can't be put to sleep, and fo-shadow reports it" {
  start_both_tags
  vllm_command 0
  DYN_GMS_SCRATCH_KV_ENABLED=1 start_shadow 0 -- "${VLLM[@]}"
  expect_exit "${SHADOWS[0]}" 78
  grep -q 'vLLM needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1' "$T/engine-0.err"
}

# --- SGLang ---------------------------------------------------------------------------------------

@test "SGLang starts only with the lock, and fails over" {
  start_both_tags
  active start_sglang 0
  standby start_sglang 1
  local expected
  expected=$(complete)
  # The standby has not started its engine yet.
  [ "$(engine_of 1)" = null ]
  kill -KILL "$(engine_of 0)"
  await_state 1 active
  [ "$(complete)" = "$expected" ]
  never_two_served
  [ "$(served)" = "0 1" ]
}

@test "SGLang asleep beside an active engine would wait for the KV cache forever" {
  start_both_tags
  active start_sglang 0
  pick_port
  read_only 1
  start_shadow 1 --engine sglang -- python3 -m sglang.launch_server --model-path model \
    --load-format gms --enable-memory-saver --port "$PORT" --mem-fraction-static 0.6 "${ROLE[@]}"
  wait_for waits_for_kv
  gms-probe engine -q --id engine-1 --state init >/dev/null
  never_two_served
}

# --- Dynamo's worker ------------------------------------------------------------------------------

# start_dynamo N: starts worker N, with its status server at SYSTEM[N], and its pid in WORKERS[N].
declare -a SYSTEM WORKERS
start_dynamo() {
  pick_port
  SYSTEM[$1]=$PORT
  DYN_SYSTEM_PORT=$PORT ENGINE_ID=$1 start_bg "worker-$1" \
    python3 -m dynamo.vllm --model model --load-format gms "${KV[@]}"
  WORKERS[$1]=$BG_PID
}
# healthy N: succeeds if a startup probe would.
healthy() { curl -sf --max-time 5 -o "$T/live" "http://127.0.0.1:${SYSTEM[$1]}/live"; }
# ask_registered: prints the tokens of the worker that registered last.
ask_registered() {
  local port
  port=$(registered | cut -d ' ' -f 3)
  curl -sS --fail --max-time 20 -d '{"prompt":"Hello","max_tokens":4}' \
    "http://127.0.0.1:$port/v1/completions" | jq -ce '.choices[0].token_ids'
}

@test "of two dynamo.vllm in shadow mode one serves, and after its death the other" {
  start_both_tags
  export DYN_VLLM_GMS_SHADOW_MODE=true
  start_dynamo 0
  start_dynamo 1
  wait_for "healthy 0 && healthy 1 && [ -n \"\$(registered)\" ]"
  local first second pid expected
  read -r first pid _ <<<"$(registered)"
  expected=$(ask_registered)
  second=$((1 - first))
  # It is healthy, but has no endpoint for requests.
  curl -s "http://127.0.0.1:${SYSTEM[$second]}/health" | jq -e '.endpoints == {}'
  [ "$pid" -eq "${WORKERS[$first]}" ]
  kill -KILL "$pid"
  wait_for "[ \"\$(registered | cut -d ' ' -f 1)\" = $second ]"
  [ "$(ask_registered)" = "$expected" ]
  never_two_served
  [ "$(served)" = "$first $second" ]
}

@test "dynamo.vllm without shadow mode registers before anything puts it to sleep" {
  start_both_tags
  export DYN_GMS_SCRATCH_KV_ENABLED=1
  start_dynamo 0
  wait_for "[ -n \"\$(registered)\" ]"
  start_dynamo 1
  wait_for "grep -q two_serve $STAND_IN_DISCOVERY"
  run -1 never_two_served
}

# fo-podgen and fo-shadow refuse such a command if they recognize it: the engine acquires the lock
# for which its fo-shadow then waits, and fo-shadow may have put the engine with the lock to sleep,
# so that none serves.
@test "two dynamo.vllm in shadow mode under fo-shadow with the same lock never both serve" {
  start_both_tags
  local n first pid
  printf '#!/bin/sh\nexec python3 -m dynamo.vllm --gms-shadow-mode "$@"\n' >"$T/worker"
  chmod +x "$T/worker"
  for n in 0 1; do
    pick_port
    ENGINE_ID=$n start_bg "engine-$n" fo-shadow -q --engine dynamo --engine-port "$PORT" \
      --engine-url "http://127.0.0.1:$PORT" --health-interval 200ms -- \
      "$T/worker" --model model --load-format gms "${KV[@]}"
    SHADOWS[n]=$BG_PID
  done
  wait_for "[ -n \"\$(registered)\" ]"
  wait_for "fo-shadow status --json | jq -e '[.engines[] | select(.state != \"init\")] | length == 2'"
  read -r first pid _ <<<"$(registered)"
  kill -KILL "$pid"
  wait_exit "${SHADOWS[first]}"
  wait_for "[ \"\$(registered | cut -d ' ' -f 1)\" = $((1 - first)) ]"
  never_two_served
}
