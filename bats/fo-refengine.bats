#!/usr/bin/env bats
# fo-refengine: the behaviour on its page.

# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # text for other shells; tests are subshells
load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T GMS_SIM_CONTEXT_SIZE=0
  make_small_model
}

# start_engine NAME [OPTION]...: returns once it is ready; its pid is in ENGINE, its port in PORT. The
# first one starts a GMS with its model, unless one was started.
start_engine() {
  launch_engine "$@"
  wait_for "[ -s $T/$1.out ] || ! kill -0 $ENGINE"
  PORT=$(sed -n 's/^ready 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$T/$1.out")
  [ -n "$PORT" ]
}
launch_engine() {
  local name=$1
  shift
  if [ -z "${GMS_PID:-}" ]; then serve_model; fi
  start_bg "$name" fo-refengine serve --model "$T/model" --kv-bytes 64MiB --port 0 "$@"
  ENGINE=$BG_PID
}

# serve [OPTION]...: for engines that do not become ready.
serve() { fo-refengine serve --model "$T/model" --port 0 "$@" 3>&-; }

# http METHOD PATH [BODY]: prints the body of $PORT's answer, and writes its status to $T/http.
http() {
  local body=${3:-}
  {
    printf '%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' "$1" "$2" "${#body}" "$body" >&7
    IFS=' ' read -r _ status_code _ <&7
    echo "$status_code" >"$T/http"
    sed -u '1,/^\r$/d' <&7
  } 7<>"/dev/tcp/127.0.0.1/$PORT"
}
http_status() {
  http "$@" >/dev/null
  cat "$T/http"
}

# complete TEXT [MAX_TOKENS]: prints the tokens of the answer.
complete() {
  http POST /v1/completions "{\"prompt\":\"$1\",\"max_tokens\":${2:-16}}" | tokens_of
}
tokens_of() { grep -oE '"token_ids":\[[0-9,]*\]' | grep -oE '[0-9]+' | tr '\n' ' '; }

# ranks_of PID: prints the pids of an engine's ranks.
ranks_of() { cat "/proc/$1/task/$1/children"; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors" {
  usage_errors fo-refengine "" "run" "serve" "serve --model" "serve --model m --ranks 0" \
    "serve --model m --ranks x" "serve --model m --kv-bytes 4X" "serve --model m --port 65536" \
    "serve --model m --kv-retry 5" "serve --model $T/model --allow-kv-from 10.0.0.1" \
    "serve --model m --socket a --tag t" \
    "serve --model $T/model --socket a --ranks 2" "serve --model $T/model --ranks 5" "make-model" \
    "make-model a b" "make-model a --dtype f64" "make-model a --layers 0" "make-model a --heads 7" \
    "make-model a --kv-heads 3" "make-model a --hidden -1" "rank"
}

@test "--help shows serve and make-model and needs no driver" {
  GMS_DRIVER=/nonexistent/libcuda.so.1 run -0 fo-refengine --help
  [[ $output == *serve*make-model* ]]
  [[ $output != *" rank "* ]]
  GMS_DRIVER=/nonexistent/libcuda.so.1 run -0 fo-refengine serve --help
  [[ $output == *--kv-bytes* ]]
}

# --- make-model -----------------------------------------------------------------------------------

@test "make-model prints what it created, and creates the same again" {
  answers 0 "39 tensors, 899.2 KiB in 1 file" fo-refengine make-model --hidden 64 --seed 9 "$T/a"
  ends_with 0 fo-refengine make-model --json --hidden 64 --seed 9 --shard-size 300KiB "$T/b"
  [ "$output" = '{"bytes":920832,"tensors":39,"files":4}' ]
  [ "$(echo "$T"/b/*)" = "$T/b/config.json $T/b/model-00001-of-00004.safetensors $T/b/model-00002-of-00004.safetensors $T/b/model-00003-of-00004.safetensors $T/b/model-00004-of-00004.safetensors $T/b/model.safetensors.index.json" ]
  run -0 fo-refengine make-model --hidden 64 --seed 9 "$T/c"
  cmp "$T/a/model.safetensors" "$T/c/model.safetensors"
  cmp "$T/a/config.json" "$T/c/config.json"
}

@test "make-model refuses a folder that is not empty" {
  fails 73 "create folder '$T/model': exists and is not an empty folder" fo-refengine make-model "$T/model"
  [ "$(ls "$T/model")" = "$(printf 'config.json\nmodel.safetensors')" ]
}

@test "a make-model killed with -9 leaves no model, and the next one takes over" {
  start_bg make fo-refengine make-model --hidden 1024 --layers 8 "$T/big"
  wait_for "[ -s $T/big.partial/model.safetensors ]"
  kill_now "$BG_PID"
  [ ! -e "$T/big" ]
  run -0 fo-refengine make-model --hidden 64 "$T/big"
  [ -e "$T/big/config.json" ]
  [ ! -e "$T/big.partial" ]
}

# --- starting -------------------------------------------------------------------------------------

@test "an absent model is 66, a broken config 65" {
  fails 66 "open '$T/none/config.json': No such file or directory" fo-refengine serve --model "$T/none"
  echo '{"hidden_size":' >"$T/model/config.json"
  fails 65 "model config '$T/model/config.json': not a JSON object" serve
}

@test "no driver, no device and no GMS are 69" {
  fails 69 "*/nonexistent/libcuda.so.1*" serve --driver /nonexistent/libcuda.so.1
  ends_with 69 serve --device 7
  fails 69 "*$T/gms_0_weights.sock*" serve --load-timeout 200ms
}

@test "a bad GMS_REMAP_TIMEOUT_MS is 78" {
  GMS_REMAP_TIMEOUT_MS=soon fails 78 "read GMS_REMAP_TIMEOUT_MS 'soon': not a number of milliseconds" serve
}

@test "nothing published in time is 75, another model's weights 65" {
  start_weights
  ends_with 75 serve --load-timeout 200ms
  [ "$stderr" = "fo-refengine: error: read weights from '$T/gms_0_weights.sock': Timeout waiting for lock ro: nothing was published" ]
  fo-refengine make-model -q --hidden 32 --layers 4 "$T/other" >/dev/null
  publish_model "$T/other"
  ends_with 65 serve
  [[ $stderr == "fo-refengine: error: bind tensor 'model.embed_tokens.weight': shape [258, 32], expected [258, 64]"* ]]
}

@test "an engine started first waits for the weights" {
  start_weights
  launch_engine e
  wait_for '[ -n "$(ranks_of $ENGINE)" ]'
  publish_model
  wait_for "grep -q ^ready $T/e.out"
}

@test "a KV cache that does not fit is 75, one that holds nothing 64" {
  export GMS_SIM_VRAM=64MiB
  serve_model
  ends_with 75 serve --kv-bytes 63MiB --kv-retry 0s
  [[ $stderr == "fo-refengine: error: allocate KV cache of 64 MiB on device 0: "*OUT_OF_MEMORY* ]]
  [ "${#stderr_lines[@]}" -eq 1 ]
  fails 64 "lay out the KV cache: one position takes 1 KiB, available are 1000 B" serve --kv-bytes 1000
}

@test "a full device may make room within --kv-retry" {
  export GMS_SIM_VRAM=120MiB
  start_engine one
  local one=$ENGINE
  launch_engine two --kv-retry 30s
  wait_for 'grep -q "granted ro: .* session=3 " $T/gms.err'
  kill -KILL "$one"
  wait_for "grep -q ^ready $T/two.out"
}

@test "an address in use is 73" {
  start_engine one
  fails 73 "*127.0.0.1:$PORT*" fo-refengine serve --model "$T/model" --port "$PORT"
}

@test "a closed standard output is 74" {
  serve_model
  ends_with 74 bash -c 'fo-refengine serve --model "$T/model" --port 0 >&- 3>&-'
}

@test "SIGTERM before it is ready is 0" {
  start_weights
  launch_engine e
  wait_for "[ -n \"\$(ranks_of $ENGINE)\" ]"
  terminate "$ENGINE"
}

# --- serving --------------------------------------------------------------------------------------

@test "ready lines, events and the API are as documented" {
  serve_model
  start_bg e bash -c 'exec 5>"$T/events"; exec fo-refengine serve --json --model "$T/model" --kv-bytes 64MiB --port 0 --status-fd 5'
  wait_for "[ -s $T/e.out ]"
  [[ $(cat "$T/e.out") =~ ^\{\"ready\":true,\"address\":\"127.0.0.1:([0-9]+)\",\"port\":([0-9]+),\"positions\":4096,\"weights_mapped_seconds\":[0-9.]+,\"kv_allocated_seconds\":[0-9.]+,\"listening_seconds\":[0-9.]+\}$ ]]
  PORT=${BASH_REMATCH[2]}
  [ "$(http GET /health)" = "" ]
  [ "$(cat "$T/http")" = 200 ]
  [[ $(http GET /v1/models) == '{"object":"list","data":[{"id":"model","object":"model","created":'*'"max_model_len":4096}]}' ]]
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":false}' ]
  run -0 http POST /v1/completions '{"model":"model","prompt":"Hello","max_tokens":5}'
  [[ $output =~ ^\{\"id\":\"cmpl-[0-9a-f-]{36}\",\"object\":\"text_completion\",\"created\":[0-9]+,\"model\":\"model\",\"choices\":\[\{\"index\":0,\"text\":.*,\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,\"token_ids\":\[[0-9]+(,[0-9]+){4}\]\}\],\"usage\":\{\"prompt_tokens\":6,\"completion_tokens\":5,\"total_tokens\":11\}\}$ ]]
  complete again 1
  [ "$(grep -oE '"event":"[a-z_]+"' "$T/events" | tr '\n' ' ')" = '"event":"weights_mapped" "event":"kv_allocated" "event":"listening" "event":"first_token" ' ]
  [ "$(grep -c '"monotonic":[0-9.]*' "$T/events")" -eq 4 ]
}

@test "invalid requests get the documented status" {
  start_engine e
  [ "$(http_status GET /nowhere)" = 404 ]
  [ "$(http_status GET /v1/completions)" = 405 ]
  [ "$(http_status POST /v1/completions 'x')" = 400 ]
  [ "$(http_status POST /v1/completions '{"prompt":"a","model":"other"}')" = 404 ]
  [ "$(http_status POST /v1/completions '{"prompt":"a","max_tokens":4095}')" = 400 ]
  [ "$(http_status POST '/sleep?level=3')" = 400 ]
  [ "$(http_status POST '/sleep?mode=now')" = 400 ]
  [ "$(http_status POST '/wake_up?tags=dreams')" = 400 ]
  [ "$(http_status POST /collective_rpc '{"method":"other"}')" = 400 ]
  [ "$(http_status POST /collective_rpc '{"method":"reload_weights"}')" = 200 ]
  [ "$(http_status POST /reset_prefix_cache)" = 200 ]
  [ "$(http_status GET /ping)" = 200 ]
  [[ $(http GET /version) =~ ^\{\"version\":\"[0-9.]+\"\}$ ]]
  [[ $(http POST /v1/completions '{}') == '{"error":{"code":400,"message":"prompt is missing","type":"invalid_request_error","param":"prompt"}}' ]]
}

# answer_to_length BYTES: prints the status of a request with this Content-Length.
answer_to_length() {
  {
    printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n' "$1" >&7
    printf 'Expect: 100-continue\r\n\r\n' >&7
    IFS=' ' read -r _ status_code _ <&7
    echo "$status_code"
  } 7<>"/dev/tcp/127.0.0.1/$PORT"
}

@test "a body beyond 2 MiB is refused before it is sent" {
  start_engine e
  [ "$(answer_to_length $((2 << 20)))" = 100 ]
  [ "$(answer_to_length $(((2 << 20) + 1)))" = 413 ]
  [ "$(http_status GET /ping)" = 200 ]
}

@test "text, token ids and a stream give the same tokens" {
  start_engine e
  local whole
  whole=$(complete "Hello" 12)
  [ "$(wc -w <<<"$whole")" -eq 12 ]
  [ "$(http POST /v1/completions '{"prompt":[256,72,101,108,108,111],"max_tokens":12}' | tokens_of)" = "$whole" ]
  run -0 http POST /v1/completions '{"prompt":"Hello","max_tokens":12,"stream":true,"stream_options":{"include_usage":true}}'
  [ "$(grep -c '^data: {' <<<"$output")" -eq 13 ]
  [ "$(tokens_of <<<"$output")" = "$whole" ]
  [[ $output == *'"finish_reason":"length"'* ]]
  [[ $output == *'"completion_tokens":12,'* ]]
  [ "$(tail -n 2 <<<"$output" | tr -d '\n')" = "data: [DONE]" ]
  [ "$(complete "Hellp" 12)" != "$whole" ]
}

@test "two engines and two ranks give the same tokens" {
  serve_model 0,1
  local first
  start_engine one
  first=$(complete "Once upon a time" 40)
  [ "$(wc -w <<<"$first")" -eq 40 ]
  start_engine two
  [ "$(complete "Once upon a time" 40)" = "$first" ]
  start_engine split --ranks 2
  [ "$(ranks_of "$ENGINE" | wc -w)" -eq 2 ]
  [ "$(complete "Once upon a time" 40)" = "$first" ]
}

# ask BODY [ENDPOINT]: prints the answer to a completion (or to chat/completions).
ask() { http POST "/v1/${2:-completions}" "$1"; }

# text_of: prints the text of an answer or of a whole stream, of either endpoint. The blank at the
# end preserves a final newline.
text_of() {
  sed -n 's/^data: {/{/; /^{/p' | jq -j '.choices[] | .text // .message.content // .delta.content // ""'
  echo -n " "
}

@test "a chat is answered as a message, and streamed as deltas" {
  start_engine e
  local chat='"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Hi"}]}]'
  run -0 ask "{$chat,\"max_tokens\":12}" chat/completions
  [[ $output =~ ^\{\"id\":\"chatcmpl-[0-9a-f-]{36}\",\"object\":\"chat.completion\",\"created\":[0-9]+,\"model\":\"model\",\"choices\":\[\{\"index\":0,\"message\":\{\"role\":\"assistant\",\"content\":.*\},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null\}\],\"usage\":\{\"prompt_tokens\":39,\"completion_tokens\":12,\"total_tokens\":51\}\}$ ]]
  local whole
  whole=$(text_of <<<"$output")
  # This prompt is the chat in the template of the page.
  [ "$(ask '{"prompt":"system: Be brief.\nuser: Hi\nassistant: ","max_tokens":12}' | text_of)" = "$whole" ]
  run -0 ask "{$chat,\"max_completion_tokens\":12,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" chat/completions
  [ "$(text_of <<<"$output")" = "$whole" ]
  [[ $output == 'data: {"id":"chatcmpl-'*'"object":"chat.completion.chunk",'*'"delta":{"role":"assistant","content":""},'* ]]
  [ "$(grep -c '"role"' <<<"$output")" -eq 1 ]
  [ "$(grep -c '^data: {' <<<"$output")" -eq 14 ]
  [[ $output == *'"logprobs":null,"finish_reason":"length","stop_reason":null}]}'*'"completion_tokens":12,'* ]]
  [ "$(tail -n 2 <<<"$output" | tr -d '\n')" = "data: [DONE]" ]
  # Without a limit, the answer fills the KV cache.
  rm -r "$T/model"
  make_small_model --max-positions 60
  start_engine short
  [[ $(ask "{$chat}" chat/completions) == *'"total_tokens":60}}' ]]
}

@test "a seed repeats what is sampled, on every engine and on two ranks, also from the middle" {
  serve_model 0,1
  local drawn body='"prompt":"Once","temperature":1.2,"top_p":0.9,"ignore_eos":true'
  start_engine one
  drawn=$(ask "{$body,\"max_tokens\":30,\"seed\":7}" | tokens_of)
  [ "$(wc -w <<<"$drawn")" -eq 30 ]
  [ "$(ask "{$body,\"max_tokens\":30,\"seed\":7}" | tokens_of)" = "$drawn" ]
  [ "$(ask "{$body,\"max_tokens\":30,\"seed\":7,\"stream\":true}" | tokens_of)" = "$drawn" ]
  [ "$(ask "{$body,\"max_tokens\":30,\"seed\":8}" | tokens_of)" != "$drawn" ]
  [ "$(complete Once 30)" != "$drawn" ]
  [ "$(ask "{$body,\"max_tokens\":30,\"seed\":7,\"temperature\":0}" | tokens_of)" = "$(complete Once 30)" ]
  [ "$(ask "{$body,\"max_tokens\":30}" | tokens_of)" != "$(ask "{$body,\"max_tokens\":30}" | tokens_of)" ]
  start_engine two --ranks 2
  [ "$(ask "{$body,\"max_tokens\":30,\"seed\":7}" | tokens_of)" = "$drawn" ]
  # After the prompt and the first ten tokens, the same twenty tokens follow.
  local first
  first=$(cut -d ' ' -f 1-10 <<<"$drawn")
  run -0 ask "{\"prompt\":[256,79,110,99,101,${first// /,}],\"temperature\":1.2,\"top_p\":0.9,\"ignore_eos\":true,\"max_tokens\":20,\"seed\":7}"
  [ "$first $(tokens_of <<<"$output")" = "$drawn" ]
}

@test "logprobs and token ids are returned on request" {
  start_engine e
  run -0 ask '{"prompt":"Hello","max_tokens":4,"logprobs":2,"return_token_ids":true}'
  jq -e '.choices[0] | .prompt_token_ids == [256,72,101,108,108,111] and
    (.logprobs | (.tokens | length) == 4 and .text_offset == [0,1,2,3] and
      ([.token_logprobs[] | . < 0] | all) and ([.top_logprobs[] | length == 2] | all) and
      ([.top_logprobs[] | [.[]] | max] == .token_logprobs))' <<<"$output"
  local logprobs
  logprobs=$(jq -c '.choices[0].logprobs.token_logprobs' <<<"$output")
  run -0 ask '{"prompt":"Hello","max_tokens":4,"logprobs":0,"stream":true}'
  [ "$(sed -n 's/^data: {/{/p' <<<"$output" | jq -cs '[.[].choices[0].logprobs // empty | .token_logprobs[]]')" = "$logprobs" ]
  run -0 ask '{"messages":[{"role":"user","content":"Hi"}],"max_tokens":3,"logprobs":true,"top_logprobs":3,"return_token_ids":true}' chat/completions
  jq -e '(.prompt_token_ids | length) == .usage.prompt_tokens and (.choices[0] |
    (.token_ids | length) == 3 and ([.logprobs.content[] | (.top_logprobs | length) == 3 and
      .top_logprobs[0].logprob == .logprob and (.bytes | implode) == .token] | all))' <<<"$output"
}

@test "tokens are limited and scored as requested" {
  start_engine e
  [ "$(ask '{"prompt":"Hello","max_tokens":3,"logit_bias":{"120":100}}' | text_of)" = "xxx " ]
  run -0 ask '{"prompt":[256,72,105],"max_tokens":0,"echo":true,"logprobs":0}'
  jq -e '.choices[0].logprobs.token_logprobs | .[0] == null and ([.[1:][] | . < 0] == [true, true])' <<<"$output"
}

# load_of: prints the numbers of running and waiting requests, and of prompt and generated tokens.
load_of() {
  http GET /metrics | sed -n 's/^vllm:[a-z_]*{model_name="model"} //p' | tr '\n' ' '
}

@test "metrics show whether the engine is idle" {
  start_engine e
  [ "$(load_of)" = "0 0 0 0 " ]
  complete Hello 5
  [ "$(load_of)" = "0 0 6 5 " ]
  start_stream 3000
  local first=$STREAM
  start_stream_beside "$T/second" 3000
  wait_for '[[ $(load_of) == "1 1 12 "* ]]'
  [ "$(http_status POST '/sleep?mode=keep')" = 200 ]
  [[ $(load_of) == "0 2 "* ]]
  [ "$(http_status POST /wake_up)" = 200 ]
  [ "$(http_status POST '/sleep?mode=abort')" = 200 ]
  wait_exit "$first"
  wait_exit "$STREAM"
  [[ $(load_of) == "0 0 "* ]]
}

# fatal_wake: requests a wake that ends the engine, and expects the connection to be cut.
fatal_wake() {
  http POST /wake_up || :
  [ -z "$(cat "$T/http")" ]
}

# --- sleeping -------------------------------------------------------------------------------------

@test "a sleeping engine holds no memory and no lock, and wakes with the same tokens" {
  export GMS_SIM_VRAM=120MiB
  start_engine one
  local before
  before=$(complete "Hello" 20)
  [ "$(http_status POST '/sleep?level=1')" = 200 ]
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":true}' ]
  [ "$(http_status GET /health)" = 200 ]
  [ "$(http_status POST /v1/completions '{"prompt":"a"}')" = 503 ]
  [ "$(http_status POST /tokenize '{"prompt":"a"}')" = 200 ]
  [ "$(http_status POST /sleep)" = 200 ]
  gms-stat --json --device 0 | grep -q '"ro_session_count": *0'
  local one=$PORT
  start_engine two
  local two=$ENGINE
  [ "$(complete "Hello" 20)" = "$before" ]
  kill "$two"
  wait_exit "$two"
  PORT=$one
  [ "$(http_status POST '/wake_up?tags=weights')" = 200 ]
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":true}' ]
  [ "$(http_status POST /v1/completions '{"prompt":"a"}')" = 503 ]
  [ "$(http_status POST '/wake_up?tags=weights&tags=kv_cache')" = 200 ]
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":false}' ]
  [ "$(http_status POST /wake_up)" = 200 ]
  [ "$(complete "Hello" 20)" = "$before" ]
}

@test "an engine that starts asleep needs no room for its KV cache until it wakes" {
  export GMS_SIM_VRAM=120MiB
  start_engine one
  local before one=$ENGINE
  before=$(complete "Hello" 20)
  start_engine two --start-asleep
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":true}' ]
  [ "$(http_status GET /health)" = 200 ]
  [ "$(http_status POST /v1/completions '{"prompt":"a"}')" = 503 ]
  [ "$(http_status POST /sleep)" = 200 ]
  gms-stat --json --device 0 | grep -q '"ro_session_count": *1'
  kill_now "$one"
  [ "$(http_status POST /wake_up)" = 200 ]
  [ "$(complete "Hello" 20)" = "$before" ]
}

@test "sleep takes its options from the query and not from a body" {
  start_engine e
  [ "$(http_status POST /sleep '{"level":3,"mode":"now"}')" = 200 ]
  [ "$(http GET /is_sleeping)" = '{"is_sleeping":true}' ]
}

# start_stream TOKENS: starts a streamed completion, and waits for its beginning in $T/stream.
start_stream() {
  rm -f "$T/stream"
  start_stream_beside "$T/stream" "$1"
  wait_for "[ -s $T/stream ]"
}

# start_stream_beside FILE TOKENS: starts one to FILE, without waiting for its beginning.
start_stream_beside() {
  http POST /v1/completions "{\"prompt\":\"Hello\",\"max_tokens\":$2,\"stream\":true}" >"$1" 3>&- &
  STREAM=$!
}

# bats test_tags=slow
@test "abort cuts what is in flight, wait finishes it, keep goes on after waking" {
  start_engine e
  local whole
  whole=$(complete "Hello" 2500)

  start_stream 2500
  [ "$(http_status POST '/sleep?mode=abort')" = 200 ]
  wait_exit "$STREAM"
  grep -q '"finish_reason":"abort"' "$T/stream"
  [[ $whole == "$(tokens_of <"$T/stream")"* ]]
  http POST /wake_up

  start_stream 2500
  [ "$(http_status POST '/sleep?mode=wait')" = 200 ]
  wait_exit "$STREAM"
  grep -q '"finish_reason":"length"' "$T/stream"
  [ "$(tokens_of <"$T/stream")" = "$whole" ]
  http POST /wake_up

  start_stream 2500
  [ "$(http_status POST '/sleep?mode=keep')" = 200 ]
  kill -0 "$STREAM"
  http POST /wake_up
  wait_exit "$STREAM"
  [ "$(tokens_of <"$T/stream")" = "$whole" ]
}

@test "waking on another layout is 65" {
  start_engine e
  http POST /sleep
  fo-refengine make-model -q --hidden 64 --layers 3 "$T/other" >/dev/null
  publish_model "$T/other"
  fatal_wake
  expect_exit "$ENGINE" 65
  [[ $(cat "$T/e.err") == "fo-refengine: error: remap from '$T/gms_0_weights.sock': Layout changed: "*" instead of "* ]]
}

@test "an engine wakes on the same layout published again" {
  start_engine e
  local before
  before=$(complete "Hello" 20)
  http POST /sleep
  publish_model
  [ "$(http_status POST /wake_up)" = 200 ]
  [ "$(complete "Hello" 20)" = "$before" ]
}

@test "waking without a server is 69, with an empty one 75" {
  for again in no yes; do
    serve_model
    start_engine "e-$again" --remap-timeout 300ms
    http POST /sleep
    kill "$GMS_PID"
    wait_exit "$GMS_PID"
    if [ "$again" = yes ]; then start_weights; fi
    fatal_wake
    wait_exit "$ENGINE"
    if [ "$again" = yes ]; then [ "$status" -eq 75 ]; else [ "$status" -eq 69 ]; fi
    [[ $(cat "$T/e-$again.err") == *"fo-refengine: error: "*"$T/gms_0_weights.sock"* ]]
  done
}

@test "waking without memory for the KV cache is 75" {
  export GMS_SIM_VRAM=120MiB
  start_engine one --kv-retry 0s
  local one=$ENGINE one_port=$PORT
  http POST /sleep
  start_engine two
  PORT=$one_port
  fatal_wake
  expect_exit "$one" 75
  [[ $(cat "$T/one.err") == "fo-refengine: error: allocate KV cache of 64 MiB on device 0: "* ]]
}

# --- moving KV caches -----------------------------------------------------------------------------

# begin_request ID PORT: starts the stream "ID" of 4000 tokens at $PORT, to $T/ID, and returns when
# it has begun; its client is $STREAM.
begin_request() {
  curl -sN -H "X-Request-Id: $1" "http://127.0.0.1:$PORT/v1/completions" \
    -d '{"prompt":"Hello","max_tokens":4000,"ignore_eos":true,"stream":true}' >"$T/$1" 3>&- &
  STREAM=$!
  wait_for "[ -s $T/$1 ]"
}

# pull ID PORT: pulls the KV cache of the request ID of the engine at PORT to the one at $PORT.
pull() {
  http POST /kv_snapshot/pull "{\"source\":\"http://127.0.0.1:$2\",\"request_id\":\"$1\"}"
}

# bats test_tags=slow
@test "the KV cache of a running request moves to an engine with another number of ranks" {
  serve_model 0,1
  start_engine source --allow-kv-from 127.0.0.0/8
  local source=$PORT
  start_engine target --ranks 2 --allow-kv-from 127.0.0.0/8
  local target=$PORT
  PORT=$source
  begin_request r1
  [ "$(http GET '/kv_snapshot?request_id=r1' | jq -c '[.model, .block_tokens, .bytes == .bytes_per_token * (.tokens | length)]')" = '["model",16,true]' ]
  [ "$(http_status GET '/kv_snapshot?request_id=r2')" = 404 ]
  PORT=$target
  run -0 pull r1 "$source"
  local id tokens
  id=$(jq -er .snapshot <<<"$output")
  tokens=$(jq -er .tokens <<<"$output")
  # The source is not disturbed; its first tokens are the prompt of the continuation.
  wait_exit "$STREAM"
  local all k=$((tokens - 5)) prompt
  IFS=' ' read -ra all <<<"$(tokens_of <"$T/r1")"
  [ "${#all[@]}" -eq 4000 ]
  prompt=$(printf ',%s' "${all[@]:0:k}")
  curl -sS -D "$T/head" "http://127.0.0.1:$target/v1/completions" -d @- >"$T/rest" <<<"{\"prompt\":[256,72,101,108,108,111$prompt],\"max_tokens\":20,\"ignore_eos\":true,\"kv_transfer_params\":{\"fo_snapshot\":\"$id\"}}"
  grep -qi '^x-fo-kv-snapshot: used' "$T/head"
  [ "$(jq .usage.prompt_tokens_details.cached_tokens "$T/rest")" -eq "$tokens" ]
  [ "$(tokens_of <"$T/rest")" = "${all[*]:k:20} " ]
}

@test "a KV cache that cannot be moved is computed" {
  start_engine source --allow-kv-from 127.0.0.0/8
  local source=$PORT source_pid=$ENGINE whole
  start_engine target --allow-kv-from 127.0.0.1/32 --kv-snapshots 1KiB
  local target=$PORT
  PORT=$source
  begin_request r1
  PORT=$target
  [[ $(pull r1 "$source") == '{"error":{"code":503,"message":"no room: '* ]]
  [[ $(pull r2 "$source") == *"/kv_snapshot?request_id=r2': status 404"* ]]
  [ "$(http_status POST /kv_snapshot/pull '{"source":"http://127.0.0.2:1","request_id":"r1"}')" = 403 ]
  kill_now "$source_pid"
  pull r1 "$source"
  [ "$(cat "$T/http")" = 502 ]
  whole=$(complete Hello 10)
  run -0 ask '{"prompt":"Hello","max_tokens":10,"kv_transfer_params":{"fo_snapshot":"lost"}}'
  [ "$(tokens_of <<<"$output")" = "$whole" ]
  [ "$(jq .usage.prompt_tokens_details.cached_tokens <<<"$output")" -eq 0 ]
  # Without the option, no KV cache is shown or moved.
  start_engine closed
  [ "$(http_status GET '/kv_snapshot?request_id=r1')" = 404 ]
  pull r1 "$source"
  [ "$(cat "$T/http")" = 404 ]
}

# --- deaths ---------------------------------------------------------------------------------------

@test "loss of the GMS is reported and survived, or ends the engine with --exit-on-gms-loss" {
  start_engine one
  local one=$PORT before
  before=$(complete "Hello" 20)
  start_engine two --exit-on-gms-loss
  kill "$GMS_PID"
  expect_exit "$ENGINE" 69
  [ "$(cat "$T/two.err")" = "fo-refengine: error: connection to GMS '$T/gms_0_weights.sock': lost" ]
  wait_for "grep -qx \"fo-refengine: warning: connection to GMS '$T/gms_0_weights.sock': lost, the weights stay mapped\" $T/one.err"
  PORT=$one
  [ "$(complete "Hello" 20)" = "$before" ]
}

@test "a rank's death ends the engine" {
  serve_model 0,1
  start_engine e --ranks 2
  local ranks
  IFS=' ' read -ra ranks <<<"$(ranks_of "$ENGINE")"
  kill -KILL "${ranks[1]}"
  expect_exit "$ENGINE" 70
  [ "$(cat "$T/e.err")" = "fo-refengine: error: rank 1: process ${ranks[1]} died of signal 9" ]
  [ ! -e "/proc/${ranks[0]}" ]
}

@test "an engine killed with -9 takes its ranks and their memory with it" {
  export GMS_SIM_VRAM=120MiB
  start_engine one
  local ranks
  IFS=' ' read -ra ranks <<<"$(ranks_of "$ENGINE")"
  kill_now "$ENGINE"
  wait_for "! kill -0 ${ranks[0]}"
  start_engine two
}

@test "ranks hold none of the descriptors that the engine inherited" {
  serve_model
  start_bg e bash -c 'exec 9>"$T/lock"; flock 9; exec fo-refengine serve --model "$T/model" --kv-bytes 64MiB --port 0'
  wait_for "grep -q ^ready $T/e.out"
  local rank
  rank=$(ranks_of "$BG_PID")
  [ "$(readlink "/proc/$BG_PID/fd/9")" = "$T/lock" ]
  [ -z "$(find "/proc/${rank// /}/fd" -lname "$T/lock")" ]
  run -1 flock -n "$T/lock" true
  kill_now "$BG_PID"
  flock "$T/lock" true
}

@test "SIGTERM lets a request in flight finish and is 0" {
  start_engine e
  start_stream 500
  kill "$ENGINE"
  wait_exit "$STREAM"
  grep -q '^data: \[DONE\]' "$T/stream"
  expect_exit "$ENGINE" 0
  [ -z "$(cat "$T/e.err")" ]
}

@test "SIGINT, SIGHUP and SIGQUIT to the whole group end it as well" {
  local signal
  serve_model
  for signal in INT HUP QUIT; do
    start_bg e setsid fo-refengine serve --model "$T/model" --kv-bytes 64MiB --port 0
    wait_for "grep -q ^ready $T/e.out"
    kill "-$signal" -- "-$BG_PID"
    expect_exit "$BG_PID" 0
    [ -z "$(cat "$T/e.err")" ]
  done
}

@test "a service manager receives the address, ready, watchdog and stopping" {
  serve_model
  start_manager
  export WATCHDOG_USEC=100000
  start_engine e
  [ "$(http GET /live)" = '{"status":"live"}' ]
  wait_for '[ "$(http_status GET /ready)" = 200 ]'
  wait_for '[ "$(grep -o WATCHDOG=1 $T/told | wc -l)" -gt 2 ]'
  terminate "$ENGINE"
  wait_for "grep -q STOPPING=1 $T/told"
  [ "$(sed 's/WATCHDOG=1//g' "$T/told")" = "STATUS=listening on 127.0.0.1:${PORT}READY=1STOPPING=1" ]
}
