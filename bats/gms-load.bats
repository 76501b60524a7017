#!/usr/bin/env bats
# gms-load: the behaviour on its page.

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SIM_VRAM=64MiB
  SOCKET=$T/gms.sock
}

# serve [OPTION]...: starts a server on $SOCKET. with_model: also creates the model $T/m.
serve() { serve_at "$SOCKET" "$@"; }
with_model() {
  make_model "$T/m"
  serve
}
# with_published: also publishes it. Sets layout to its hash.
with_published() {
  with_model
  run -0 gload "$T/m"
  layout=${output##* }
}

gload() { gms-load --socket "$SOCKET" "$@" 3>&-; }

# make_model DIR: creates two shards and an index.
make_model() {
  mkdir -p "$1"
  make_file "$1/a.safetensors" \
    '{"embed":{"dtype":"BF16","shape":[300,1000],"data_offsets":[0,600000]},"__metadata__":{"format":"pt"}}' 600000
  make_file "$1/b.safetensors" \
    '{"norm":{"dtype":"F32","shape":[5],"data_offsets":[0,20]},"head":{"dtype":"U8","shape":[3000000],"data_offsets":[20,3000020]}}' 3000020
  echo '{"metadata":{},"weight_map":{"embed":"a.safetensors","norm":"b.safetensors","head":"b.safetensors"}}' \
    >"$1/model.safetensors.index.json"
}

state() { gms-stat --socket "$SOCKET" --json 3>&-; }

expect_nothing_published() { state | grep -q '"committed": *false'; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors, before any connection" {
  usage_errors gms-load "" "m m" "m --unknown" "m --role writer" "m --role rw_data_or_rw" "m --slab x" "m --timeout 5" \
    "m --copy-threads 0" "m --copy-threads x" "m --ring -1" "m --device -1" "m --socket s --tag t" \
    "m --snapshot d" "m --no-verify" "--snapshot d --slab 1MiB" "--snapshot d --pin-content" "--snapshot" \
    "--unpublish m" "--unpublish --snapshot d" "--unpublish --role rw" "--unpublish --verify" \
    "--unpublish --ring 1MiB" "--unpublish --copy-threads 2"
}

@test "an ENGINE_ID that is not a number is 78" {
  ENGINE_ID=one fails 78 "read ENGINE_ID 'one': not a non-negative number" gload "$T/m"
}

@test "without a driver it is 69, and names the option for the simulated one" {
  if [ -e /dev/nvidiactl ]; then skip_because no-gpu "there is a GPU here"; fi
  make_model "$T/m"
  GMS_DRIVER=auto fails 69 "no *GMS_DRIVER=sim selects the simulated one" gload "$T/m"
}

# --- publishing and importing ---------------------------------------------------------------------

@test "the first publishes, the second becomes a reader, and both report the same layout" {
  with_model
  ends_with 0 gload --json "$T/m"
  [ -z "$stderr" ]
  [[ $output =~ ^'{"bytes": 3600020, "seconds": '[0-9]+\.[0-9]+', "tensors": 3, "allocations": 1, "memory_layout_hash": "'[0-9a-f]{64}'", "granted_lock_type": "rw"}'$ ]]
  hash=$(sed 's/.*hash": "\([0-9a-f]*\)".*/\1/' <<<"$output")
  state | grep -q "\"memory_layout_hash\": *\"$hash\""
  ends_with 0 gload "$T/m"
  [[ $output == "imported 3 tensors, 3.4 MiB in 1 allocation, in "*" s ("*"/s), layout $hash" ]]
  ends_with 0 gload --role rw "$T/m"
  [[ $output == "published 3 tensors, 3.4 MiB in 1 allocation, in "*", layout $hash" ]]
}

@test "a server is found by folder, device and tag" {
  make_model "$T/m"
  GMS_SOCKET_DIR=$T start_gms --devices 1 --tags weights,draft
  GMS_SOCKET_DIR=$T run -0 gms-load --device 1 --tag draft "$T/m"
  [[ $output == "published "* ]]
  run -0 gms-load --socket-dir "$T" --device 1 "$T/m"
  [[ $output == "published "* ]]
  ends_with 69 gms-load --socket-dir "$T" --device 0 "$T/m"
}

@test "ENGINE_ID 1 waits until something is published" {
  with_model
  ENGINE_ID=1 start_bg reader gms-load --socket "$SOCKET" --verify "$T/m"
  run -0 gload "$T/m"
  expect_exit "$BG_PID" 0
  grep -q '^imported 3 tensors' "$T/reader.out"
}

@test "a lock that is not granted in time is 75, a missing server 69" {
  make_model "$T/m"
  fails 69 "*'$SOCKET'*" gload "$T/m"
  ends_with 69 gload --timeout 20ms "$T/m"
  serve
  fails 75 "acquire lock ro of '$SOCKET': timed out" gload --role ro --timeout 20ms "$T/m"
}

@test "with a timeout, a server that starts later is waited for" {
  make_model "$T/m"
  start_bg load gms-load --socket "$SOCKET" --timeout 30s "$T/m"
  loader=$BG_PID
  serve
  expect_exit "$loader" 0
}

@test "a writer killed with SIGKILL during a load publishes nothing, and a reader waits on" {
  with_model
  GMS_SIM_FAULTS=cuMemMap:2=hang start_bg writer gms-load --socket "$SOCKET" --slab 64KiB "$T/m"
  writer=$BG_PID
  wait_for "state | grep -q '\"allocation_count\": *3'"
  start_bg reader gms-load --socket "$SOCKET" --role ro "$T/m"
  reader=$BG_PID
  kill -KILL "$writer"
  wait_for "state | grep -q '\"allocation_count\": *0'"
  expect_nothing_published
  kill -0 "$reader"
  run -0 gload --role rw "$T/m"
  expect_exit "$reader" 0
  grep -q "layout ${output##* }" "$T/reader.out"
}

@test "SIGTERM during a load publishes nothing" {
  with_model
  GMS_SIM_FAULTS=cuMemMap:1=hang start_bg writer gms-load --socket "$SOCKET" "$T/m"
  wait_for "state | grep -q '\"allocation_count\": *1'"
  terminate "$BG_PID" 143
  wait_for expect_nothing_published
}

@test "--verify compares device memory with the files" {
  with_model
  run -0 gload --verify --ring 1MiB --copy-threads 2 "$T/m"
  run -0 gload --verify --role ro "$T/m"
  # Changes a byte in device memory.
  for file in "$GMS_SIM_DIR"/device-0/*; do
    if [ "${file##*/}" != book ]; then printf '\xff' | dd of="$file" conv=notrunc status=none; fi
  done
  fails 65 "verify tensor 'embed': device memory differs from '$T/m/a.safetensors'" gload --verify --role ro "$T/m"
}

@test "--pin-content computes the hash from the content" {
  with_published
  run -0 gload --role rw --pin-content "$T/m"
  [[ $output != *"layout $layout" ]]
}

# --- snapshots, and dropping ----------------------------------------------------------------------

@test "a snapshot restores the layout hash, and its checksums are verified" {
  with_published
  gms-save --socket "$SOCKET" "$T/snap" 3>&- >"$T/saved"
  ends_with 0 gload --snapshot "$T/snap"
  [[ $output == "imported 3 tensors, 3.4 MiB in 1 allocation, "*", layout $layout" ]]
  ends_with 0 gload --role rw --snapshot "$T/snap" --verify
  [[ $output == "published 3 tensors, 4 MiB in 1 allocation, "*", layout $layout" ]]
  [ -z "$stderr" ]
  printf '\xff' | dd of="$T/snap/shards/shard_0000.bin" bs=1 seek=2000000 conv=notrunc status=none
  damaged="gms-load: error: read '$T/snap/shards/shard_0000.bin': its SHA-256 differs from that in checksums.sha256"
  ends_with 65 gload --role rw --snapshot "$T/snap"
  [ "$stderr" = "$damaged" ]
  state | grep -q "\"memory_layout_hash\": *\"$layout\""
  ends_with 65 gload --role rw --snapshot "$T/snap" --replace-first
  [ "$stderr" = "$damaged" ]
  expect_nothing_published
  run -0 gload --role rw --snapshot "$T/snap" --no-verify
  [[ $output == *"layout $layout" ]]
  rm "$T/snap/checksums.sha256"
  ends_with 0 gload --role rw --snapshot "$T/snap"
  [ "$stderr" = "gms-load: warning: snapshot '$T/snap': no checksums.sha256, its bytes are not verified" ]
}

@test "--unpublish removes the layout, waits for readers, and needs no driver with --socket" {
  with_published
  GMS_DRIVER=/nonexistent ends_with 0 gload --unpublish --json
  [ "$output" = "{\"allocations\": 1, \"memory_layout_hash\": \"$layout\"}" ]
  expect_nothing_published
  answers 0 "nothing was published" gload --unpublish
  ends_with 69 gms-load --socket "$T/absent" --unpublish
  run -0 gload "$T/m"
  answers 0 "unpublished 1 allocation, layout $layout" gload --unpublish --timeout 20s
}

@test "missing files are 66 also without a driver" {
  fails 66 "open '$T/m': No such file or directory" gms-load --driver /nonexistent "$T/m"
  ends_with 66 gms-load --driver /nonexistent --role ro "$T/m"
  fails 66 "open '$T/m': No such file or directory" gms-load --driver /nonexistent --snapshot "$T/m"
}

# --- what is refused ------------------------------------------------------------------------------

@test "a model that is refused leaves the layout published" {
  with_published
  # refused STATUS REASON: a load of $T/bad fails like this.
  refused() {
    fails "$1" "$2" gload --role rw "$T/bad"
    state | grep -q "\"memory_layout_hash\": *\"$layout\""
  }
  refused 66 "open '$T/bad': No such file or directory"
  make_model "$T/bad"
  truncate -s -1 "$T/bad/b.safetensors"
  refused 65 "read '$T/bad/b.safetensors': tensor 'head': its bytes extend past the end of the file"
  echo nonsense >"$T/bad/model.safetensors.index.json"
  refused 65 "read '$T/bad/model.safetensors.index.json': not JSON at byte 2*"
  rm -r "$T/bad"
  make_file "$T/bad" '{"t":{"dtype":"U8","shape":[70000000],"data_offsets":[0,70000000]}}' 0
  truncate -s +70000000 "$T/bad"
  refused 75 "*66.8 MiB do not fit device 0, which has a total of 64 MiB*"
}

@test "a model that does not fit the free memory is 75, and nothing is published" {
  serve --alloc-retry-timeout 50ms --alloc-retry-interval 10ms
  fill 40000000
  make_file "$T/m" '{"t":{"dtype":"U8","shape":[40000000],"data_offsets":[0,40000000]}}' 0
  truncate -s +40000000 "$T/m"
  fails 75 "GMS at '$SOCKET' refused allocate_many_request: *" gload "$T/m"
  wait_for expect_nothing_published
}

@test "a closed or full standard output is an error" {
  with_model
  fails 74 "write to standard output: *" bash -c 'gms-load --socket "$0" "$1" >&- 3>&-' "$SOCKET" "$T/m"
  full_stdout gload "$T/m"
}

# --- progress -------------------------------------------------------------------------------------

@test "a terminal on standard error shows progress, unless -q" {
  need_terminal
  with_model
  script -qec "gms-load --socket $SOCKET --role rw $T/m >$T/out" /dev/null </dev/null >"$T/terminal" 3>&-
  grep -q '%  .* of 3.4 MiB' "$T/terminal"
  grep -q '^published' "$T/out"
  script -qec "gms-load -q --socket $SOCKET --role rw $T/m >$T/out" /dev/null </dev/null >"$T/terminal" 3>&-
  [ ! -s "$T/terminal" ]
  ends_with 0 gload --role rw "$T/m"
  [ -z "$stderr" ]
}
