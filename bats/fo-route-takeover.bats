#!/usr/bin/env bats
# fo-route: upgrades without a failed request, reloads, and starts without a registry.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for wait_for; tests are subshells
load test_helper
load route

setup() {
  fo_setup
  unset FO_ROUTE_ADMIN
  ADMIN=$T/fo/route.sock
  LAME_DUCK=1s
}

# start_engine NAME [OPTION...]: sets ENGINE to its URL.
start_engine() {
  start_oracle "$1" --model llama "${@:2}"
  ENGINE=$WORKER
}

# start_router NAME OPTION...: a router with this test's admin socket. Sets ROUTER.
start_router() {
  local name=$1
  shift
  : >"$T/$name.ready"
  start_bg "$name" fo-route serve --admin "$ADMIN" --lame-duck "$LAME_DUCK" --ready-fd 9 "$@" \
    9>"$T/$name.ready"
  ROUTER=$BG_PID
}
# is_ready NAME: the router serves, and has handed over nothing yet.
is_ready() { [ -s "$T/$1.ready" ]; }
# first_router OPTION...: starts router "first" on a free port. Sets ADDRESS to its address.
first_router() {
  start_router first --listen 127.0.0.1:0 "$@"
  FIRST=$ROUTER
  wait_for "is_ready first"
  ADDRESS=$(cat "$T/first.ready")
}

# ask [N]: sends N requests with key $KEY on one connection, and prints their HTTP statuses.
ask() {
  local i urls=()
  for ((i = 0; i < ${1:-1}; i++)); do urls+=(-o /dev/null "http://$ADDRESS/v1/completions"); done
  curl -sS -w '%{http_code}\n' -H 'content-type: application/json' \
    -H "authorization: Bearer ${KEY:-none}" -d '{"model":"llama","prompt":"a","max_tokens":4}' "${urls[@]}"
}
# can_answer: a request succeeds; before the first check of its engine, a router knows no model.
can_answer() { [ "$(ask 1)" = 200 ]; }

# start_load: three loops send requests until end_load: 1, 4 and 9 of them on each connection.
# Their statuses and curl's errors are in $T/load*.codes.
load_with() {
  until [ -e "$T/enough" ]; do ask "$2" || echo "curl: $?"; done >"$T/$1.codes" 2>&1
}
start_load() {
  LOAD=()
  local i
  for i in 1 2 3; do
    load_with "load$i" $((i * i)) 3>&- &
    LOAD+=($!)
  done
  for i in 1 2 3; do wait_for "grep -q 200 $T/load$i.codes"; done
}
# end_load: fails unless every request was answered with 200.
end_load() {
  touch "$T/enough"
  local pid
  for pid in "${LOAD[@]}"; do wait "$pid"; done
  if grep -vx 200 "$T"/load*.codes; then return 1; fi
  [ "$(cat "$T"/load*.codes | wc -l)" -gt 20 ]
}
# more_load: waits until each loop has sent further requests.
more_load() {
  local i
  for i in 1 2 3; do
    local before
    before=$(wc -l <"$T/load$i.codes")
    wait_for "[ \$(wc -l <$T/load$i.codes) -gt $((before + i * i)) ]"
  done
}

# bats test_tags=slow
@test "takeovers fail no request, and streams go on in the router where they began" {
  start_engine engine --gap 20ms
  first_router --worker "$ENGINE" --drain 60s
  wait_for can_answer
  start_load
  curl -sSN -H 'content-type: application/json' -d '{"model":"llama","prompt":"a","max_tokens":200,
    "ignore_eos":true,"stream":true}' "http://$ADDRESS/v1/completions" >"$T/stream" 2>&1 3>&- &
  local stream=$!
  wait_for "grep -q ^data: $T/stream"
  local before=$FIRST i
  for i in 1 2 3; do
    start_router "next$i" --listen "$ADDRESS" --worker "$ENGINE" --takeover
    wait_for "is_ready next$i"
    [ "$(cat "$T/next$i.ready")" = "$ADDRESS" ]
    more_load
    if [ "$i" -gt 1 ]; then
      expect_exit "$before" 0
    fi
    before=$ROUTER
  done
  end_load
  wait "$stream"
  grep -qx 'data: \[DONE\]' "$T/stream"
  [ "$(grep -c '"text"' "$T/stream")" -ge 200 ]
  expect_exit "$FIRST" 0
  run fo-route ctl --admin "$ADMIN" state
  [ "$status" -eq 0 ]
  terminate "$ROUTER"
  [ ! -e "$ADMIN" ] && [ ! -e "$ADMIN.next" ]
}

@test "a takeover keeps what an operator has set" {
  start_engine a
  local a=$ENGINE
  start_engine b
  local workers=(--worker "a=$a" --worker "b=$ENGINE")
  first_router "${workers[@]}"
  wait_for can_answer
  ctl() { fo-route ctl --admin "$ADMIN" "$@"; }
  ctl drain a
  ctl weight llama '' 0.5
  ctl level 2
  local i
  for i in 1 2; do
    start_router "next$i" --listen "$ADDRESS" --takeover "${workers[@]}"
    wait_for "is_ready next$i"
    [ "$(ctl state --json | jq -c '[.level, [.workers[].life]]')" = '[2,["draining","ready"]]' ]
    [ "$(curl -sS --unix-socket "$ADMIN" http://router/settings)" = \
      '{"drained":["a"],"level":2,"poison":{},"responses":[],"version":1,"weights":{"llama":{"":0.5}}}' ]
  done
  # What is set back is not handed over either.
  ctl undrain a
  ctl level auto
  start_router last --listen "$ADDRESS" --takeover "${workers[@]}"
  wait_for "is_ready last"
  [ "$(ctl state --json | jq -c '[.level, [.workers[].life]]')" = '[0,["ready","ready"]]' ]
  can_answer
  run -1 grep -h 'not taken over' "$T"/*.err
}

# hold: queries the settings as the next router does. Sets HOLD.
hold() {
  start_bg hold curl -sSN --unix-socket "$ADMIN" 'http://router/settings?hold=1'
  HOLD=$BG_PID
  wait_for "grep -q '\"drained\"' $T/hold.out"
}

@test "a change in the middle of a takeover reaches the next router" {
  start_engine engine
  first_router --worker "a=$ENGINE"
  wait_for can_answer
  hold
  start_bg change timeout 60 fo-route ctl --admin "$ADMIN" --timeout 50s level 3
  local change=$BG_PID
  wait_for "grep -q 'another router is taking over; trying again' $T/change.err"
  start_router next --listen "$ADDRESS" --takeover --worker "a=$ENGINE"
  wait_exit "$change"
  [ "$status" -eq 0 ]
  wait_for "is_ready next"
  [ "$(fo-route ctl --admin "$ADMIN" state --json | jq .level)" = 3 ]
  wait_exit "$HOLD"
  [ "$(cat "$T/hold.out")" = '{"drained":[],"level":null,"poison":{},"responses":[],"version":1,"weights":{}}' ]
}

@test "a takeover that ends before it has begun to serve prevents no changes" {
  start_engine engine
  first_router --worker "a=$ENGINE"
  wait_for can_answer
  hold
  ends_with 75 fo-route ctl --admin "$ADMIN" --timeout 2s drain a
  [[ $stderr == *"error: "*"another router is taking over" ]]
  [ "$(fo-route ctl --admin "$ADMIN" state --json | jq -c '[.level, .workers[].life]')" = '[0,"ready"]' ]
  kill -KILL "$HOLD"
  fo-route ctl --admin "$ADMIN" --timeout 50s level 2
  [ "$(fo-route ctl --admin "$ADMIN" state --json | jq .level)" = 2 ]
}

@test "a connection that stays open is closed with an answer" {
  start_engine engine
  LAME_DUCK=60s
  first_router --worker "$ENGINE"
  wait_for can_answer
  exec 5<>"/dev/tcp/${ADDRESS%:*}/${ADDRESS#*:}"
  LAME_DUCK=1s
  start_router next --listen "$ADDRESS" --worker "$ENGINE" --takeover
  wait_for "grep -q 'another router has taken over' $T/first.err"
  printf 'GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n' >&5
  timeout 30 cat <&5 >"$T/answer" 3>&-
  exec 5>&-
  grep -q '^HTTP/1.1 200' "$T/answer"
  grep -qi '^connection: close' "$T/answer"
  # With no connection left, it does not wait.
  expect_exit "$FIRST" 0
}

@test "two takeovers at once happen one after the other" {
  start_engine engine
  first_router --worker "$ENGINE"
  wait_for can_answer
  start_load
  start_router a --listen "$ADDRESS" --worker "$ENGINE" --takeover
  local a=$ROUTER
  start_router b --listen "$ADDRESS" --worker "$ENGINE" --takeover
  local b=$ROUTER
  wait_for "is_ready a && is_ready b"
  expect_exit "$FIRST" 0
  wait_for "[ \$(grep -l 'another router has taken over' $T/a.err $T/b.err | wc -l) = 1 ]"
  more_load
  end_load
  if grep -q 'another router has taken over' "$T/a.err"; then wait_exit "$a"; else wait_exit "$b"; fi
  [ "$status" -eq 0 ]
  can_answer
}

# half_taken: a second router has received the sockets, and waits for a registry that it cannot
# reach before it tells the first one. Sets NEXT.
half_taken() {
  start_engine engine
  first_router --worker "$ENGINE"
  wait_for can_answer
  start_load
  pick_port
  start_router next --listen "$ADDRESS" --worker "$ENGINE" --takeover \
    --registry "etcd:http://127.0.0.1:$PORT/fleet"
  NEXT=$ROUTER
  wait_for "grep -q 'received the sockets' $T/next.err"
}

@test "the next router is killed before it serves: nothing has happened" {
  half_taken
  kill_now "$NEXT"
  more_load
  end_load
  fo-route ctl --admin "$ADMIN" state
  # Another one takes over.
  start_router third --listen "$ADDRESS" --worker "$ENGINE" --takeover
  wait_for "is_ready third"
  expect_exit "$FIRST" 0
}

# bats test_tags=slow
@test "the running router is killed when the next one has its sockets: no connection is refused" {
  half_taken
  touch "$T/enough"
  wait "${LOAD[@]}"
  rm "$T/enough"
  kill_now "$FIRST"
  # It waits in the queue of the socket.
  can_answer
  wait_for "is_ready next"
  fo-route ctl --admin "$ADMIN" state
  start_load
  more_load
  end_load
}

# bats test_tags=slow
@test "the running router ends when the next one has its sockets" {
  half_taken
  terminate "$FIRST"
  wait_for "is_ready next"
  more_load
  end_load
  fo-route ctl --admin "$ADMIN" state
}

@test "a router that finishes its requests hands its place over" {
  start_engine engine
  pick_port
  local metrics=127.0.0.1:$PORT
  first_router --worker "$ENGINE" --drain 1h --metrics "$metrics" --allow-field oracle
  wait_for can_answer
  start_bg stream curl -sSN -H 'content-type: application/json' -d '{"model":"llama","prompt":"a",
    "max_tokens":200,"ignore_eos":true,"stream":true,"oracle":{"gap":"1s"}}' "http://$ADDRESS/v1/completions"
  local stream=$BG_PID
  wait_for "grep -q ^data: $T/stream.out"
  kill -TERM "$FIRST"
  wait_for "! curl -sS http://$ADDRESS/live"
  start_router next --listen "$ADDRESS" --worker "$ENGINE" --metrics "$metrics" --takeover
  wait_for "is_ready next"
  wait_for "grep -q 'another router has taken over' $T/first.err"
  [ "$(ask 1)" = 200 ]
  curl -sSf "http://$metrics/metrics" >"$T/metrics"
  fo-route ctl --admin "$ADMIN" state
  kill -0 "$stream"
  kill_now "$stream"
  expect_exit "$FIRST" 0
}

@test "an invalid next router changes nothing" {
  start_engine engine
  first_router --worker "$ENGINE"
  wait_for can_answer
  start_load
  printf 'no certificate\n' >"$T/cert.pem"
  observe timeout 30 fo-route serve --admin "$ADMIN" --listen "$ADDRESS" --takeover \
    --worker "$ENGINE" --tls-cert "$T/cert.pem" --tls-key "$T/cert.pem" 3>&-
  [ "$status" -ne 0 ]
  [[ $stderr == *"$T/cert.pem"* ]]
  more_load
  end_load
}

@test "a takeover without a running router is a start" {
  start_engine engine
  first_router --worker "$ENGINE" --takeover
  wait_for can_answer
  kill_now "$FIRST"
  start_router next --listen "$ADDRESS" --worker "$ENGINE" --takeover
  wait_for "is_ready next"
  wait_for can_answer
  observe timeout 30 fo-route serve --admin "$ADMIN" --listen 127.0.0.1:0 \
    --worker "$ENGINE" 3>&-
  [ "$status" -eq 73 ]
  [[ $stderr == *"another server uses it"* ]]
}

# --- a start without a registry -------------------------------------------------------------------

# start_worker: registers the engine in $T/registry.
start_worker() {
  start_bg put fo-reg put --registry "dir:$T/registry" --endpoint llama/worker/generate \
    --url "$ENGINE" --model llama
  wait_for "fo-reg ls --registry dir:$T/registry --json | grep -q llama"
}
REGISTERED=(--namespace llama)

@test "the last listing is saved, and a start without a registry begins with it" {
  start_engine engine
  start_worker
  first_router --registry "dir:$T/registry" "${REGISTERED[@]}" --state "$T/state"
  wait_for can_answer
  wait_for "grep -q llama $T/state"
  [ "$(stat -c %a "$T/state")" = 600 ]
  kill_now "$FIRST"
  pick_port
  local unreachable=etcd:http://127.0.0.1:$PORT/fleet
  start_router next --listen "$ADDRESS" --registry "$unreachable" "${REGISTERED[@]}" --state "$T/state"
  wait_for can_answer
  fo-route ctl --admin "$ADMIN" state --json | jq -e '.workers[0].stale'
  kill_now "$ROUTER"
  # A truncated file is one line, and no reason not to start.
  truncate -s 10 "$T/state"
  start_router last --listen "$ADDRESS" --registry "$unreachable" "${REGISTERED[@]}" --state "$T/state"
  wait_for "is_ready last"
  [ "$(grep -c 'state file' "$T/last.err")" -eq 1 ]
}

# --- routers that share workers -------------------------------------------------------------------

@test "routers of one registry share the slots of its workers until one ends" {
  start_engine engine
  start_worker
  first_router --registry "dir:$T/registry" "${REGISTERED[@]}" --slots 8
  slots() { fo-route ctl --admin "$1" state --json | jq -e ".workers[0].slots == $2"; }
  wait_for "slots $ADMIN 8"
  fo-reg ls --registry "dir:$T/registry" --json routers/ | grep -F "$ADMIN"
  local first_admin=$ADMIN
  ADMIN=$T/fo/other.sock
  start_router other --listen 127.0.0.1:0 --registry "dir:$T/registry" "${REGISTERED[@]}" --slots 8
  wait_for "slots $ADMIN 4 && slots $first_admin 4"
  terminate "$ROUTER"
  wait_for "slots $first_admin 8"
  ADMIN=$T/fo/third.sock
  start_router third --listen 127.0.0.1:0 --registry "dir:$T/registry" "${REGISTERED[@]}" --slots 8 \
    --routers 4
  wait_for "slots $ADMIN 2"
}

# --- reloads --------------------------------------------------------------------------------------

@test "a reload changes the workers, and an invalid configuration changes nothing" {
  start_engine a
  local a=$ENGINE
  start_engine b
  local b=$ENGINE
  printf 'worker = ["a=%s"]\n' "$a" >"$T/route.toml"
  first_router --config "$T/route.toml"
  wait_for can_answer
  names() { fo-route ctl --admin "$ADMIN" state --json | jq -r '[.workers[].name] | sort | join(" ")'; }
  [ "$(names)" = a ]
  printf 'worker = ["a=%s", "b=%s"]\n' "$a" "$b" >"$T/route.toml"
  fo-route ctl --admin "$ADMIN" reload
  [ "$(names)" = "a b" ]
  local invalid
  echo rubbish >"$T/rubbish"
  for invalid in "worker = [" "worker-ca = \"$T/rubbish\"" "worker-ca = \"$T/absent\"" 'worker = ["b=http://127.0.0.1:1", "c=ftp://x"]' '' \
    "worker = [\"a=$b\"]" "worker = [\"c=$a\", \"c=$a\"]"; do
    # shellcheck disable=SC2059  # it has the escapes
    printf "$invalid" >"$T/route.toml"
    observe fo-route ctl --admin "$ADMIN" reload
    [ "$status" -eq 78 ] || { echo "$invalid: $status $stderr"; return 1; }
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
    [ "$(names)" = "a b" ]
  done
  local before
  before=$(wc -l <"$T/first.err")
  kill -HUP "$FIRST"
  wait_for "grep -q 'configuration: not reloaded: ' $T/first.err"
  [ "$(wc -l <"$T/first.err")" -eq $((before + 1)) ]
  [ "$(names)" = "a b" ]
  printf 'worker = ["b=%s"]\n' "$b" >"$T/route.toml"
  kill -HUP "$FIRST"
  wait_for '[ "$(names)" = b ]'
  wait_for can_answer
}

@test "a reload changes the keys, and an invalid file changes nothing" {
  start_engine engine
  keys_of() { printf '[%s]\n' "$(printf %s "$1" | sha256sum | cut -d ' ' -f 1)"; }
  keys_of old >"$T/keys"
  first_router --worker "$ENGINE" --keys "$T/keys"
  KEY=old
  wait_for can_answer
  keys_of new >"$T/keys"
  kill -HUP "$FIRST"
  wait_for '[ "$(ask 1)" = 401 ]'
  KEY=new
  can_answer
  echo '[new]' >"$T/keys"
  observe fo-route ctl --admin "$ADMIN" reload
  [ "$status" -eq 78 ]
  [[ $stderr == *"$T/keys"* ]]
  can_answer
}

# stream_for TOKENS: a stream in the background; its pid is in STREAM, its answer in $T/stream.out.
stream_for() {
  start_bg stream curl -sSN --max-time 60 "http://$ADDRESS/v1/completions" -d \
    '{"model":"llama","prompt":"a","ignore_eos":true,"stream":true,"max_tokens":'"$1"',"oracle":{"gap":"20ms"}}'
  STREAM=$BG_PID
  wait_for "grep -q '\"text\"' $T/stream.out"
}
# status_of ARGUMENT...: the status of curl's request.
status_of() { curl -sS -o "$T/answer" -w '%{http_code}' "$@"; }

@test "a reload applies the other options, and no request fails" {
  start_engine a
  local body='{"model":"llama","prompt":"a","max_tokens":4}' worker="worker = [\"a=$ENGINE\"]"
  echo "$worker" >"$T/route.toml"
  first_router --config "$T/route.toml"
  wait_for can_answer
  stream_for 100
  start_load
  [ "$(status_of "http://$ADDRESS/metrics")" = 404 ]
  printf '%s\n' "$worker" 'allow-path = ["/metrics"]' 'allow-field = ["priority"]' 'slots = 3' \
    'max-body = "100B"' 'choice = "least"' 'breaker = "classic"' 'quiet = true' 'queue-timeout = "7s"' \
    'no-resume = true' 'client-timeout = "5s"' 'drain = "9s"' >"$T/route.toml"
  kill -HUP "$FIRST"
  wait_for '[ "$(status_of "http://$ADDRESS/metrics")" = 200 ]'
  # The line that says so is for a router that is not quiet.
  run -1 grep 'configuration: reloaded' "$T/first.err"
  [ "$(status_of "http://$ADDRESS/v1/completions" -d "${body%\}},\"priority\":1}")" = 200 ]
  [ "$(status_of "http://$ADDRESS/v1/completions" -d "${body%\}},\"user\":\"$(printf 'u%.0s' {1..80})\"}")" = 413 ]
  [ "$(fo-route ctl --admin "$ADMIN" state --json | jq '.workers[0].slots')" = 3 ]
  more_load
  # Back to the defaults.
  echo "$worker" >"$T/route.toml"
  fo-route ctl --admin "$ADMIN" reload
  grep 'configuration: reloaded' "$T/first.err"
  [ "$(status_of "http://$ADDRESS/metrics")" = 404 ]
  [ "$(status_of "http://$ADDRESS/v1/completions" -d "${body%\}},\"priority\":1}")" = 400 ]
  [ "$(fo-route ctl --admin "$ADMIN" state --json | jq '.workers[0].slots')" = 256 ]
  end_load
  wait_exit "$STREAM"
  [ "$status" -eq 0 ]
  grep -qF '[DONE]' "$T/stream.out"
}

@test "a reload that changes what a running router keeps is refused as a whole" {
  start_engine a
  local always=("worker = [\"a=$ENGINE\"]" 'listen = "127.0.0.1:0"') option
  printf '%s\n' "${always[@]}" >"$T/route.toml"
  start_router first --config "$T/route.toml"
  wait_for "is_ready first"
  ADDRESS=$(cat "$T/first.ready")
  wait_for can_answer
  for option in 'listen = "127.0.0.1:1"' 'metrics = "127.0.0.1:0"' 'metrics-groups = true' \
    "registry = \"dir:$T/registry\"" $'tls-cert = "a"\ntls-key = "b"'; do
    printf '%s\n' "${always[0]}" 'allow-path = ["/metrics"]' "$option" >"$T/route.toml"
    if [[ $option != listen* ]]; then echo "${always[1]}" >>"$T/route.toml"; fi
    observe fo-route ctl --admin "$ADMIN" reload
    [ "$status" -eq 78 ] || { echo "$option: $status"; return 1; }
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
    [[ $stderr == *": --${option%% *}: a reload can't change it; start a second router with --takeover" ]]
    [ "$(status_of "http://$ADDRESS/metrics")" = 404 ]
  done
  can_answer
  printf '%s\n' "${always[@]}" 'allow-path = ["/metrics"]' 'takeover = true' >"$T/route.toml"
  fo-route ctl --admin "$ADMIN" reload
  [ "$(status_of "http://$ADDRESS/metrics")" = 200 ]
}
