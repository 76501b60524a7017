#!/usr/bin/env bats
# gms-save: the behaviour on its page.

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SIM_VRAM=64MiB
  SOCKET=$T/gms.sock
  SNAP=$T/snap
}

teardown() {
  if [ -n "${MOUNTED:-}" ]; then umount -l "$MOUNTED"; fi
  fo_teardown
}

# serve: starts a server on $SOCKET with a published model of 3 MB; its hash is in $HASH.
serve() {
  serve_at "$SOCKET"
  make_file "$T/m" \
    '{"a":{"dtype":"U8","shape":[3000000],"data_offsets":[0,3000000]},"b":{"dtype":"F32","shape":[5],"data_offsets":[3000000,3000020]}}' 3000020
  gms-load --socket "$SOCKET" --role rw "$T/m" >"$T/loaded" 3>&-
  HASH=$(sed 's/.* //' "$T/loaded")
}

gsave() { gms-save --socket "$SOCKET" "$@" 3>&-; }

# names: prints the existing names of the snapshot: its own, and those of unfinished ones.
names() { find "$T" -maxdepth 1 -name 'snap*' -printf '%f\n'; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad command lines are usage errors, before any connection" {
  usage_errors gms-save "" "d d" "d --unknown" "d --timeout 5" "d --copy-threads 0" "d --ring -1" "d --device -1" \
    "d --socket s --tag t"
}

@test "a missing server is 69, a lock that is not granted in time 75" {
  fails 69 "*'$SOCKET'*" gsave "$SNAP"
  serve_at "$SOCKET"
  fails 75 "acquire lock ro of '$SOCKET': timed out" gsave --timeout 20ms "$SNAP"
  [ -z "$(names)" ]
}

# --- saving ---------------------------------------------------------------------------------------

@test "a snapshot passes sha256sum -c, and gms-load loads it under the same layout hash" {
  serve
  ends_with 0 gsave --json "$SNAP"
  [ -z "$stderr" ]
  [[ $output =~ ^'{"bytes": 4194304, "seconds": '[0-9]+\.[0-9]+', "tensors": 2, "allocations": 1, "shards": 1, "memory_layout_hash": "'$HASH'"}'$ ]]
  [ "$(names)" = snap ]
  (cd "$SNAP" && sha256sum -c --strict --quiet checksums.sha256)
  run -0 bash -c "cd '$SNAP' && find . -type f | sort"
  [ "$output" = "./checksums.sha256
./gms_metadata.json
./manifest.json
./shards/shard_0000.bin" ]
  head -c 3000000 "$SNAP/shards/shard_0000.bin" | cmp - <(seq 1 3000020 | head -c 3000000)
  run -0 gms-load --socket "$SOCKET" --unpublish 3>&-
  run -0 gms-load --socket "$SOCKET" --snapshot "$SNAP" 3>&-
  [[ $output == "published 2 tensors, 4 MiB in 1 allocation, in "*", layout $HASH" ]]
  fails 73 "save to '$SNAP': it exists already" gsave "$SNAP"
  run -0 gsave --replace "$SNAP"
  [[ $output == "saved 2 tensors, 4 MiB in 1 allocation and 1 shard, in "*" s ("*"/s), layout $HASH" ]]
}

@test "a path without a folder name is refused before the server is queried" {
  cd "$T" || return 1
  for place in "" / . x/..; do
    fails 73 "save to '$place': not a folder name" gsave "$place"
  done
}

@test "a folder that can't hold the snapshot is refused, also without a driver" {
  fails 73 "save to '$T/absent/snap': No such file or directory" gms-save --driver /nonexistent "$T/absent/snap"
}

@test "a folder that may not be written to is 77" {
  if [ "$(id -u)" -eq 0 ]; then skip_because not-root "root may write anywhere"; fi
  serve
  mkdir -m 500 "$T/locked"
  ends_with 77 gsave "$T/locked/snap"
}

# --- failures -------------------------------------------------------------------------------------

@test "a file size limit is a failed write, and leaves nothing" {
  serve
  # A simulated context's file would exceed the limit, too.
  export GMS_SIM_CONTEXT_SIZE=0
  ends_with 74 bash -c "ulimit -f 1024; gms-save --socket '$SOCKET' '$SNAP' 3>&-"
  [[ $stderr == "gms-save: error: write '$SNAP.partial-"*"/shards/shard_0000.bin': File too large" ]]
  [ -z "$(names)" ]
}

@test "a full disk is found before anything is copied, and leaves nothing" {
  serve
  mkdir "$T/small"
  mount -t tmpfs -o size=2m none "$T/small" 2>/dev/null || skip_because mount "no right to mount"
  MOUNTED=$T/small
  GMS_SIM_FAULTS=cuMemcpyDtoH:1=kill ends_with 74 gsave --ring 1MiB "$T/small/snap"
  [[ $stderr == "gms-save: error: write '$T/small/snap.partial-"*"': No space left on device" ]]
  [ -z "$(ls "$T/small")" ]
}

@test "a mount point is refused before anything is copied" {
  serve
  mkdir "$T/small"
  mount -t tmpfs -o size=8m none "$T/small" 2>/dev/null || skip_because mount "no right to mount"
  MOUNTED=$T/small
  GMS_SIM_FAULTS=cuMemcpyDtoH:1=kill fails 73 "save to '$T/small': it is a mount point" gsave --ring 1MiB "$T/small"
  [ "$(find "$T" -name 'small*')" = "$T/small" ]
}

@test "SIGTERM during a save leaves nothing" {
  serve
  GMS_SIM_LATENCY=cuMemcpyDtoH=50ms start_bg save gms-save --socket "$SOCKET" --ring 128KiB \
    --copy-threads 1 "$SNAP"
  saver=$BG_PID
  wait_for "ls '$SNAP'.partial-*/shards/shard_0000.bin"
  terminate "$saver" 143
  [ -z "$(names)" ]
}

@test "a writer waits until the save is done" {
  serve
  GMS_SIM_FAULTS=cuMemcpyDtoH:2=hang start_bg save gms-save --socket "$SOCKET" --ring 1MiB "$SNAP"
  saver=$BG_PID
  wait_for "ls '$SNAP'.partial-*/shards/shard_0000.bin"
  ends_with 75 gms-load --socket "$SOCKET" --unpublish --timeout 20ms
  [ "$stderr" = "gms-load: error: acquire lock rw of '$SOCKET': timed out" ]
  kill -KILL "$saver"
  run -0 gms-load --socket "$SOCKET" --unpublish 3>&-
  [[ $output == "unpublished 1 allocation, "* ]]
}

@test "a closed or full standard output is an error, and the snapshot exists" {
  serve
  full_stdout gsave "$SNAP"
  [ -e "$SNAP/manifest.json" ]
}

@test "a terminal on standard error shows progress, unless -q" {
  need_terminal
  serve
  script -qec "gms-save --socket $SOCKET $SNAP >$T/out" /dev/null </dev/null >"$T/terminal" 3>&-
  grep -q '%  .* of 4 MiB' "$T/terminal"
  grep -q '^saved' "$T/out"
  script -qec "gms-save -q --replace --socket $SOCKET $SNAP >$T/out" /dev/null </dev/null >"$T/terminal" 3>&-
  [ ! -s "$T/terminal" ]
}

@test "a signal clears the progress line" {
  need_terminal
  serve
  GMS_SIM_LATENCY=cuMemcpyDtoH=50ms start_bg save script -qec "gms-save --socket $SOCKET --ring 128KiB \
    --copy-threads 1 $SNAP & echo \$! >$T/pid; wait" "$T/terminal"
  wait_for "grep -q '%  .* of 4 MiB' '$T/terminal'"
  kill -TERM "$(cat "$T/pid")"
  wait_exit "$BG_PID"
  grep -q $'\r\033\\[K' "$T/terminal"
}
