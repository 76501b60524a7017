#!/usr/bin/env bats
# fo-oracle: the program around the engine of tests/oracle, whose API the GoogleTests cover.

# shellcheck disable=SC2120,SC2154  # run passes arguments, and sets output and stderr
load test_helper

# start_oracle [OPTION]...: returns once it is ready; its pid is in ORACLE, its address in ADDRESS.
start_oracle() {
  # An earlier one has written its address there.
  rm -f "$T/oracle.out"
  start_bg oracle fo-oracle --port 0 "$@"
  ORACLE=$BG_PID
  wait_for "[ -s $T/oracle.out ] || ! kill -0 $ORACLE"
  ADDRESS=$(sed -n 's/^ready \(127\.0\.0\.1:[0-9]*\)$/\1/p' "$T/oracle.out")
  [ -n "$ADDRESS" ]
}

# complete [MEMBERS]: prints the answer to a completion with these members of JSON.
complete() {
  curl -sS --max-time 30 "$ADDRESS/v1/completions" \
    -d "{\"prompt\":\"one two\",\"max_tokens\":20,\"ignore_eos\":true${1:+,$1}}"
}

@test "bad command lines are usage errors" {
  usage_errors fo-oracle frob "--port 65536" "--fail frob@1" "--fail reset" "--chunk 0" \
    "--gap 5" "--refuse-status 200" "--token-ids no" "--health maybe" "--max-model-len 0"
}

@test "an address in use is 73" {
  start_oracle
  fails 73 "listen on '$ADDRESS': Address already in use" fo-oracle --port "${ADDRESS##*:}"
}

@test "it serves until SIGTERM" {
  start_oracle --model m --seed-of-weights 3
  run -0 curl -fsS "$ADDRESS/v1/models"
  [ "$(jq -r '.data[0].id' <<<"$output")" = m ]
  run -0 complete
  [ "$(jq -r '.choices[0].finish_reason' <<<"$output")" = length ]
  terminate "$ORACLE"
}

@test "--json prints an object when it is ready" {
  start_bg oracle fo-oracle --port 0 --json
  wait_for "[ -s $T/oracle.out ]"
  jq -e '.ready and .address == "127.0.0.1:\(.port)"' "$T/oracle.out"
}

@test "two processes give the same answer, unless their weights differ" {
  local text
  start_oracle
  text=$(complete | jq -r '.choices[0].text')
  start_oracle
  [ "$(complete | jq -r '.choices[0].text')" = "$text" ]
  start_oracle --seed-of-weights 1
  [ "$(complete | jq -r '.choices[0].text')" != "$text" ]
}

@test "options are knobs of all requests, and /oracle changes them" {
  start_oracle --fail error@start --fail-next 1 --refuse-status 429
  [ "$(complete | jq .error.code)" = 500 ]
  [ "$(complete | jq .error.code)" = null ]
  run -0 curl -fsS "$ADDRESS/oracle" -d '{"refuse_next":1}'
  [ "$(complete | jq .error.code)" = 429 ]
  run -0 fo-oracle --fail reset@3-4 --gap 20ms --print-config --json
  [ "$(jq -c '[.options.fail.value, .options.gap.value]' <<<"$output")" = '["reset@3-4","20ms"]' ]
}

@test "a client sees a reset" {
  start_oracle
  run -56 complete '"stream":true,"oracle":{"fail":"reset@5"}'
}

@test "the process exits or is killed after its tokens" {
  start_oracle
  run complete '"stream":true,"oracle":{"fail":"exit@5"}'
  [ "$(grep -c '"text"' <<<"$output")" -eq 5 ]
  expect_exit "$ORACLE" 70
  start_oracle
  run complete '"stream":true,"oracle":{"fail":"kill@5"}'
  [ "$(grep -c '"text"' <<<"$output")" -eq 5 ]
  expect_exit "$ORACLE" 137
}

@test "a stalled client does not keep it from ending" {
  start_oracle --fail stall@0
  start_bg client curl -sS "$ADDRESS/v1/completions" -d '{"prompt":"a"}'
  local client=$BG_PID
  wait_for "curl -fsS $ADDRESS/metrics | grep -q 'oracle_faults_total.* 1$'"
  kill -TERM "$ORACLE"
  kill -TERM "$ORACLE" || :
  expect_exit "$ORACLE" 0
  expect_exit "$client" 52
}
