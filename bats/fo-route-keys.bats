#!/usr/bin/env bats
# fo-route: clients' keys, their tiers and limits, and the levels of degradation.

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # tests are subshells
load test_helper
load route

setup() { setup_route; }

# key NAME [LINE]...: adds the key NAME, with these lines, to the file of keys.
key() {
  printf '["%s"]\n' "$(printf %s "$1" | sha256sum | cut -d' ' -f1)" >>"$T/keys.toml"
  printf '%s\n' "${@:2}" >>"$T/keys.toml"
}

# start_with_keys [OPTION]...: starts a worker, and a router with the file of keys.
start_with_keys() {
  start_oracle a
  start_router --worker "a=$WORKER" --keys "$T/keys.toml" "$@"
  await_healthy 1
}

# ask KEY [CURL-OPTION]...: prints the status of a completion with this key; the answer is in
# $T/answer, the headers in $T/head.
ask() {
  curl -sS --max-time 60 -o "$T/answer" -D "$T/head" -w '%{http_code}\n' "$URL/v1/completions" \
    -H "Authorization: Bearer $1" -d '{"model":"oracle","prompt":"one two","max_tokens":4}' "${@:2}" 3>&-
}

@test "a key that is missing or unknown is 401, and one of the file is served" {
  key good
  start_with_keys
  [ "$(ask good)" = 200 ]
  [ "$(ask bad)" = 401 ]
  [ "$(jq -r .error.code "$T/answer")" = invalid_api_key ]
  [ "$(curl -sS -o /dev/null -w '%{http_code}' "$URL/v1/models")" = 401 ]
  [ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'x-api-key: good' "$URL/v1/models")" = 200 ]
  run -1 grep -wE 'good|bad' "$T/router.err"
}

@test "the body of a client without a key, or of another path, is not read" {
  key good
  start_with_keys
  local request line
  for request in "/v1/completions 401" "/sleep 404"; do
    exec 4<>"/dev/tcp/127.0.0.1/${URL##*:}"
    printf 'POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n' "${request% *}" >&4
    read -r -t 60 line <&4
    exec 4>&-
    [[ $line == "HTTP/1.1 ${request#* } "* ]]
  done
}

@test "a key of other models does not see this one" {
  key limited 'models = ["llama"]'
  start_with_keys
  [ "$(ask limited)" = 404 ]
  [ "$(jq -r .error.code "$T/answer")" = model_not_found ]
  run -0 curl -sS -H 'Authorization: Bearer limited' "$URL/v1/models"
  [ "$(jq -c .data <<<"$output")" = "[]" ]
}

@test "a key beyond its limit is 429 with Retry-After, and others are served" {
  key small 'requests_per_minute = 2'
  key few 'tokens_per_minute = 3'
  key other
  start_with_keys
  [ "$(ask small)" = 200 ]
  [ "$(ask small)" = 200 ]
  [ "$(ask small)" = 429 ]
  [ "$(jq -r .error.code "$T/answer")" = rate_limit_exceeded ]
  grep -qi '^retry-after: [1-9]' "$T/head"
  # A request may need more than a minute's tokens; the next one waits for them.
  [ "$(ask few)" = 200 ]
  [ "$(ask few)" = 429 ]
  [ "$(ask other)" = 200 ]
}

@test "a key with a limit of requests at a time gets the next one when one has ended" {
  key one 'requests_at_a_time = 1'
  start_with_keys
  start_bg stream curl -sSN --max-time 60 "$URL/v1/completions" -H 'Authorization: Bearer one' \
    -d '{"model":"oracle","prompt":"a","max_tokens":50,"ignore_eos":true,"stream":true,"oracle":{"fail":"stall@3"}}'
  local stream=$BG_PID
  wait_for "grep -q '\"text\"' $T/stream.out"
  [ "$(ask one)" = 429 ]
  kill "$stream"
  wait_for '[ "$(ask one)" = 200 ]'
}

# The order is that of the answers of one slot. Requests of best effort are half as long as the others,
# since tiers share tokens, not requests.
@test "tiers that all wait share the tokens of a worker as 4:2:1" {
  key high 'tier = "premium"'
  key middle
  key low 'tier = "best_effort"'
  start_with_keys --slots 1 --slo-rate 0.001 --queue-timeout 10m
  start_bg first curl -sSN --max-time 60 "$URL/v1/completions" -H 'Authorization: Bearer high' \
    -d '{"model":"oracle","prompt":"a","max_tokens":50,"ignore_eos":true,"stream":true,"oracle":{"gap":"1s"}}'
  local first=$BG_PID name tokens
  wait_for "grep -q '\"text\"' $T/first.out"
  for name in high:100 middle:100 low:50; do
    tokens=${name#*:} name=${name%:*}
    printf '{"model":"oracle","prompt":"a","ignore_eos":true,"max_tokens":%d}' "$tokens" >"$T/$name"
    for _ in {1..40}; do
      printf '%s\n' "url = $URL/v1/completions" "header = \"Authorization: Bearer $name\"" "data = @$T/$name" \
        "output = /dev/null" "write-out = \"%{http_code} $name $tokens\\n\"" next
    done
  done | sed '$d' >"$T/requests"
  start_bg all curl -sSZ --parallel-max 200 --parallel-immediate -K "$T/requests"
  local all=$BG_PID
  wait_for '[ "$(ctl requests --json | jq "[.requests[] | select(.worker == null)] | length")" -eq 120 ]'
  kill "$first"
  expect_exit "$all" 0 60
  [ "$(grep -c '^200 ' "$T/all.out")" -eq 120 ]
  # 2,800, 1,400 and 700 tokens: no tier has run out of requests yet.
  run -0 awk 'NR <= 56 {sum[$2] += $3}
    END {print sum["high"], sum["middle"], sum["low"]
      exit !(sum["high"] > 1.6 * sum["middle"] && sum["high"] < 2.4 * sum["middle"] &&
        sum["middle"] > 1.6 * sum["low"] && sum["middle"] < 2.4 * sum["low"])}' "$T/all.out"
}

@test "levels refuse tiers: best effort at 2, all but premium at 4" {
  key high 'tier = "premium"'
  key middle
  key low 'tier = "best_effort"'
  start_with_keys --slo-rate 0.001
  ctl level 2
  [ "$(state .level)" = 2 ]
  [ "$(ask low)" = 503 ]
  [ "$(jq -r '.error | [.code, .param] | join(" ")' "$T/answer")" = "capacity_shed best_effort" ]
  grep -qi '^retry-after: [1-9]' "$T/head"
  [ "$(ask middle)" = 200 ]
  grep -qi '^x-fo-level: 2' "$T/head"
  ctl level 4
  [ "$(ask middle)" = 503 ]
  [ "$(ask high)" = 200 ]
  ctl level auto
  [ "$(state .level)" = 0 ]
  [ "$(ask low)" = 200 ]
  run -64 ctl level 5
}

@test "salts by key and priorities by tier change no answer, and need keys" {
  key good
  printf 'salt-by-key = true\npriority-by-tier = true\n' >"$T/route.toml"
  start_with_keys --config "$T/route.toml"
  [ "$(ask good)" = 200 ]
  local text
  text=$(jq -r '.choices[0].text' "$T/answer")
  URL=$WORKER
  [ "$(ask good)" = 200 ]
  [ "$(jq -r '.choices[0].text' "$T/answer")" = "$text" ]
  local option
  for option in --salt-by-key --priority-by-tier; do
    ends_with 64 timeout 30 fo-route serve --worker http://127.0.0.1:1 "$option"
    [ "${stderr_lines[0]}" = "fo-route: error: $option needs --keys" ]
  done
}

@test "an invalid file of keys is 78, and names the line but no key" {
  local hash
  hash=$(printf secret | sha256sum | cut -d' ' -f1)
  refused() {
    printf '%s\n' "${@:2}" >"$T/keys.toml"
    ends_with 78 timeout 30 fo-route serve --listen 127.0.0.1:0 --worker http://127.0.0.1:1 \
      --keys "$T/keys.toml"
    [[ $stderr == "fo-route: error: read keys '$T/keys.toml': line $1"* ]] || { echo "$stderr"; return 1; }
  }
  refused 1 '[secret]'
  refused "1: expected a table" "$hash = 3"
  refused "2: tier: expected premium, standard or best_effort" "[$hash]" 'tier = "gold"'
  refused "2: expected a number from 1" "[$hash]" 'requests_per_minute = 0'
  refused "2: expected a number from 1" "[$hash]" 'tokens_per_minute = "7"'
  refused "2: models: expected a list of names" "[$hash]" 'models = "llama"'
  refused "3: unknown field 'teir'" "[$hash]" 'tier = "premium"' 'teir = "premium"'
  refused 1 'x = ='
  run -66 timeout 30 fo-route serve --worker http://127.0.0.1:1 --keys "$T/absent"
}
