# A GMS client made of a shell and socat, for a test's requests to a server; real and faulty
# servers; and small models.

# frame KEY VALUE...: prints one message of the protocol. A value of digits alone is a number, nil
# is nil. Texts have at most 31 bytes.
frame() {
  local word body
  body=$(printf '\\x%02x' $((0x80 + $# / 2)))
  local size=1
  for word in "$@"; do
    case $word in
      nil) body+='\xc0' size=$((size + 1)) ;;
      *[!0-9]*)
        body+=$(printf '\\x%02x%s' $((0xa0 + ${#word})) "$word")
        size=$((size + 1 + ${#word}))
        ;;
      *) body+="\\xce$(big_endian "$word")" size=$((size + 5)) ;;
    esac
  done
  printf '%b' "$(big_endian "$size")$body"
}

big_endian() {
  printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) \
    $(($1 >> 8 & 255)) $(($1 & 255))
}

# publish SOCKET SIZE...: publishes a layout with allocations of these sizes.
publish() {
  local socket=$1 size
  shift
  {
    frame type handshake_request lock_type rw timeout_ms nil
    for size in "$@"; do frame type allocate_request size "$size" tag test; done
    frame type commit_request
  } >"$T/publish"
  socat -t 20 - "UNIX-CONNECT:$socket,shut-none" <"$T/publish" >/dev/null
}

# ask_lock NAME TYPE SOCKET: starts a client that requests a lock and keeps it until it is killed.
# Sets BG_PID.
ask_lock() {
  frame type handshake_request lock_type "$2" timeout_ms nil >"$T/$1.request"
  start_bg "$1" socat "OPEN:$T/$1.request,rdonly,ignoreeof!!STDOUT" "UNIX-CONNECT:$3"
}

# silent_server SOCKET: accepts and never answers. echo_server SOCKET: returns what it receives.
silent_server() {
  start_bg silent socat -u "UNIX-LISTEN:$1,fork" OPEN:/dev/null
  await_socket "$1"
}
echo_server() {
  start_bg echo socat "UNIX-LISTEN:$1,fork" PIPE
  await_socket "$1"
}

# dead_socket PATH: creates a socket on which no process listens any more.
dead_socket() {
  start_bg dead socat "UNIX-LISTEN:$1,unlink-close=0" PIPE
  wait_for "[ -S $1 ]"
  kill_now "$BG_PID"
}

# start_gms [OPTION]...: starts gms-serve in $GMS_SOCKET_DIR until it is ready. Sets GMS_PID.
start_gms() {
  # A killed server leaves its ready file.
  rm -f "$GMS_SOCKET_DIR/gms-ready"
  start_bg gms gms-serve "$@"
  # shellcheck disable=SC2034
  GMS_PID=$BG_PID
  wait_for "[ -e $GMS_SOCKET_DIR/gms-ready ]"
}

# start_weights [DEVICES]: starts servers for the weights only, of device 0 by default.
start_weights() { start_gms --devices "${1:-0}" --tags weights; }

# start_layout SIZE...: starts a server for the weights of device 0, with a layout of these sizes.
start_layout() {
  start_weights
  publish "$GMS_SOCKET_DIR/gms_0_weights.sock" "$@"
}

# make_file FILE HEADER BYTES: writes a safetensors file: length, header, and BYTES of varying data.
make_file() {
  local length=${#2} i
  for i in 0 8 16 24 32 40 48 56; do
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((length >> i & 255)))"
  done >"$1"
  printf %s "$2" >>"$1"
  seq 1 "$3" | head -c "$3" >>"$1"
}

# make_small_model [OPTION]...: creates a small model in $T/model.
make_small_model() {
  fo-refengine make-model -q --hidden 64 --layers 4 --seed 1 "$@" "$T/model" >/dev/null
}

# publish_model [MODEL [DEVICE]]: publishes $T/model on device 0, in $GMS_SOCKET_DIR.
publish_model() { gms-load -q --role rw --device "${2:-0}" "${1:-$T/model}" >/dev/null; }

# serve_model [DEVICES]: starts the servers, and publishes $T/model on each of the devices.
serve_model() {
  local devices=${1:-0} device
  start_weights "$devices"
  for device in ${devices//,/ }; do publish_model "$T/model" "$device"; done
}

# serve_at SOCKET [OPTION]...: starts one server there. Sets BG_PID.
serve_at() {
  start_bg "${1##*/}" gms-serve --socket-path "$@"
  wait_for "[ -S $1 ]"
}

# fill SIZE [DEVICE]: starts a server that allocates SIZE of the device. empty: kills its processes.
fill() {
  serve_at "$T/filler.sock" --device "${2:-0}"
  FILLER=$BG_PID
  publish "$T/filler.sock" "$1"
}
empty() {
  # shellcheck disable=SC2046  # many pids
  kill -KILL "$FILLER" $(pgrep -P "$FILLER")
}

# stub_gpu SCRIPT: replaces the helper program fo-gpu.
stub_gpu() {
  export FO_LIBEXEC_DIR=$T/bin
  mkdir -p "$T/bin"
  printf '#!/bin/sh\n%s\n' "$1" >"$T/bin/fo-gpu"
  chmod +x "$T/bin/fo-gpu"
}

# wait_stat KEY VALUE: waits until gms-stat shows this for the default server.
wait_stat() { wait_for "[ \"\$(stat_field $1)\" = $2 ]"; }

# stat_field KEY [OPTION]...: prints a field of gms-stat's JSON.
stat_field() {
  local key=$1
  shift
  gms-stat --json "$@" | sed -E "s/.*\"$key\":(\"([^\"]*)\"|([^,}]*)).*/\2\3/"
}
