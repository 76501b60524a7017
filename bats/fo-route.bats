#!/usr/bin/env bats
# fo-route: the behaviour on its page, with workers of fo-oracle.

# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154  # text for other shells; tests are subshells
load test_helper
load route
load tls

setup() { setup_route; }

# start_two [OPTION]...: starts the workers a and b, and a router before them.
start_two() {
  start_oracle a
  local first=$WORKER
  start_oracle b
  start_router --worker "a=$first" --worker "b=$WORKER" "$@"
  await_healthy 2
}

serve() { timeout 30 fo-route serve --listen 127.0.0.1:0 "$@" 3>&-; }

# post PATH BODY [OPTION]...: prints the answer; the status is in $T/status, the headers in $T/head.
post() {
  curl -sS --max-time 60 -D "$T/head" -o "$T/body" -w '%{http_code}' "$URL$1" -d "$2" "${@:3}" >"$T/status" 3>&-
  cat "$T/body"
}
# post_gives STATUS PATH BODY [OPTION]...: the request has this status.
post_gives() {
  post "${@:2}" >"$T/answer"
  [ "$(cat "$T/status")" = "$1" ] || { echo "status $(cat "$T/status") instead of $1"; cat "$T/answer"; return 1; }
}

# members [MEMBER]...: prints the body of a completion of 20 tokens, of $PROMPT if it is set, with
# these further members.
members() {
  printf '{"model":"oracle","prompt":"%s","max_tokens":20,"ignore_eos":true' "${PROMPT:-one two}"
  printf ',%s' "$@" | sed 's/^,$//'
  printf '}'
}

# start_stream MEMBER...: begins a stream in the background, and waits for its first token; its pid is
# in STREAM, what it has received in $T/stream.out.
start_stream() {
  start_bg stream curl -sSN --max-time 60 "$URL/v1/completions" -d "$(members '"stream":true' "$@")"
  STREAM=$BG_PID
  wait_for "grep -q '\"text\"' $T/stream.out"
}

# metric NAME URL: prints the value of one of an oracle's metrics.
metric() { curl -sSf "$2/metrics" | sed -n "s/^$1{[^}]*} //p"; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  local worker="--worker http://127.0.0.1:1"
  usage_errors fo-route "" "frob" "serve" "serve x" "serve $worker --listen x" "serve --worker x" \
    "serve --worker ftp://127.0.0.1" "serve --worker =http://127.0.0.1:1" "serve $worker $worker" \
    "serve $worker --slots 0" "serve $worker --prefill 0" "serve $worker --bandwidth x" "serve $worker --drain 5" "serve $worker --max-body 1X" \
    "serve $worker --overload-status 500" "serve $worker --allow-path sleep" "serve $worker --namespace A/b" \
    "serve $worker --tls-cert a" "serve $worker --tls-key a" "serve --registry x" "serve $worker --ready-fd 2" \
    "serve $worker --allow-workers x" "ctl" "ctl frob" "ctl state x" "ctl drain" "ctl drain a b" "ctl weight a b" \
    "ctl level" "ctl kill" "ctl state --timeout 5" "serve $worker --queue-timeout 0" \
    "serve $worker --first-token-timeout 0" "serve $worker --stream-timeout 0s" "serve $worker --answer-timeout 0" \
    "serve $worker --client-timeout 0" "serve $worker --bandwidth 0" "serve $worker --slo-rate 0" \
    "serve $worker --slo-rate nan"
  fails 64 "--pass-authorization: can't be combined with --worker-key" \
    serve --worker http://127.0.0.1:1 --pass-authorization --worker-key "$T/absent"
  fails 64 "URL 'ftp://127.0.0.1': *" serve --worker ftp://127.0.0.1
  fails 64 "worker 'http://127.0.0.1:1': appears twice" serve --worker http://127.0.0.1:1 --worker http://127.0.0.1:1
  fails 64 "expected --worker or --registry" serve
}

@test "a file that is missing is 66" {
  fails 66 "open '$T/absent': *" serve --worker http://127.0.0.1:1 --worker-key "$T/absent"
  fails 66 "* '$T/absent': *" serve --worker http://127.0.0.1:1 --worker-ca "$T/absent"
}

@test "a file without a key is 65" {
  echo >"$T/key"
  fails 65 "read '$T/key': no key" serve --worker http://127.0.0.1:1 --worker-key "$T/key"
}

@test "an address in use is 73" {
  start_oracle a
  fails 73 "listen on '${WORKER#http://}': Address already in use" \
    serve -q --worker "$WORKER" --listen "${WORKER#http://}"
}

# --- clients --------------------------------------------------------------------------------------

@test "two workers and nothing else: answers, streams, models" {
  start_two
  run -0 curl -sS "$URL/v1/models"
  [ "$(jq -r '.data[].id' <<<"$output")" = oracle ]
  run -0 curl -sS --head "$URL/v1/models"
  [[ "$output" == "HTTP/1.1 200"* ]]
  local text stream
  text=$(post /v1/completions "$(members)" | jq -r '.choices[0].text')
  [ "$(cat "$T/status")" = 200 ]
  [ -n "$text" ]
  stream=$(post /v1/completions "$(members '"stream":true')")
  [ "$(sed -n 's/^data: {/{/p' <<<"$stream" | jq -j '.choices[0].text')" = "$text" ]
  [ "$(tail -n 1 <<<"$stream")" = "data: [DONE]" ]
  post_gives 200 /v1/chat/completions '{"model":"oracle","messages":[{"role":"user","content":"Hi"}]}' \
    -H 'x-request-id: mine-1'
  # The client's id beside the router's own.
  grep -qi '^x-request-id: mine-1' "$T/head"
  grep -qiE '^x-fo-request-id: [0-9a-f]{24}' "$T/head"
  [ ! -s "$T/a.err" ]
}

@test "the client of OpenAI: chats, completions, embeddings, responses, tools, aborts, errors, failures" {
  need_types
  start_two
  run -0 "$FO_ROOT/tests/openai/check" "$URL" "http://$(sed 's/^ready //' "$T/a.out")" "$WORKER"
  [ "$output" = "" ]
  # Nothing is left of what the client has aborted.
  wait_for '[ "$(ctl requests --json | jq -c .requests)" = "[]" ]'
}

@test "a worker that starts later is used then" {
  pick_port
  start_router --worker "http://127.0.0.1:$PORT"
  # No model is known, and a client may try again.
  post_gives 503 /v1/completions "$(members)"
  grep -qi '^retry-after: ' "$T/head"
  start_bg a fo-oracle --port "$PORT"
  await_healthy 1
  post_gives 200 /v1/completions "$(members)"
}

@test "further paths and fields are forwarded on request" {
  start_two --allow-path /is_sleeping --allow-field priority
  run -0 curl -sS "$URL/is_sleeping"
  [ "$output" = '{"is_sleeping":false}' ]
  post_gives 200 /v1/completions "$(members '"priority":1')"
}

@test "a long body is 413" {
  start_two --max-body 1KiB
  post_gives 200 /v1/completions "$(members)"
  post_gives 413 /v1/completions "$(members "\"user\":\"$(printf '%01024d' 0)\"")"
}

@test "metrics that promtool accepts, and probes" {
  need_promtool
  pick_port
  start_two --metrics "127.0.0.1:$PORT"
  post_gives 200 /v1/completions "$(members)"
  curl -sSf "http://127.0.0.1:$PORT/metrics" >"$T/metrics"
  promtool check metrics <"$T/metrics"
  grep -qx 'fo_route_requests_total{model="oracle",code="200",tier="premium"} 1' "$T/metrics"
  # A series that nothing has happened to yet.
  grep -qx 'fo_route_requests_total{model="oracle",code="502",tier="best_effort"} 0' "$T/metrics"
  curl -sSf "http://127.0.0.1:$PORT/ready" "$URL/live" "$URL/ready"
  # Clients do not see metrics.
  post_gives 404 /metrics '' -X GET
}

# raw TEXT: sends it, and prints what the router post_gives until it closes the connection.
raw() {
  local address=${URL#http://}
  {
    printf '%b' "$1" >&7
    timeout 30 cat <&7
  } 7<>"/dev/tcp/${address/://}"
}

@test "requests that two servers may read differently are 400, and the connection ends" {
  local request name
  start_two
  local begin='POST /v1/completions HTTP/1.1\r\nHost: x\r\n' chunked='Transfer-Encoding: chunked\r\n'
  for request in "${begin}Content-Length: 2\r\n$chunked\r\n{}" "${begin}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" \
    "${begin}$chunked$chunked\r\n0\r\n\r\n" "${begin}X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}" \
    "${begin}Content-Length: 2\n\n{}" 'POST /v1/completions HTTP/1.1\nHost: x\n\n' \
    "${begin}Content-Length : 2\r\n\r\n{}" "${begin}Content-Length: +2\r\n\r\n{}" 'rubbish\r\n\r\n'; do
    run -0 raw "${request}GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    [[ ${lines[0]} == "HTTP/1.1 400 "* ]] || { echo "$request: $output"; return 1; }
    [ "$(grep -c '^HTTP/1.1' <<<"$output")" -eq 1 ]
  done
  name=$(printf 'x%09999d' 0)
  run -0 raw "${begin}$name: 1\r\n$name: 2\r\n\r\n"
  [[ ${lines[0]} == "HTTP/1.1 431 "* ]]
  post_gives 200 /v1/completions "$(members)"
}

# open_connections NAME N [TEXT]: opens N connections to the router, and sends TEXT on every second one.
open_connections() {
  start_bg "$1" bash -c '
    for ((i = 0; i < $2; ++i)); do
      exec {fd}<>"/dev/tcp/$1" || exit 1
      if [ $((i % 2)) -eq 0 ]; then printf "$3" >&$fd; fi
    done
    echo open
    exec sleep infinity' bash "$(sed 's|http://||; s|:|/|' <<<"$URL")" "$2" "${3:-}"
  wait_for "[ -s $T/$1.out ] || ! kill -0 $BG_PID"
  grep -q open "$T/$1.out"
}

@test "ten thousand idle connections stay open" {
  # A client may cost the router two descriptors. Root may raise the limit.
  ulimit -n 24000 2>"$T/limit" || ulimit -n "$(ulimit -Hn)"
  local count=10000
  if [ "$(ulimit -n)" -lt 24000 ]; then count=$((($(ulimit -n) - 4000) / 2)); fi
  [ "$count" -ge 4000 ] || skip_because files "the limit on open files is below 12000"
  start_two
  open_connections idle "$count"
  post_gives 200 /v1/completions "$(members)"
  wait_for "[ \$(ls /proc/$ROUTER/fd | wc -l) -gt $count ]"
}

@test "idle and slow connections leave files for clients, and for their workers" {
  ulimit -n 400
  start_two
  open_connections first 300 'POST /v1/compl'
  open_connections second 300 'POST /v1/compl'
  for _ in 1 2 3; do post_gives 200 /v1/completions "$(members)"; done
  run -1 grep 'out of rotation: ' "$T/router.err"
}

# --- workers that fail ----------------------------------------------------------------------------

# bats test_tags=slow
@test "a request whose worker fails before its first byte is answered by another" {
  local fault first url before is_streamed PROMPT
  # A long prompt goes to the worker that has had it before.
  PROMPT=$(printf '%0300d' 0)
  start_oracle a
  first=$WORKER
  start_oracle b
  for fault in stall@start reset@start cut@start half@start end@start error@start exit@start; do
    for url in "$first" "$WORKER"; do curl -sSf "$url/oracle" -d '{"fail":"none"}' >"$T/knobs"; done
    start_router --worker "$first" --worker "$WORKER" --first-token-timeout 200ms
    await_healthy 2
    before=$(metric oracle_requests_total "$first")
    post_gives 200 /v1/completions "$(members)"
    url=$first
    if [ "$(metric oracle_requests_total "$first")" = "$before" ]; then url=$WORKER; fi
    # A request whose kept connection is reset is sent once more on a new one.
    curl -sSf "$url/oracle" -d "{\"fail\":\"$fault\",\"fail_next\":2}" >"$T/knobs"
    case $fault in stall@start | half@start) is_streamed=true ;; *) is_streamed=false ;; esac
    post_gives 200 /v1/completions "$(members "\"stream\":$is_streamed")"
    if [ "$fault" != exit@start ]; then [ "$(metric oracle_faults_total "$url")" -ge 1 ]; fi
    # A worker that is slow once may be busy.
    if [ "$fault" != stall@start ]; then
      [ "$(state '[.workers[] | select(.health != "healthy" or (.reachable | not)).url] | join(" ")')" = "$url" ]
    fi
    kill_now "$ROUTER"
  done
}

@test "a stream goes on, token for token, when the process of its worker is killed" {
  start_oracle a
  local first=$WORKER pid=$ORACLE
  start_oracle b
  start_router --worker "a=$first" --worker "b=$WORKER" --choice round-robin
  await_healthy 2
  local body members=('"stream":true' '"stream_options":{"include_usage":true}')
  body=$(members "${members[@]}")
  curl -sS "$WORKER/v1/completions" -d "$body" >"$T/undisturbed"
  # All that is read of a stream, apart from its id and time, and how it is cut into events.
  local sum='[.[] | .choices[]?] as $all | {text: ([$all[].text] | join("")), finish: [$all[].finish_reason // empty],
    usage: [.[].usage // empty]}'
  # The first worker stops after some tokens, for one stream.
  curl -sSf "$first/oracle" -d '{"fail":"stall@7","fail_next":1}' >"$T/knobs"
  local stream
  for stream in 1 2; do
    start_bg "stream$stream" curl -sSN --max-time 60 "$URL/v1/completions" -d "$body"
  done
  wait_for '[ "$(metric oracle_faults_total '"$first"')" = 1 ]'
  kill_now "$pid"
  for stream in 1 2; do
    wait_for "tail -n 2 $T/stream$stream.out | grep -qF '[DONE]'"
    [ "$(sed -n 's/^data: {/{/p' "$T/stream$stream.out" | jq -sSc "$sum")" = \
      "$(sed -n 's/^data: {/{/p' "$T/undisturbed" | jq -sSc "$sum")" ]
  done
  [ "$(cat "$T"/stream[12].out | grep -cF ': fo-route: resumed 1')" = 1 ]
}

# ask_all_the_time N KIND: a client, until $T/enough exists; writes "good", "cut" for a stream that has
# ended with an error after its first token, or what else it received, to $T/client.N.
ask_all_the_time() {
  local more='"max_tokens":30' body
  if [ "$2" = stream ]; then more+=',"stream":true'; fi
  while [ ! -e "$T/enough" ]; do
    body=$(curl -sS --max-time 60 -w '\n%{http_code}' "$URL/v1/completions" -d "$(members "$more")" 2>&1)
    case $body in
      *'"worker_lost"'*'"delivered_tokens":'[1-9]*$'\n'200) echo cut ;;
      *'"finish_reason":"length"'*$'\n'200) echo good ;;
      *) printf 'bad: %s\n' "${body//$'\n'/ }" ;;
    esac
  done >"$T/client.$1" 3>&-
}

@test "no request fails before its first byte while workers are killed" {
  local -a oracles=() workers=() ports=()
  local n
  for n in 0 1 2; do
    start_oracle "worker$n" --gap 2ms
    oracles+=("$ORACLE")
    ports+=("${WORKER##*:}")
    workers+=(--worker "$WORKER")
  done
  start_router "${workers[@]}"
  await_healthy 3
  for n in 0 1 2 3; do
    ask_all_the_time "$n" "$([ $((n % 2)) -eq 0 ] || echo stream)" &
    clients[n]=$!
  done
  for n in 0 1 2 0; do
    wait_for "[ \$(cat $T/client.* | wc -l) -ge $((n * 10 + 10)) ]"
    kill_now "${oracles[n]}"
    wait_for '[ "$(state ".workers | map(select(.reachable)) | length")" = 2 ]'
    start_bg "again$n" fo-oracle --port "${ports[n]}" --gap 2ms
    oracles[n]=$BG_PID
    wait_for '[ "$(state ".workers | map(select(.reachable)) | length")" = 3 ]'
  done
  touch "$T/enough"
  wait "${clients[@]}"
  run -1 grep -hvxE 'good|cut' "$T"/client.*
  [ "$(grep -hc good "$T"/client.* | paste -sd +)" != 0+0+0+0 ]
  # A whole answer is never cut.
  run -1 grep -h cut "$T/client.0" "$T/client.2"
}

@test "TLS on both sides, and the engines' key" {
  start_oracle a
  local plain=$WORKER
  make_ca ca
  make_cert server ca 2
  cat "$T/server.crt" "$T/server.key" >"$T/server.pem"
  # The worker's TLS, and a record of what it is sent.
  pick_port
  start_bg tls socat -v "OPENSSL-LISTEN:$PORT,bind=127.0.0.1,fork,reuseaddr,cert=$T/server.pem,verify=0" \
    "TCP:${plain#http://}"
  echo secret >"$T/key"
  start_router --worker "https://127.0.0.1:$PORT" --worker-ca "$T/ca.crt" --worker-key "$T/key" \
    --tls-cert "$T/server.crt" --tls-key "$T/server.key"
  await_healthy 1
  URL=${URL/http:/https:}
  post_gives 200 /v1/completions "$(members '"stream":true')" --cacert "$T/ca.crt" -H 'Authorization: Bearer mine'
  grep -qi '^authorization: Bearer secret' "$T/tls.err"
  run -1 grep -i 'bearer mine' "$T/tls.err"
  run -60 curl -sS "$URL/v1/models"
}

@test "a worker whose certificate is not trusted is not used" {
  start_oracle a
  make_ca ca
  make_ca other
  make_cert server ca 2
  cat "$T/server.crt" "$T/server.key" >"$T/server.pem"
  pick_port
  start_bg tls socat "OPENSSL-LISTEN:$PORT,bind=127.0.0.1,fork,cert=$T/server.pem,verify=0" "TCP:${WORKER#http://}"
  wait_for "(: </dev/tcp/127.0.0.1/$PORT)"
  start_router --worker "https://127.0.0.1:$PORT" --worker-ca "$T/other.crt"
  wait_for "grep -q certificate $T/router.err"
  [ "$(state .healthy)" -eq 0 ]
}

# --- ctl ------------------------------------------------------------------------------------------

@test "ctl state and requests, as text and as JSON" {
  start_two
  run -0 ctl state
  [[ ${lines[0]} == name*url ]]
  [[ ${lines[1]} == a\ *oracle*ready*yes*healthy*http://127.0.0.1:* ]]
  [ "$(state '[.version, .total, .healthy, .level]')" = '[1,2,2,0]' ]
  start_stream '"oracle":{"fail":"stall@2"}'
  run -0 ctl requests
  [ "${#lines[@]}" -eq 2 ]
  run -0 ctl requests --json
  # Sizes and ages, and no text.
  jq -e '.requests[0] | .model == "oracle" and .attempts == 1 and .sent_bytes > 0 and .age_s > 0' <<<"$output"
  [[ $output != *"one two"* ]]
  [ "$(state '[.workers[].requests] | add')" -eq 1 ]
}

@test "ctl drain: no new requests for a worker, and its streams go on; undrain" {
  start_two
  start_stream '"max_tokens":100' '"oracle":{"gap":"20ms"}'
  local busy idle
  busy=$(state '.workers[] | select(.requests == 1).id')
  idle=$(state '.workers[] | select(.requests == 0).id')
  ctl drain "$busy"
  [ "$(state ".workers[] | select(.id == \"$busy\").life")" = draining ]
  for _ in 1 2 3 4; do post_gives 200 /v1/completions "$(members)"; done
  ctl drain "$idle"
  # Both are drained.
  post_gives 504 /v1/completions "$(members)" -H 'x-request-timeout: 1'
  # Without any worker, requests are refused for a moment longer.
  ctl undrain "$idle"
  wait_for 'post_gives 200 /v1/completions "$(members)"'
  expect_exit "$STREAM" 0
  [ "$(tail -n 2 "$T/stream.out" | head -n 1)" = "data: [DONE]" ]
  fails 1 "worker 'absent': unknown" ctl drain absent
  run -1 ctl undrain absent
}

@test "ctl kill ends a request" {
  start_two
  start_stream '"oracle":{"fail":"stall@2"}'
  local id
  id=$(ctl requests --json | jq -r '.requests[0].id')
  ctl kill "$id"
  wait_exit "$STREAM"
  grep -q request_killed "$T/stream.out"
  fails 1 "request '$id': unknown" ctl kill "$id"
}

@test "ctl weight, level and reload" {
  start_two
  ctl weight oracle '' 2
  run -1 ctl weight nothing '' 2
  fails 64 "control the router at '*': weight '-1': expected 0 to 1000000" ctl weight oracle '' -1
  fails 64 "control the router at '*': level '9': expected auto or 0 to 4" ctl level 9
  ctl level 2
  ctl level auto
  ctl reload
}

@test "ctl without a router is 69, and with another server 76" {
  fails 69 "*'$T/absent': No such file or directory" ctl state --admin "$T/absent"
  start_bg other socat "UNIX-LISTEN:$T/other,fork" "SYSTEM:head -n 1 >/dev/null; echo rubbish; echo"
  wait_for "[ -S $T/other ]"
  fails 76 "*$T/other:*" ctl state --admin "$T/other"
}

@test "ctl to a full stdout is 74" {
  start_two
  ends_with 74 sh -c 'fo-route ctl state >/dev/full'
}

@test "the admin socket is the user's own, and only one router's" {
  start_two
  [ "$(stat -c '%a %F' "$T/route/route.sock")" = '600 socket' ]
  [ "$(stat -c %a "$T/route")" = 700 ]
  fails 73 "*'$T/route/route.sock'*" serve --worker "$WORKER"
  [ "$(state .healthy)" -eq 2 ]
  kill_now "$ROUTER"
  # A socket that a killed router has left is replaced.
  start_router --worker "$WORKER"
  await_healthy 1
  mkdir -m 777 "$T/shared"
  fails 77 "use folder '$T/shared': other users may write to it" serve --worker "$WORKER" --admin "$T/shared/s"
}

# --- the end --------------------------------------------------------------------------------------

@test "SIGTERM lets a stream finish" {
  start_two
  start_stream '"max_tokens":50' '"oracle":{"gap":"20ms"}'
  terminate "$ROUTER"
  expect_exit "$STREAM" 0
  grep -qF '[DONE]' "$T/stream.out"
  [ ! -e "$T/route/route.sock" ]
}

@test "SIGTERM is seen at /ready while connections are accepted" {
  start_two --lame-duck 1h
  curl -sSf "$URL/ready"
  kill -TERM "$ROUTER"
  wait_for '[ "$(curl -sS -o /dev/null -w "%{http_code}" "$URL/ready")" = 503 ]'
  post_gives 200 /v1/completions "$(members)"
  grep -qi '^connection: close' "$T/head"
}

@test "SIGTERM ends the router when --drain is over, and a second one at once: 75" {
  start_two --drain 100ms
  start_stream '"oracle":{"fail":"stall@2"}'
  terminate "$ROUTER" 75
  start_router --worker "$WORKER" --drain 1h
  await_healthy 1
  start_stream '"oracle":{"fail":"stall@2"}'
  kill -TERM "$ROUTER"
  wait_for "! curl -sS $URL/v1/models"
  terminate "$ROUTER" 75
}

@test "a second SIGTERM aborts no request if all clients are idle: 0" {
  start_two --lame-duck 1h
  local address=${URL#http://} line
  exec 7<>"/dev/tcp/${address/://}"
  printf 'GET /live HTTP/1.1\r\nHost: x\r\n\r\n' >&7
  read -r -t 30 line <&7
  [[ $line == 'HTTP/1.1 200'* ]]
  kill -TERM "$ROUTER"
  wait_for '[ "$(curl -sS -o /dev/null -w "%{http_code}" "$URL/ready")" = 503 ]'
  terminate "$ROUTER"
  exec 7>&-
}

# --- a registry -----------------------------------------------------------------------------------

ENDPOINT=oracle-0123456789abcdef/worker/generate

use_dir() {
  mkdir -m 700 "$T/registry"
  export FO_REGISTRY=dir:$T/registry
}

# register NAME [OPTION]...: registers WORKER. Its process is in PUT, its id in ID.
register() {
  start_bg "$1" fo-reg put --endpoint "$ENDPOINT" --url "$WORKER" --model oracle "${@:2}"
  PUT=$BG_PID
  wait_for "[ -s $T/$1.out ]"
  ID=$(cat "$T/$1.out")
}

@test "workers of a registry appear, are drained, and leave" {
  use_dir
  start_oracle a
  register worker-a
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*'
  await_healthy 1
  local first=$PUT
  start_oracle b
  register worker-b
  await_healthy 2
  [ "$(state '[.workers[].url] | length')" -eq 2 ]
  fo-reg drain "$ID"
  await_healthy 1
  [ "$(state ".workers[] | select(.id == \"$ID\").life")" = draining ]
  fo-reg undrain "$ID"
  await_healthy 2
  # Another namespace is not this router's.
  start_bg other fo-reg put --endpoint other-0123456789abcdef/worker/generate --url "$WORKER" --model oracle
  wait_for "[ -s $T/other.out ]"
  kill "$first"
  await_healthy 1
  [ "$(state .total)" -eq 1 ]
  post_gives 200 /v1/completions "$(members)"
}

# bats test_tags=slow
@test "a worker whose record vanishes is used as long as it answers" {
  use_dir
  start_oracle a
  register worker-a
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*'
  await_healthy 1
  kill -STOP "$PUT"
  rm -r "$T/registry"
  wait_for '[ "$(state ".workers[0].stale")" = true ]'
  post_gives 200 /v1/completions "$(members)"
  kill "$ORACLE"
  wait_exit "$ORACLE"
  wait_for '[ "$(state .total)" -eq 0 ]'
  kill -CONT "$PUT"
}

# verdict HEALTH WEIGHT EXPIRES [WRITER]: writes a verdict on worker $ID; EXPIRES is JSON.
verdict() {
  printf '{"version":1,"id":"%s","health":"%s","weight":%s,"reason":"by hand","evidence":null,
    "since":"2026-01-01T00:00:00.000Z","expires":%s}' "$ID" "$1" "$2" "$3" |
    fo-reg put "verdicts/$ID/${4:-c1}"
}
# after SECONDS: prints this time from now, as JSON.
after() { date -u -d "now + $1 seconds" '+"%Y-%m-%dT%H:%M:%S.%3NZ"'; }
# verdict_is STATE: the verdict on worker $ID, as the router sees it.
verdict_is() { [ "$(state ".workers[] | select(.id == \"$ID\").verdict")" = "$1" ]; }

# set_weight ADDRESS: prints the weight of the set without a card, as the metrics at ADDRESS say it.
set_weight() { curl -sS "http://$1/metrics" | sed -n 's/^fo_route_set_weight{model="oracle",card=""} //p'; }

@test "ctl weight holds for all routers of the registry, and the next ones" {
  use_dir
  start_oracle a
  register worker-a
  local options=(--registry "$FO_REGISTRY" --namespace 'oracle-*')
  pick_port
  start_router "${options[@]}" --metrics "127.0.0.1:$PORT" --admin "$T/other/route.sock"
  local first=$ROUTER
  start_router "${options[@]}"
  await_healthy 1
  ctl weight oracle '' 3
  [ "$(fo-reg get weights/oracle)" = '{"":3.0}' ]
  wait_for "[ \"\$(set_weight 127.0.0.1:$PORT)\" = 3 ]"
  # The weight of a set that this router does not know stays in the record.
  echo '{"sha256:ab":2,"":3}' | fo-reg put weights/oracle
  ctl weight oracle '' 0.5
  [ "$(fo-reg get weights/oracle)" = '{"":0.5,"sha256:ab":2}' ]
  run -1 ctl weight oracle other 1
  kill -KILL "$first"
  wait_exit "$first"
  start_router "${options[@]}" --metrics "127.0.0.1:$PORT" --admin "$T/other/route.sock"
  wait_for "[ \"\$(set_weight 127.0.0.1:$PORT)\" = 0.5 ]"
}

@test "ctl weight changes nothing while the registry is unreachable" {
  start_oracle a
  start_router --worker "$WORKER" --registry etcd:http://127.0.0.1:1/fleet
  await_healthy 1
  fails 75 "control the router at '*': *127.0.0.1:1*" ctl -q --timeout 500ms weight oracle '' 0
  post_gives 200 /v1/completions "$(members)"
  [ "$(ctl state --json | jq .total)" -eq 1 ]
}

@test "--state-registry: weights and verdicts have their own registry if that of the workers is read-only" {
  use_dir
  start_oracle a
  start_router --registry "static:$WORKER" --state-registry "$FO_REGISTRY"
  await_healthy 1
  ctl weight oracle '' 2
  [ "$(fo-reg get weights/oracle)" = '{"":2.0}' ]
  ID=$(state '.workers[0].id')
  verdict convicted 0 null
  wait_for 'verdict_is convicted'
}

@test "a convicted worker gets no request until its conviction is removed" {
  use_dir
  start_oracle a
  register worker-a
  local other=$ID
  start_oracle b
  register worker-b
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*' --choice round-robin
  await_healthy 2
  verdict convicted 0 null
  wait_for 'verdict_is convicted'
  [ "$(state .healthy)" -eq 1 ]
  run -0 ctl state
  [[ $output == *" convicted "* ]]
  [ "$(state ".workers[] | select(.id == \"$ID\") | [.verdict_reason, .weight, .health]")" = \
    '["by hand",0,"healthy"]' ]
  for _ in 1 2 3 4; do post_gives 200 /v1/completions "$(members)"; done
  [ "$(metric oracle_requests_total "$WORKER")" -eq 0 ]
  # Not even as the only one.
  ctl drain "$other"
  post_gives 504 /v1/completions "$(members)" -H 'x-request-timeout: 1'
  [ "$(metric oracle_requests_total "$WORKER")" -eq 0 ]
  ctl undrain "$other"
  fo-reg rm "verdicts/$ID/c1"
  await_healthy 2
  verdict_is unknown
}

@test "a verdict expires by itself, and a malformed one is one warning" {
  use_dir
  start_oracle a
  register worker-a
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*'
  await_healthy 1
  verdict suspicious 0.5 "$(after 3600)"
  wait_for 'verdict_is suspicious'
  verdict suspicious 0.5 "$(after 1)"
  wait_for 'verdict_is unknown'
  # fo-reg refuses it, but another program may write it.
  printf '{"id":"%s","health":"convicted"}' "$ID" >"$T/malformed"
  mv "$T/malformed" "$T/registry/verdicts/$ID/c2"
  wait_for "grep -q 'missing weight' $T/router.err"
  [ "$(grep -c 'verdicts/' "$T/router.err")" -eq 1 ]
  verdict_is unknown
  post_gives 200 /v1/completions "$(members)"
}

# start_member N [OPTION]...: one engine of a pair that publishes 127.0.0.1:$PORT, an oracle with these
# options. Sets MEMBER[N].
start_member() {
  start_bg "member$1" fo-reg run --endpoint "$ENDPOINT" --url "http://127.0.0.1:$PORT" --model oracle -- \
    fo-shadow -q --id "$1" --gpu-free 0 --engine command --sleep : --wake : --prove : --port 0 \
    --health "curl -sf http://127.0.0.1:${ENGINE_PORT[$1]}/health" --host 127.0.0.1 \
    --engine-url "http://127.0.0.1:${ENGINE_PORT[$1]}" --publish "127.0.0.1:$PORT" -- \
    fo-oracle --port "${ENGINE_PORT[$1]}" "${@:2}"
  MEMBER[$1]=$BG_PID
}
lives() { fo-reg ls --json | jq -r '[.records[].life] | sort | join(" ")'; }
# start_pair N [OPTION]...: the engines N and N + 1, of which the first is active. Its lock is $T/lockN.
start_pair() {
  local n=$1
  export FAILOVER_LOCK_PATH=$T/lock$n GMS_SIM_CONTEXT_SIZE=0
  pick_port
  ENGINE_PORT[n]=$PORT
  pick_port
  ENGINE_PORT[n + 1]=$PORT
  pick_port
  start_member "$n" "${@:2}"
  wait_for "[ \"\$(gms-lock owner)\" = $n ]"
  start_member $((n + 1)) "${@:2}"
}
# start_streams N: begins streams, and waits for a token of each; they are in $T/stream1 to $T/streamN.
start_streams() {
  local i
  for ((i = 1; i <= $1; ++i)); do
    start_bg "stream$i" curl -sSN --max-time 60 "$URL/v1/completions" -d "$(members '"stream":true')"
    STREAMS[i]=$BG_PID
  done
  for ((i = 1; i <= $1; ++i)); do wait_for "grep -q '\"text\"' $T/stream$i.out"; done
}
# text_of FILE: prints the text in the events of a whole stream.
text_of() { sed -n 's/^data: {/{/p' "$1" | jq -j '.choices[].text'; }
# check_streams: each stream has ended, and has the text of an engine that nothing disturbs.
check_streams() {
  local i
  start_oracle undisturbed
  curl -sS "$WORKER/v1/completions" -d "$(members)" | jq -j '.choices[].text' >"$T/expected"
  for i in "${!STREAMS[@]}"; do
    expect_exit "${STREAMS[i]}" 0
    grep -qx 'data: \[DONE\]' "$T/stream$i.out"
    text_of "$T/stream$i.out" | cmp - "$T/expected"
  done
}

@test "a failover pair: its address is the same worker's, whatever engine is active" {
  use_dir
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_CONTEXT_SIZE=0
  local -a MEMBER=() ENGINE_PORT=()
  pick_port
  ENGINE_PORT+=("$PORT")
  pick_port
  ENGINE_PORT+=("$PORT")
  pick_port
  start_member 0
  wait_for '[ "$(lives)" = ready ]'
  start_member 1
  wait_for '[ "$(lives)" = "ready spare" ]'
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*'
  await_healthy 1
  post_gives 200 /v1/completions "$(members)"
  fo-shadow switchover --timeout 30s
  post_gives 200 /v1/completions "$(members)"
  kill -KILL "${MEMBER[1]}"
  # The request waits for the other engine.
  post_gives 200 /v1/completions "$(members)"
}

@test "--resume-text: an answer goes on after its text when its engine names no tokens" {
  start_oracle a --token-ids ignored --fail cut@8
  local first=$WORKER i
  start_oracle b --token-ids ignored
  start_router --worker "a=$first" --worker "b=$WORKER" --choice round-robin --resume-text
  await_healthy 2
  for i in 1 2; do
    post_gives 200 /v1/completions "$(members '"stream":true')"
    mv "$T/answer" "$T/answer$i"
    grep -qx 'data: \[DONE\]' "$T/answer$i"
    # The router may give the next one to the same engine.
    if grep -q resumed "$T/answer$i"; then curl -sSf "$first/oracle" -d '{"fail":"none"}' >/dev/null; fi
  done
  run grep -lxF ': fo-route: resumed 1 as text' "$T"/answer?
  [ "${#lines[@]}" -eq 1 ]
}

# bats test_tags=slow
@test "a switchover moves the streams of a pair to another pair" {
  use_dir
  local -a MEMBER=() ENGINE_PORT=() STREAMS=()
  # Longer than the wait for the offer of a KV cache, which the old engine does not accept any more.
  start_pair 0 --gap 500ms
  start_pair 2 --gap 500ms
  wait_for '[ "$(lives)" = "ready ready spare spare" ]'
  pick_port
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*' --choice round-robin --drain 1s \
    --metrics "127.0.0.1:$PORT"
  await_healthy 2
  start_streams 4
  fo-shadow switchover --lock "$T/lock0" --timeout 60s
  wait_for '[ "$(lives)" = "ready ready spare spare" ]'
  check_streams
  run grep -lF ': fo-route: resumed 1' "$T"/stream?.out
  [ "${#lines[@]}" -eq 2 ]
  curl -sSf "http://127.0.0.1:$PORT/metrics" >"$T/metrics"
  grep -qxF 'dynamo_migration_total{method="reprefill"} 2' "$T/metrics"
}

# begin_switchover GAP STREAMS: begins a switchover of the only pair, whose engines take GAP for a
# token, under as many streams. Sets OVER to its process. The caller has the locals of start_pair and
# start_streams.
begin_switchover() {
  start_pair 0 --gap "$1"
  wait_for '[ "$(lives)" = "ready spare" ]'
  start_router --registry "$FO_REGISTRY" --namespace 'oracle-*'
  await_healthy 1
  start_streams "$2"
  start_bg over fo-shadow switchover --timeout 60s
  OVER=$BG_PID
  wait_for '[ "$(lives)" = "draining spare" ]'
}

# bats test_tags=slow
@test "a switchover of the only pair: streams go on, and new requests wait" {
  use_dir
  local -a MEMBER=() ENGINE_PORT=() STREAMS=()
  export FO_SHADOW_DRAIN=1s
  begin_switchover 250ms 2
  post_gives 200 /v1/completions "$(members)"
  expect_exit "$OVER" 0
  wait_for '[ "$(lives)" = "ready spare" ]'
  check_streams
  # The drain was too short for them.
  run grep -lF ': fo-route: resumed 1' "$T"/stream?.out
  [ "${#lines[@]}" -eq 2 ]
}

@test "a switchover that is not possible leaves the worker in place" {
  use_dir
  local -a MEMBER=() ENGINE_PORT=() STREAMS=()
  begin_switchover 100ms 1
  kill -KILL "${MEMBER[1]}"
  expect_exit "$OVER" 75
  wait_for '[ "$(lives)" = ready ]'
  check_streams
  post_gives 200 /v1/completions "$(members)"
}
