#!/usr/bin/env bats
# fo-reg: the behaviour on its page.

# shellcheck disable=SC2030,SC2031  # tests are subshells
load test_helper

setup() {
  fo_setup
  export XDG_CACHE_HOME=$T/cache
  cat >"$T/dgd.yaml" <<'END'
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: llama}
spec:
  services:
    Frontend: {componentType: frontend}
    Decode:
      componentType: worker
      subComponentType: decode
      replicas: 2
      extraPodSpec: {mainContainer: {image: vllm:1}}
END
}

reg() { fo-reg "$@" 3>&-; }

# a_model FOLDER: creates a small model of random weights, always the same.
a_model() { fo-refengine make-model -q --hidden 64 --layers 1 --seed 1 "$1" >/dev/null; }

# hash_of FILE: prints the hash in the ids of a deployment.
hash_of() { reg id -f "$1" --json | jq -rs 'map(.hash) | unique | .[]'; }

@test "bad command lines are usage errors" {
  usage_errors fo-reg "" "unknown" "id extra" "id --endpoint a/b" "id --endpoint ''" "id -f - -f -" \
    "card" "card a b" "card a --context-length -1" "card a --context-length x" "card a --stop-ids 1,x" \
    "card a --end-of-thinking -1" "card a --adapter sql" "card a --adapter =d" "card a --adapter sql=" \
    "card a --adapter s=a --adapter s=b" "explain" "explain a" "explain - -" "explain a b c"
  run -64 --separate-stderr reg card a --adapter sql
  [ "${stderr_lines[0]}" = "fo-reg: error: --adapter: 'sql' is not NAME=DIR" ]
}

# --- id -------------------------------------------------------------------------------------------

@test "id prints the ids of all services, with one namespace" {
  run -0 --separate-stderr reg id -f "$T/dgd.yaml"
  [[ ${lines[0]} =~ ^(llama-[0-9a-f]{16})/worker-decode/generate\ \ Decode$ ]]
  [ "${lines[1]}" = "${BASH_REMATCH[1]}/frontend/generate  Frontend" ]
  [ "${#lines[@]}" -eq 2 ]
  [ "$stderr" = "" ]
  run -0 reg id --endpoint clear <"$T/dgd.yaml"
  [[ ${lines[0]} == llama-*/worker-decode/clear\ \ Decode ]]
  run -0 reg id -f "$T/dgd.yaml" --json
  [ "$(jq -c '[.deployment, .service, .id == "llama-\(.hash)/worker-decode/generate"]' <<<"${lines[0]}")" = '["llama","Decode",true]' ]
}

@test "id prints the same for another order, JSON, and anchors" {
  local hash
  hash=$(hash_of "$T/dgd.yaml")
  fo-podgen -q -f "$T/dgd.yaml" -o json | jq '.items[0]? // .' >"$T/dgd.json"
  [ "$(hash_of "$T/dgd.json")" = "$hash" ]
  jq -S . "$T/dgd.json" >"$T/sorted.json"
  [ "$(hash_of "$T/sorted.json")" = "$hash" ]
  jq '{kind: "List", apiVersion: "v1", items: [{kind: "ConfigMap"}, .]}' "$T/dgd.json" >"$T/list.json"
  [ "$(hash_of "$T/list.json")" = "$hash" ]
  sed 's/vllm:1/\&i vllm:1/' "$T/dgd.yaml" >"$T/anchor.yaml"
  [ "$(hash_of "$T/anchor.yaml")" = "$hash" ]
  sed 's/replicas: 2/replicas: 3/' "$T/dgd.yaml" >"$T/scaled.yaml"
  [ "$(hash_of "$T/scaled.yaml")" = "$hash" ]
  sed 's/vllm:1/vllm:2/' "$T/dgd.yaml" >"$T/new.yaml"
  [ "$(hash_of "$T/new.yaml")" != "$hash" ]
}

@test "id reads several files and documents, or prints nothing" {
  sed 's/name: llama/name: qwen/' "$T/dgd.yaml" >"$T/qwen.yaml"
  run -0 reg id -f "$T/dgd.yaml" -f "$T/qwen.yaml"
  [ "${#lines[@]}" -eq 4 ]
  run -0 reg id -f - < <(cat "$T/dgd.yaml"; echo ---; echo 'kind: ConfigMap'; echo ---; cat "$T/qwen.yaml")
  [ "${#lines[@]}" -eq 4 ]
  run -65 --separate-stderr reg id -f "$T/dgd.yaml" -f - <<<'kind: ConfigMap'
  [ "$output" = "" ]
  [ "$stderr" = "fo-reg: error: read 'standard input': no DynamoGraphDeployment in it" ]
}

@test "id reports bad input with its place" {
  run -66 --separate-stderr reg id -f "$T/absent"
  [ "$stderr" = "fo-reg: error: open '$T/absent': No such file or directory" ]
  run -65 --separate-stderr reg id <<<'a: ['
  [[ $stderr == "fo-reg: error: standard input:2:"* ]]
  sed -i 's/componentType: worker/componentType: my-worker/' "$T/dgd.yaml"
  run -65 --separate-stderr reg id -f "$T/dgd.yaml"
  [[ $stderr == "fo-reg: error: $T/dgd.yaml:8:22: spec.services.Decode.componentType: 'my-worker-decode': not a component"* ]]
}

# --- card and explain -----------------------------------------------------------------------------

@test "card prints a card that explain reads" {
  a_model "$T/model"
  run -0 --separate-stderr reg card "$T/model" --kv-abi nixl/f32/16/NHD --alias chat
  [ "$stderr" = "" ]
  printf '%s\n' "$output" >"$T/a.json"
  [ "$(jq -c '[.version, .name, .architecture, .dtype, .context_length, .aliases]' "$T/a.json")" = \
    '[1,"model","LlamaForCausalLM","float32",4096,["chat"]]' ]
  run -0 reg card "$T/model" --kv-abi nixl/f32/16/NHD --alias chat --json
  [ "${#lines[@]}" -eq 1 ]
  [ "$(jq -S . <<<"$output")" = "$(jq -S . "$T/a.json")" ]
  run -0 --separate-stderr reg explain "$T/a.json" "$T/a.json"
  [ "$output" = "may share traffic: they have a name in common
may migrate: the checksums are equal
may pair: the KV caches match" ]
}

@test "explain prints what two workers may not do" {
  a_model "$T/model"
  reg card "$T/model" >"$T/a.json"
  reg card "$T/model" --kv-abi other >"$T/b.json"
  run -1 --separate-stderr reg explain "$T/a.json" "$T/b.json"
  [ "$output" = 'kv_abi: none and "other"
may share traffic: they have a name in common
may migrate: the checksums are equal
may not pair: kv_abi differs' ]
  run -1 reg explain "$T/a.json" - --json < <(reg card "$T/model" --context-length 1024 --name other)
  [ "$(jq -c '[.may_share_traffic, .may_migrate, .may_pair, .differences[].field]' <<<"$output")" = \
    '[false,false,false,"name","context_length"]' ]
  sed -i 's/"dtype": "float32"/"dtype": "float16"/' "$T/b.json"
  run -65 --separate-stderr reg explain "$T/a.json" "$T/b.json"
  [[ $stderr == "fo-reg: error: read '$T/b.json': field 'checksum': not that of the card, sha256:"* ]]
  run -66 --separate-stderr reg explain "$T/a.json" "$T/absent"
  [ "$stderr" = "fo-reg: error: open '$T/absent': No such file or directory" ]
}

@test "card needs a folder with a configuration and whole weights" {
  run -66 --separate-stderr reg card "$T/absent"
  [ "$stderr" = "fo-reg: error: open '$T/absent': No such file or directory" ]
  a_model "$T/model"
  truncate -s -1 "$T/model/model.safetensors"
  run -65 --separate-stderr reg card "$T/model"
  [[ $stderr == "fo-reg: error: read '$T/model/model.safetensors': "* ]]
  [ "${#stderr_lines[@]}" -eq 1 ]
  rm "$T/model/model.safetensors"
  run -66 --separate-stderr reg card "$T/model"
  [ "$stderr" = "fo-reg: error: open model '$T/model': no model.safetensors.index.json or model.safetensors" ]
  ln -s ../blobs/gone "$T/model/model.safetensors"
  run -66 --separate-stderr reg card "$T/model"
  [ "$stderr" = "fo-reg: error: open '$T/model/model.safetensors': it links to '../blobs/gone', which does not exist" ]
  echo '{' >"$T/model/config.json"
  run -65 --separate-stderr reg card "$T/model"
  [ "$stderr" = "fo-reg: error: read '$T/model/config.json': not JSON" ]
}

@test "card reports files that it may not read" {
  need_root
  a_model "$T/model"
  chmod 755 "$T"
  chmod 600 "$T/model/model.safetensors"
  cp "$FO_BIN/fo-reg" "$T/fo-reg"
  run -77 --separate-stderr setpriv --reuid 65534 --clear-groups "$T/fo-reg" card "$T/model"
  [ "${stderr_lines[-1]}" = "fo-reg: error: open '$T/model/model.safetensors': Permission denied" ]
}

@test "card keeps digests, and does without a cache" {
  a_model "$T/model"
  local card
  card=$(reg card "$T/model")
  # A digest is kept once the file's last change is older than the clock's resolution.
  wait_for 'reg card "$T/model" && jq -e ".files | length == 1" "$XDG_CACHE_HOME/fo/digests.json"'
  [ "$(reg card "$T/model")" = "$card" ]
  echo garbage >"$XDG_CACHE_HOME/fo/digests.json"
  run -0 --separate-stderr reg card "$T/model"
  [ "$output" = "$card" ]
  [ "$stderr" = "" ]
  touch "$T/file"
  XDG_CACHE_HOME=$T/file run -0 --separate-stderr reg card "$T/model"
  [ "$output" = "$card" ]
  [[ $stderr == "fo-reg: warning: create folder '$T/file/fo': Not a directory: the files will be read again next time" ]]
  XDG_CACHE_HOME='' HOME='' run -0 --separate-stderr reg card "$T/model"
  [ "$output" = "$card" ]
  [ "$stderr" = "" ]
}

@test "card prints a card although the disk of its cache is full" {
  need_mount
  a_model "$T/model"
  mkdir "$T/disk"
  # shellcheck disable=SC2016
  run -0 --separate-stderr unshare --map-root-user --mount sh -c '
    mount -t tmpfs -o size=8k none "$0/disk" || exit 1
    mkdir "$0/disk/fo"
    head -c 8192 /dev/zero >"$0/disk/filler" 2>/dev/null
    XDG_CACHE_HOME=$0/disk exec fo-reg card "$0/model" 3>&-' "$T"
  [[ $stderr == "fo-reg: warning: write '$T/disk/fo/digests.json': No space left on device: "* ]]
  [ "$output" = "$(reg card "$T/model")" ]
}

@test "card does not read the blobs of the Hugging Face cache without --verify" {
  local snapshot=$T/models--org--tiny/snapshots/abc sum
  a_model "$T/model"
  sum=$(sha256sum <"$T/model/model.safetensors")
  sum=${sum%% *}
  mkdir -p "$snapshot" "$T/models--org--tiny/blobs"
  cp "$T/model/config.json" "$snapshot"
  mv "$T/model/model.safetensors" "$T/models--org--tiny/blobs/$sum"
  ln -s "../../blobs/$sum" "$snapshot/model.safetensors"
  run -0 reg card "$snapshot" --json
  [ "$(jq -c '[.name, .revision]' <<<"$output")" = '["org/tiny","abc"]' ]
  [ "$(reg card "$snapshot" --json --verify)" = "$output" ]
  [ ! -e "$XDG_CACHE_HOME" ]
  printf x | dd of="$T/models--org--tiny/blobs/$sum" bs=1 seek=9000 conv=notrunc status=none
  [ "$(reg card "$snapshot" --json)" = "$output" ]
  run -65 --separate-stderr reg card "$snapshot" --verify
  [[ $stderr == "fo-reg: error: read '$snapshot/model.safetensors': its SHA-256 is "*", but it is named $sum" ]]
}

@test "a full or closed stdout is an error" {
  a_model "$T/model"
  run -74 --separate-stderr bash -c 'fo-reg id -f "$0/dgd.yaml" >/dev/full 3>&-' "$T"
  [ "$stderr" = "fo-reg: error: write to standard output: No space left on device" ]
  run -74 --separate-stderr bash -c 'fo-reg card "$0/model" >/dev/full 3>&-' "$T"
}
