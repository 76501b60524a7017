#!/usr/bin/env bats
# gms-serve: the behaviour on its page. tests/gms has a server's behaviour towards its clients.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  D=$T/gms
  mkdir "$D"
}

# serve [OPTION]...: for servers that are expected to end by themselves.
serve() { timeout 20 gms-serve "$@" 3>&-; }

# left: prints the files in the server's folder, except lock files, which stay.
left() { find "$D" -mindepth 1 ! -name '*.lock' -printf '%f\n'; }

# start_bundle [OPTION]...: starts servers in $D, and waits until they are ready. Sets BG_PID.
start_bundle() {
  start_bg gms gms-serve --socket-dir "$D" "$@"
  wait_for "[ -e $D/gms-ready ]"
}

# start_one [OPTION]...: starts one server at $S, and waits until it is ready. Sets BG_PID.
start_one() {
  S=$T/one.sock
  start_bg gms gms-serve --socket-path "$S" --ready-fd 9 "$@" 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
}

# make_snapshot: publishes a small layout at $S, and saves it to $T/snapshot; its server is killed.
# Sets $hash.
make_snapshot() {
  start_one
  make_file "$T/m.safetensors" '{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' 4
  gms-load --socket "$S" "$T/m.safetensors" -q >"$T/load"
  gms-save --socket "$S" "$T/snapshot" -q >"$T/save"
  hash=$(gms-stat --socket "$S" --json | jq -r .memory_layout_hash)
  kill_now "$BG_PID"
}

children_of() { tr ' ' '\n' <"/proc/$1/task/$1/children" | sed '/^$/d'; }

# --- argv -----------------------------------------------------------------------------------------

@test "bad values, and options that don't go together, are usage errors" {
  usage_errors "gms-serve --socket-dir $D" "--devices x" "--devices 0,0" "--devices 1024" "--devices 0,," "--devices -1" \
    "--tags a/b" "--tags a,a" "--tags a,,b" "--device 1" "--tag t" "--socket-path $T/s --device -1" \
    "--socket-path $T/s --devices 0" "--socket-path $T/s --tags t" "--ready-fd 2" "--ready-fd x" \
    "--on-crash x" "--alloc-retry-timeout 5" "--alloc-retry-interval -1s" "extra" "-- extra"
  [ "$(left)" = "" ]
}

@test "invalid --devices and a ready descriptor that is not open: 64, with the reason" {
  fails 64 "--devices: 'garbage' is not a device number, 0 to 1023" serve --devices garbage
  fails 64 "use --ready-fd 99: Bad file descriptor" serve --socket-dir "$D" --ready-fd 99
}

@test "a different order of devices in NVML causes a warning" {
  local order
  for order in "" 1; do
    start_bg gms env GMS_DRIVER=cuda LD_LIBRARY_PATH="$FO_BUILD/tests/unmarked" GMS_SIM_DEVICES=2 \
      ${order:+FO_TEST_NVML_REVERSED=1} gms-serve --socket-dir "$D" --devices 0,1 --tags weights
    wait_for "[ -e $D/gms-ready ]"
    terminate "$BG_PID"
    if [ -n "$order" ]; then
      grep -q "^gms-serve: warning: CUDA's device 0 is NVML's device 1: .*CUDA_DEVICE_ORDER=PCI_BUS_ID" "$T/gms.err"
      grep -q "^gms-serve: warning: CUDA's device 1 is NVML's device 0: " "$T/gms.err"
    else
      run ! grep NVML "$T/gms.err"
    fi
  done
}

@test "a socket path of over 107 bytes is 64, and nothing is created" {
  local path
  path=$D/$(printf 'x%.0s' {1..100})
  fails 64 "socket path '$path': ${#path} bytes, at most 107 are allowed" serve --socket-path "$path"
  [ "$(left)" = "" ]
}

@test "a flag beats the environment, which beats the configuration file" {
  mkdir "$T/from-file"
  cat >"$T/config.toml" <<END
socket-dir = "$T/from-file"
devices = [1]
tags = ["a", "b"]
alloc-retry-timeout = "3s"
END
  start_bg gms gms-serve --config "$T/config.toml"
  wait_for "[ -e $T/from-file/gms-ready ]"
  [ "$(cd "$T/from-file" && echo gms_[0-9]*.sock)" = "gms_1_a.sock gms_1_b.sock" ]
  GMS_SOCKET_DIR=$D start_bg other gms-serve --config "$T/config.toml" --tags c
  wait_for "[ -e $D/gms-ready ]"
  [ "$(cd "$D" && echo gms_[0-9]*.sock)" = gms_1_c.sock ]
}

@test "a bad value in the configuration file is 78" {
  echo 'devices = "some"' >"$T/config.toml"
  ends_with 78 serve --config "$T/config.toml"
  [ "$stderr" = "gms-serve: error: read configuration '$T/config.toml': devices: 'some' is not a device number, 0 to 1023" ]
}

# --- the driver -----------------------------------------------------------------------------------

@test "no driver is 69, and the message names the simulated one" {
  CUDA_VISIBLE_DEVICES='' GMS_DRIVER='' fails 69 "no *CUDA driver: *; GMS_DRIVER=sim selects the simulated one" \
    serve --socket-dir "$D"
  [ "$(left)" = "" ]
}

@test "a driver that does not work is 69, an unknown one 78, and a flag overrides the environment" {
  GMS_SIM_FAULTS='cuInit:1=unknown' ends_with 69 serve --socket-dir "$D"
  [ "$stderr" = "gms-serve: error: no usable CUDA driver: cuInit: CUDA_ERROR_UNKNOWN (999)" ]
  GMS_DRIVER=simulated fails 78 "driver 'simulated': not auto, cuda, sim or a path" serve --socket-dir "$D"
  GMS_DRIVER=simulated start_bundle --driver "$FO_BUILD/lib/sim/libcuda.so.1"
}

@test "a missing device is 69, a failing one 70, and nothing stays" {
  fails 69 "CUDA device 9: CUDA_ERROR_INVALID_DEVICE (101)" serve --socket-dir "$D" --devices 0,9
  GMS_SIM_FAULTS='cuMemGetAllocationGranularity:1=700' ends_with 70 serve --socket-dir "$D"
  [ "$stderr" = "gms-serve: error: CUDA device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)" ]
  [ "$(left)" = "" ]
}

@test "devices are those that are visible to this process" {
  CUDA_VISIBLE_DEVICES=1 start_bundle --tags weights
  local seen=("$D"/gms_[0-9]*.sock)
  [ "${seen[*]}" = "$D/gms_0.sock $D/gms_0_weights.sock" ]
}

# --- a bundle -------------------------------------------------------------------------------------

@test "a bundle: a server for each device and tag, links by number, and a newline when ready" {
  start_bundle --ready-fd 9 9>"$T/ready"
  [ "$(left | grep -cE '^gms_GPU-[0-9a-f-]{36}_(weights|kv_cache)\.sock$')" -eq 4 ]
  [ "$(left | wc -l)" -eq 11 ]
  [ "$(stat -c %a "$D"/gms_GPU-*_weights.sock | sort -u)" = 600 ]
  local device tag
  for device in 0 1; do
    for tag in weights kv_cache; do
      [[ $(readlink "$D/gms_${device}_$tag.sock") == gms_GPU-*"_$tag.sock" ]]
      [ "$(stat_field state --socket "$D/gms_${device}_$tag.sock")" = EMPTY ]
    done
    [ "$(readlink "$D/gms_$device.sock")" = "$(readlink "$D/gms_${device}_weights.sock")" ]
  done
  wait_for "[ ! -e /proc/$BG_PID/fd/9 ]"
  [ "$(od -An -c "$T/ready" | tr -d ' ')" = '\n' ]
  [ "$(cat "$T/gms.out")" = "" ]
  [ "$(cat "$T/gms.err")" = "gms-serve: info: ready: 4 servers" ]
}

@test "a service manager receives ready and stopping" {
  start_manager
  start_bundle --devices 0
  wait_for "grep -qx READY=1 $T/told"
  end_bg
  wait_for "grep -qx READY=1STOPPING=1 $T/told"
}

@test "without a given folder, the sockets are in TMPDIR" {
  TMPDIR=$D start_bg gms gms-serve --devices 0 --tags weights
  wait_for "[ -e $D/gms-ready ]"
  [ "$(stat_field state --socket-dir "$D")" = EMPTY ]
}

@test "SIGTERM disconnects clients and removes all but lock files: 0" {
  start_bundle
  local server=$BG_PID
  publish "$D/gms_0.sock" 1000
  ask_lock reader ro "$D/gms_0.sock"
  wait_for "[ \"\$(stat_field ro_session_count --socket $D/gms_0.sock)\" = 1 ]"
  terminate "$server"
  [ "$(left)" = "" ]
  wait_exit "$BG_PID"
  [ "$(grep -c ': error: ' "$T/gms.err")" -eq 0 ]
}

@test "Ctrl-C and Ctrl-\\, which the whole process group gets, end it in the same way" {
  local signal
  for signal in INT QUIT; do
    start_bg gms setsid gms-serve --socket-dir "$D"
    wait_for "[ -e $D/gms-ready ]"
    [ "$(ps -o pgid= -p "$BG_PID" | tr -d ' ')" = "$BG_PID" ]
    kill "-$signal" -- "-$BG_PID"
    expect_exit "$BG_PID" 0
    [ "$(left)" = "" ]
    [ "$(cat "$T/gms.err")" = "gms-serve: info: ready: 4 servers" ]
  done
}

@test "a second signal does not wait for a server that hangs" {
  GMS_SIM_FAULTS='cuMemCreate:1=hang' start_bundle
  local server=$BG_PID
  {
    frame type handshake_request lock_type rw timeout_ms nil
    frame type allocate_request size 4096
  } >"$T/writer.request"
  start_bg writer socat "OPEN:$T/writer.request,rdonly,ignoreeof!!STDOUT" "UNIX-CONNECT:$D/gms_0.sock"
  wait_for "[ \"\$(stat_field state --socket $D/gms_0.sock)\" = RW ]"
  kill -TERM "$server"
  wait_for "[ ! -e $D/gms-ready ]"
  kill -TERM "$server" 2>/dev/null || :
  expect_exit "$server" 0
  [ "$(left)" = "" ]
}

@test "--on-crash exit: a server's death ends the others, and its status is returned: 137" {
  start_bundle --on-crash exit
  local child children
  children=$(children_of "$BG_PID")
  [ "$(wc -l <<<"$children")" -eq 4 ]
  kill -KILL "$(sed -n 2p <<<"$children")"
  expect_exit "$BG_PID" 137
  for child in $children; do run ! kill -0 "$child"; done
  [ "$(left)" = "" ]
  [[ $(tail -n 1 "$T/gms.err") == "gms-serve: error: server ended with status 137: device=0 tag="* ]]
}

@test "a GPU that fails while it serves ends everything with 70" {
  GMS_SIM_FAULTS='cuMemCreate:1=700' start_bundle
  publish "$D/gms_1.sock" 1000 || :
  expect_exit "$BG_PID" 70
  [ "$(left)" = "" ]
  [ "$(grep -c '^gms-serve: error: .*CUDA_ERROR_ILLEGAL_ADDRESS (700)$' "$T/gms.err")" -eq 1 ]
  grep -qx 'gms-serve: error: server ended with status 70: device=1 tag=weights' "$T/gms.err"
}

@test "a parent's death ends its servers, and its leftovers are replaced" {
  start_bundle
  local child children
  children=$(children_of "$BG_PID")
  publish "$D/gms_0.sock" 1000
  kill_now "$BG_PID"
  for child in $children; do wait_for "! kill -0 $child"; done
  [ -e "$D/gms-ready" ]
  ends_with 69 gms-stat --socket "$D/gms_0.sock"
  rm "$D/gms_0.sock"
  start_bg second gms-serve --socket-dir "$D"
  wait_for "grep -q ready $T/second.err"
  [ "$(stat_field state --socket "$D/gms_0.sock")" = EMPTY ]
  terminate "$BG_PID"
  [ "$(left)" = "" ]
}

@test "a stale ready file is removed even without a driver" {
  echo stale >"$D/gms-ready"
  GMS_DRIVER=/nonexistent ends_with 69 serve --socket-dir "$D"
  [ ! -e "$D/gms-ready" ]
}

@test "a link in place of the ready file is not followed" {
  echo precious >"$T/target"
  # Creates the link again as soon as it is removed.
  # shellcheck disable=SC2016
  start_bg planter sh -c 'while :; do ln -s "$0/target" "$1/gms-ready" 2>/dev/null; done' "$T" "$D"
  planter=$BG_PID
  wait_for "[ -L $D/gms-ready ]"
  start_bg gms gms-serve --socket-dir "$D" --devices 0 --ready-fd 9 9>"$T/ready"
  # If the link is first, the server ends; if the ready file is first, it becomes ready.
  wait_for "[ -s $T/ready ] || ! kill -0 $BG_PID"
  kill -KILL "$planter"
  [ "$(cat "$T/target")" = precious ]
  if [ ! -s "$T/ready" ]; then
    expect_exit "$BG_PID" 73
    grep -q "create ready file '$D/gms-ready': a symbolic link, which is not followed" "$T/gms.err"
  fi
}

@test "a second bundle in a folder is refused, 73, and changes nothing" {
  start_bundle --devices 0
  local before
  before=$(ls -lA "$D")
  fails 73 "serve in folder '$D': another gms-serve uses it" serve --socket-dir "$D"
  [ "$(ls -lA "$D")" = "$before" ]
  ends_with 73 serve --socket-dir "$D" --devices 1
  [ "$(stat_field state --socket "$D/gms_0.sock")" = EMPTY ]
  [ "$(cd "$D" && echo gms_[0-9]*.sock)" = "gms_0.sock gms_0_kv_cache.sock gms_0_weights.sock" ]
}

@test "a missing folder, and a file in a link's place, are 73" {
  fails 73 "open lock file '$T/none/gms-ready.lock': missing folder '$T/none'" serve --socket-dir "$T/none"
  echo precious >"$D/gms_0.sock"
  fails 73 "create link '$D/gms_0.sock': a file exists there" serve --socket-dir "$D"
  [ "$(left)" = gms_0.sock ]
  [ "$(cat "$D/gms_0.sock")" = precious ]
}

@test "a full file system is 73, and nothing but lock files stays" {
  need_mount
  # shellcheck disable=SC2016
  observe unshare --map-root-user --mount sh -c '
    mount -t tmpfs -o nr_inodes=3 none "$0" || exit 1
    timeout 20 gms-serve --socket-dir "$0" 3>&-
    status=$?
    ls "$0"
    exit "$status"' "$D"
  [ "$status" -eq 73 ]
  [[ $stderr == "gms-serve: error: bind socket '$D/gms_GPU-"*".sock': No space left on device" ]]
  [[ ${lines[1]} == gms_GPU-*.sock.lock ]]
  [ "${lines[*]}" = "gms-ready.lock ${lines[1]}" ]
}

@test "a ready descriptor that can't be written is 74, and nothing stays" {
  ends_with 74 serve --socket-dir "$D" --ready-fd 9 -q 9>/dev/full
  [ "$stderr" = "gms-serve: error: write to the ready descriptor: No space left on device" ]
  [ "$(left)" = "" ]
}

# --- one server -----------------------------------------------------------------------------------

@test "--socket-path: one server, no links, no ready file, also where GMS_SOCKET_DIR is set" {
  export GMS_SOCKET_DIR=$D
  start_one --device 1 --tag any -q
  [ "$(left)" = "" ]
  [ -S "$S" ]
  [ "$(stat_field state --socket "$S")" = EMPTY ]
  terminate "$BG_PID"
  [ ! -e "$S" ]
  [ -e "$S.lock" ]
  [ "$(cat "$T/gms.err")" = "" ]
}

@test "a second server on a socket is refused, 73; a dead socket is replaced; a file is not" {
  dead_socket "$T/one.sock"
  start_one
  fails 73 "serve socket '$S': another server uses it" serve --socket-path "$S"
  [ "$(stat_field state --socket "$S")" = EMPTY ]
  echo precious >"$T/file"
  fails 73 "serve socket '$T/file': not a socket" serve --socket-path "$T/file"
  [ "$(cat "$T/file")" = precious ]
}

@test "a socket of another server is left alone" {
  echo_server "$T/one.sock"
  fails 73 "serve socket '$T/one.sock': another server uses it" serve --socket-path "$T/one.sock"
  kill -0 "$BG_PID"
  [ -S "$T/one.sock" ]
}

@test "an allocation beyond the memory is refused in time, and the server runs on" {
  GMS_SIM_VRAM=4MiB start_one --alloc-retry-interval 10ms --alloc-retry-timeout 50ms
  publish "$S" 2097152 4194304 2097152
  [ "$(stat_field allocation_count --socket "$S")" = 2 ]
  [ "$(stat_field state --socket "$S")" = COMMITTED ]
  [ "$(grep -c '^gms-serve: warning: out of memory for 4 MiB, retrying: this layout has 2 MiB in 1 allocation, others 0 B, of 4 MiB: device=0 tag=weights session=[0-9]* pid=[0-9]* uid=[0-9]*$' "$T/gms.err")" -eq 1 ]
}

@test "a host out of memory looks like a device out of memory" {
  need_mount
  S=$T/one.sock
  # shellcheck disable=SC2016
  start_bg gms unshare --map-root-user --mount sh -c '
    mount -t tmpfs -o size=4m none "$GMS_SIM_DIR" || exit 1
    exec gms-serve --socket-path "$0" --alloc-retry-timeout 0' "$S"
  wait_for "grep -q ready $T/gms.err"
  publish "$S" 2097152 4194304
  [ "$(stat_field allocation_count --socket "$S")" = 1 ]
  [ "$(stat_field state --socket "$S")" = COMMITTED ]
}

@test "SIGTERM also ends it while the driver hangs at the start" {
  GMS_SIM_FAULTS='cuInit:1=hang' start_bg gms gms-serve --socket-dir "$D"
  wait_for "[ -n \"\$(children_of $BG_PID)\" ]"
  terminate "$BG_PID"
  [ "$(left)" = "" ]
}

# --- A crash, a snapshot, metrics -----------------------------------------------------------------

@test "a server that is killed is restarted, with the layout that it had published" {
  start_one -v
  publish "$S" 1000
  before=$(gms-stat --socket "$S" --list --json)
  kill -KILL "$(children_of "$BG_PID")"
  after=$(gms-stat --socket "$S" --list --json)
  [ "$before" = "$after" ]
  grep -qx "gms-serve: warning: server died of signal 9, restarting it with 1 allocation: device=0 tag=weights" "$T/gms.err"
  grep -q "^gms-serve: info: restored 1 allocation, layout [0-9a-f]\{64\}: device=0 tag=weights$" "$T/gms.err"
  terminate "$BG_PID"
}

# bats test_tags=slow
@test "the sixth crash within a minute ends it: 137" {
  start_one
  publish "$S" 1000
  for crash in 1 2 3 4 5 6; do
    child=$(children_of "$BG_PID")
    kill -KILL "$child"
    [ "$crash" -eq 6 ] || gms-stat --socket "$S" --timeout 20s >"$T/stat"
  done
  expect_exit "$BG_PID" 137
  [ "$(tail -n 1 "$T/gms.err")" = "gms-serve: error: server died of signal 9, too many times: device=0 tag=weights" ]
}

@test "--restore loads a snapshot into a new server, but not again after an unpublish" {
  make_snapshot
  start_one --restore "$T/snapshot"
  gms-stat --socket "$S" --json | grep -q "\"memory_layout_hash\":\"$hash\""
  # A crash does not restore what was unpublished.
  gms-load --socket "$S" --unpublish -q >"$T/unpublish"
  kill -KILL "$(children_of "$BG_PID")"
  gms-stat --socket "$S" --json | grep -q '"state":"EMPTY"'
}

@test "a server that dies while its snapshot is loaded loads it again, and becomes ready" {
  make_snapshot
  S=$T/one.sock
  : >"$T/ready"
  GMS_SIM_LATENCY=cuMemCreate=300ms start_bg gms gms-serve --socket-path "$S" --ready-fd 9 \
    --restore "$T/snapshot" 9>"$T/ready"
  wait_for "gms-stat --socket $S --json | grep -q '\"state\":\"RW\"'"
  [ ! -s "$T/ready" ]
  # The second child is the loader.
  kill -KILL "$(children_of "$BG_PID" | head -n 1)"
  wait_for "[ -s $T/ready ]"
  gms-stat --socket "$S" --json | grep -q "\"memory_layout_hash\":\"$hash\""
  [ "$(children_of "$BG_PID" | wc -l)" -eq 1 ]
  terminate "$BG_PID"
}

@test "SIGTERM during the load of a snapshot, and between two starts, ends it: 0" {
  make_snapshot
  GMS_SIM_LATENCY=cuMemCreate=10s start_bg gms gms-serve --socket-path "$S" --restore "$T/snapshot"
  wait_for "gms-stat --socket $S --json | grep -q '\"state\":\"RW\"'"
  kill "$BG_PID"
  terminate "$BG_PID"
  start_one
  for crash in 1 2 3; do
    kill -KILL "$(children_of "$BG_PID")"
    [ "$crash" -eq 3 ] || gms-stat --socket "$S" --timeout 20s >"$T/stat"
  done
  terminate "$BG_PID"
}

@test "without gms-load, the server serves without a layout" {
  mkdir "$T/bin"
  cp "$FO_BIN/gms-serve" "$T/bin"
  S=$T/one.sock
  GMS_SIM_LIBRARY=$FO_BUILD/lib/sim/libcuda.so.1 PATH=/usr/bin:/bin \
    start_bg gms "$T/bin/gms-serve" --socket-path "$S" --ready-fd 9 --restore "$T" 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
  gms-stat --socket "$S" --json | grep -q '"state":"EMPTY"'
  grep -q "^gms-serve: error: restore '$T': .*gms-load" "$T/gms.err"
}

@test "a snapshot that can't be restored is an error line, and the server has no layout" {
  start_one --restore "$T/nowhere"
  gms-stat --socket "$S" --json | grep -q '"state":"EMPTY"'
  grep -q "^gms-load: error: .*nowhere" "$T/gms.err"
  grep -qx "gms-serve: error: restore '$T/nowhere': gms-load ended with status 66: device=0 tag=weights" "$T/gms.err"
}

@test "--metrics: a page that promtool accepts, and counters that survive a crash" {
  need_promtool
  pick_port
  start_one --metrics "127.0.0.1:$PORT"
  publish "$S" 1000
  kill -KILL "$(children_of "$BG_PID" | tail -n 1)"
  gms-stat --socket "$S" >"$T/stat"
  wait_for "curl -sf http://127.0.0.1:$PORT/metrics | grep -q '^gms_restarts_total{.*} 1$'"
  curl -sf "http://127.0.0.1:$PORT/metrics" >"$T/metrics"
  promtool check metrics <"$T/metrics"
  grep -q '^gms_commits_total{.*} 1$' "$T/metrics"
  grep -q '^gms_layout_protected{.*} 1$' "$T/metrics"
  grep -q '^gms_allocations{.*} 1$' "$T/metrics"
  run -22 curl -sf "http://127.0.0.1:$PORT/nothing"
  [ "$(curl -sf "http://127.0.0.1:$PORT/live")" = '{"status":"live"}' ]
  wait_for "[ \"\$(curl -sf http://127.0.0.1:$PORT/ready)\" = '{\"status\":\"ready\"}' ]"
  # The metrics' process is restarted after a kill, without an effect on the memory.
  kill -KILL "$(children_of "$BG_PID" | head -n 1)"
  wait_for "curl -sf http://127.0.0.1:$PORT/metrics | grep -q '^gms_commits_total{.*} 1$'"
  terminate "$BG_PID"
}

@test "an address for metrics that is in use is 73, and nothing stays" {
  pick_port
  start_one --metrics "127.0.0.1:$PORT"
  fails 73 "listen on '127.0.0.1:$PORT': *" serve --socket-dir "$D" --metrics "127.0.0.1:$PORT"
  [ "$(left)" = "" ]
  ends_with 64 serve --socket-dir "$D" --metrics garbage
}

# --- Who may connect ------------------------------------------------------------------------------

# end_bg: ends the last background process.
end_bg() {
  kill "$BG_PID"
  wait "$BG_PID"
  rm -f "$T/ready"
}

@test "--socket-mode, --allow-uid and --allow-gid take numbers only" {
  usage_errors "gms-serve --socket-dir $D" "--socket-mode 0888" "--socket-mode 1000" "--socket-mode rw" "--socket-mode 00600" \
    "--allow-uid nobody" "--allow-uid -1" "--allow-uid 1,,2" "--allow-uid 4294967295" \
    "--allow-gid users" "--allow-gid 4294967296"
  observe serve --allow-uid 0,nobody
  [ "${stderr_lines[0]}" = "gms-serve: error: --allow-uid: 'nobody' is not a user or group id" ]
  observe serve --socket-mode 0999
  [ "${stderr_lines[0]}" = "gms-serve: error: --socket-mode: '0999' is not octal, 0 to 0777" ]
  [ "$(left)" = "" ]
}

@test "sockets have the mode that was asked for, whatever the umask" {
  umask 077
  start_bundle --devices 0 --tags weights
  [ "$(stat -L -c %a "$D/gms_0.sock")" = 600 ]
  end_bg
  start_one --socket-mode 0660
  [ "$(stat -c %a "$T/one.sock")" = 660 ]
}

@test "another user can connect if --allow-uid or --allow-gid names it, and only then" {
  need_root
  chmod 711 "$T"
  as_nobody() { setpriv --reuid 65534 --regid 65534 --groups "$1" gms-stat --socket "$T/one.sock"; }
  start_one --socket-mode 0666 --allow-gid 777
  ends_with 69 as_nobody 776
  run -0 as_nobody 776,777
  end_bg
  start_one --socket-mode 0666 --allow-uid 1,65534
  run -0 as_nobody 776
  end_bg
  start_one --allow-uid 65534
  ends_with 77 as_nobody 776
}

@test "a client refuses a server of another user, unless an option names the user" {
  need_root
  mkdir -m 777 "$T/nobody"
  make_file "$T/m.safetensors" '{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' 4
  chmod 711 "$T" "$GMS_SIM_DIR"
  cd "$T"
  S=$T/nobody/gms_0_weights.sock
  start_bg gms setpriv --reuid 65534 --regid 65534 --clear-groups env GMS_SIM_DIR="$T/nobody/sim" \
    gms-serve --socket-path "$S" --ready-fd 9 --socket-mode 0666 9>"$T/ready"
  wait_for "[ -s $T/ready ]"
  local -a clients=(
    "gms-stat --socket $S"
    "gms-stat --socket-dir $T/nobody --all"
    "gms-probe sockets --socket-dir $T/nobody --devices 0 --tags weights"
    "gms-probe remap --socket $S"
    "gms-remap-check --socket $S"
    "gms-load --socket $S --role rw $T/m.safetensors"
    "gms-load --socket $S --unpublish"
    "gms-save --socket $S $T/snapshot"
    "$FO_BUILD/libexec/fo/fo-gpu map-check --socket $S"
  )
  local client
  for client in "${clients[@]}"; do
    # shellcheck disable=SC2086
    ends_with 77 $client
    [ "${#stderr_lines[@]}" -eq 1 ]
    [[ ${stderr_lines[0]} == *": error: connect to socket '$S': it is served by user 65534, not by root "* ]]
    # shellcheck disable=SC2086
    GMS_SERVER_UID=65533 ends_with 77 $client
  done
  ends_with 0 gms-stat --socket "$S" --server-uid 65534
  GMS_SERVER_UID=65534 run -0 gms-probe sockets --socket-dir "$T/nobody" --devices 0 --tags weights
  # The simulated memory, too, belongs to the server's user.
  export GMS_SIM_DIR=$T/nobody/sim
  ends_with 0 gms-load --socket "$S" --server-uid 65534 --role rw "$T/m.safetensors"
  ends_with 0 gms-remap-check --socket "$S" --server-uid 65534 --map
  ends_with 0 gms-save --socket "$S" --server-uid 65534 "$T/snapshot"
  ends_with 0 gms-load --socket "$S" --server-uid 65534 --unpublish
}

@test "the user of an accepted server must be a number" {
  for text in nobody -1 4294967295 ""; do
    ends_with 64 gms-stat --socket "$T/s" --server-uid "$text"
    [ "${stderr_lines[0]}" = "gms-stat: error: --server-uid: '$text' is not a user id" ]
  done
  GMS_SERVER_UID=nobody ends_with 78 gms-stat --socket "$T/s"
  [ "${stderr_lines[0]}" = "gms-stat: error: read GMS_SERVER_UID: 'nobody' is not a user id" ]
}

@test "clients that reconnect all the time do not fill the log" {
  need_root
  chmod 711 "$T"
  start_one --socket-mode 0666
  for _ in {1..60}; do
    setpriv --reuid 65534 --regid 65534 --clear-groups socat -u OPEN:/dev/null "UNIX-CONNECT:$S"
  done
  run -0 gms-stat --socket "$S" # after all of the clients
  local -i lines
  lines=$(grep -c "^gms-serve: warning: refuse a client: it is not allowed: .* uid=65534$" "$T/gms.err")
  [ "$lines" -ge 5 ]
  [ "$lines" -lt 40 ]
}
