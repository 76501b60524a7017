#!/usr/bin/env bats
# gms-stat: the behaviour on its page.

# shellcheck disable=SC2154  # stderr and stderr_lines come from run

load test_helper
load gms_client

setup() {
  fo_setup
  export GMS_SOCKET_DIR=$T
  S=$T/gms_0_weights.sock
}

@test "options that don't go together, and bad values, are usage errors" {
  usage_errors gms-stat "--socket x --device 1" "--socket x --tag t" "--all --socket x" "--all --device 1" \
    "--all --list" "--all --events" "--watch --list" "--watch --events" "--watch 99ms" \
    "--holders --all" "--holders --socket x" "--holders --tag t" "--holders --watch" "--holders --list" \
    "--server x" "--all --server x" \
    "--watch soon" "--watch -1s" "--timeout 5" "--device -1" "extra" "--unknown"
}

@test "no server and a dead socket are 69, and garbage is 76, in one line" {
  fails 69 "connect to socket '$S': No such file or directory" gms-stat
  dead_socket "$S"
  fails 69 "connect to socket '$S': Connection refused" gms-stat
  echo_server "$T/echo"
  fails 76 "*" gms-stat --socket "$T/echo"
}

@test "the state as text, without a driver" {
  start_weights
  GMS_DRIVER=/nonexistent ends_with 0 gms-stat
  [ "$stderr" = "" ]
  [ "${#lines[@]}" -eq 11 ]
  [ "${lines[0]}" = "socket            $S" ]
  [ "${lines[1]}" = "state             EMPTY" ]
  [ "${lines[9]}" = "allocated         0 bytes" ]
  [ "${lines[10]}" = "layout hash       none" ]
}

@test "the state as JSON: one object with the protocol's names" {
  start_layout 1000 5000000
  ends_with 0 gms-stat --json --list --events
  [ "${#lines[@]}" -eq 1 ]
  local key
  for key in state has_rw_session ro_session_count waiting_writers committed is_ready \
    layout_committed allocation_count memory_layout_hash events allocations tensors socket; do
    [[ $output == *"\"$key\":"* ]] || { echo "no $key"; return 1; }
  done
  [ "$(stat_field state)" = COMMITTED ]
  [ "$(stat_field allocation_count)" = 2 ]
  [[ $(stat_field memory_layout_hash) =~ ^[0-9a-f]{64}$ ]]
}

@test "--list and --events print the layout and its history and leave no session behind" {
  start_layout 1000 5000000
  ends_with 0 gms-stat --list --events
  [[ $output == *$'\nevents (2, oldest first, with allocations)\n  rw_connected '*$'\n  committed '* ]]
  [[ $output =~ allocations\ \(2,\ sizes\ in\ bytes\) ]]
  [[ $output =~ 1000\ +2097152\ +test\ +[0-9a-f-]{36} ]]
  [[ $output =~ 5000000\ +6291456\ +test ]]
  [[ $output == *"tensors (0, offsets in bytes)"* ]]
  [ "$(stat_field ro_session_count)" = 0 ]
}

@test "while a writer holds the lock the state is printed, and --list is 75" {
  start_weights
  ends_with 75 gms-stat --list
  [ "${lines[-1]}" = "layout not listed: nothing is published" ]
  ask_lock writer rw "$S"
  wait_stat has_rw_session true
  ends_with 0 gms-stat
  [ "${lines[1]}" = "state             RW" ]
  ends_with 75 gms-stat --list
  [ "${lines[1]}" = "state             RW" ]
  [ "${lines[-1]}" = "layout not listed: a writer holds it" ]
  ends_with 75 gms-stat --list --json
  [[ $output == *'"not_listed":"a writer holds it"'* ]]
}

@test "a waiting writer is not delayed" {
  start_layout 1000
  ask_lock reader ro "$S"
  local reader=$BG_PID
  wait_stat ro_session_count 1
  ends_with 0 gms-stat --list
  ask_lock writer rw "$S"
  wait_stat waiting_writers 1
  ends_with 75 gms-stat --list
  [ "${lines[-1]}" = "layout not listed: a writer waits for it" ]
  kill "$reader"
  wait_stat has_rw_session true
}

@test "--all shows every server of the folder, a dead one too" {
  fails 69 "look for sockets in '$T': none found" gms-stat --all
  start_gms
  ends_with 0 gms-stat --all
  [ "${#lines[@]}" -eq 5 ]
  [[ ${lines[0]} =~ ^device\ +tag\ +state ]]
  [[ ${lines[1]} =~ ^\ +0\ +kv_cache\ +EMPTY\ .*$T/gms_0_kv_cache.sock$ ]]
  [[ ${lines[4]} =~ ^\ +1\ +weights\ +EMPTY\ .*$T/gms_1_weights.sock$ ]]
  dead_socket "$T/gms_7_weights.sock"
  ends_with 69 gms-stat --all --json
  [ "${#lines[@]}" -eq 5 ]
  [[ ${lines[3]} == *'"device":1,'*'"tag":"weights"'* ]]
  [[ ${lines[4]} == *'"error":"connect to socket '*'Connection refused"'* ]]
  [ "$stderr" = "gms-stat: error: connect to socket '$T/gms_7_weights.sock': Connection refused" ]
}

@test "a result that can't be written is 74" {
  start_weights
  full_stdout gms-stat
}

# watched NAME PATTERN: waits until the background command NAME has printed such a line.
watched() {
  # shellcheck disable=SC2034
  local name=$1 pattern=$2
  # shellcheck disable=SC2016
  wait_for 'grep -qE -- "$pattern" "$T/$name.out"'
}

@test "--watch prints changes, also a server's start and end, and SIGTERM ends it with 0" {
  start_bg watch gms-stat --watch 100ms
  local watch=$BG_PID
  watched watch "^[0-9T:.-]+Z  device 0 weights  missing: connect to socket '$S': No such file"
  start_weights
  watched watch "  here: EMPTY, readers 0, waiting writers 0, allocations 0, layout none$"
  publish "$S" 1000 5000000
  watched watch "  (EMPTY|RW) -> COMMITTED,.* layout none -> [0-9a-f]{12}$"
  ask_lock reader ro "$S"
  watched watch "  COMMITTED -> RO, readers 0 -> 1$"
  kill_now "$GMS_PID"
  watched watch "  gone: .*'$S': "
  start_weights
  watched watch "  back: EMPTY, readers 0,"
  terminate "$watch"
  [ ! -s "$T/watch.err" ]
}

@test "--watch --all --json prints an object per server and per change; SIGINT ends it with 0" {
  # A shell starts background jobs with SIGINT ignored.
  start_bg watch env --default-signal=INT gms-stat --watch 100ms --all --json
  local watch=$BG_PID
  start_gms --devices 0
  watched watch '"changed":\[\].*"tag":"weights"'
  watched watch '"changed":\[\].*"tag":"kv_cache"'
  publish "$S" 1000
  # A query during the commit sees the allocations first, and the state later.
  watched watch '"allocation_count":1,"changed":\[.*"state".*\],.*"state":"COMMITTED","tag":"weights","time":"[0-9T:.-]+Z"'
  kill -TERM "$GMS_PID"
  wait_exit "$GMS_PID"
  watched watch '"changed":\["error"\],"device":0,"error":".*"tag":"weights"'
  kill -INT "$watch"
  expect_exit "$watch" 0
}

@test "--watch queries no more often than its interval" {
  silent_server "$T/silent"
  run -124 timeout 1 gms-stat --watch 1m --timeout 100ms --socket "$T/silent"
  [ "${#lines[@]}" -eq 1 ]
  [[ ${lines[0]} == *"  $T/silent  no answer: query the GMS at '$T/silent': timed out" ]]
}

@test "--watch ends when its output has no reader any more, even without changes" {
  start_weights
  # shellcheck disable=SC2016
  ends_with 0 bash -c 'gms-stat --watch 1h | head -n 1; exit $((${PIPESTATUS[0]} - 74))'
  [ "${#lines[@]}" -eq 1 ]
  [ "$stderr" = "gms-stat: error: write to standard output: Broken pipe" ]
  full_stdout gms-stat --watch
}

@test "--watch of a missing folder is 66, of an empty one waits" {
  ends_with 66 gms-stat --all --watch --socket-dir "$T/none"
  answers 124 "" timeout 0.3 gms-stat --all --watch 100ms
}

@test "--watch draws on a terminal and restores it" {
  need_terminal
  start_weights
  # shellcheck disable=SC2016
  start_bg terminal env TERM=xterm script -qec \
    'stty rows 10 cols 100; gms-stat --watch 100ms & echo $! >"$T/pid"; wait $!; echo "status $?"' /dev/null
  wait_for "grep -q EMPTY $T/terminal.out"
  publish "$S" 1000
  watched terminal $'\e\\[7mCOMMITTED'
  kill -TERM "$(<"$T/pid")"
  watched terminal "status 0"
  local shown
  shown=$(<"$T/terminal.out")
  [[ $shown == *$'\e[?1049h\e[?25l'*$'\e[?25h\e[?1049l'*"status 0"* ]]
  [[ $shown == *"gms-stat  $S  every 100ms"* ]]
}

# watch_on_terminal NAME VARIABLE...: watches a missing server until it is drawn, on a terminal.
watch_on_terminal() {
  local name=$1
  shift
  # shellcheck disable=SC2016
  start_bg "$name" env TERM=xterm "$@" script -qec \
    'stty rows 10 cols 100; gms-stat --watch 100ms --socket "$T/none" & echo $! >"$T/pid"; wait $!; echo "status $?"' /dev/null
  watched "$name" "missing"
  kill -TERM "$(<"$T/pid")"
  watched "$name" "status 0"
}

@test "--watch draws in colours unless NO_COLOR is set" {
  need_terminal
  watch_on_terminal colored NO_COLOR=
  [[ $(<"$T/colored.out") == *$'\e[31m'* ]]
  watch_on_terminal plain NO_COLOR=1
  [[ $(<"$T/plain.out") != *$'\e[3'[0-9]* ]]
  # Bold is allowed, as it is not a colour.
  [[ $(<"$T/plain.out") == *$'\e[1m'* ]]
}

# wait_stalled PID: waits until that gms-stat --watch, which finds no server, is blocked on its
# first output: it sleeps with blocked signals nowhere else.
wait_stalled() {
  # shellcheck disable=SC2016
  wait_for 'awk "/^State:/ { sleeps = \$2 == \"S\" }
    /^SigBlk:/ { blocked = substr(\$2, 13, 1) ~ /[4-7c-f]/ }
    END { exit !(sleeps && blocked) }" "/proc/'"$1"'/status"'
}

@test "--watch ends on SIGTERM while its pipe is full" {
  mkfifo "$T/pipe"
  exec 7<>"$T/pipe"
  dd if=/dev/zero of="$T/pipe" bs=4096 oflag=nonblock status=none 2>/dev/null || :
  # shellcheck disable=SC2016
  start_bg watch sh -c 'exec gms-stat --watch 100ms >"$T/pipe" 7>&-'
  local watch=$BG_PID
  wait_stalled "$watch"
  # The pipe stays blocking, as other processes may write to it too.
  run -1 grep -q 'flags:.*[4-7][0-7][0-7][0-7]$' "/proc/$watch/fdinfo/1"
  kill -TERM "$watch"
  expect_exit "$watch" 0 10
  exec 7>&-
}

# on_terminal COMMANDS: runs them on a terminal, with descriptor 7 as its keyboard. Sets BG_PID.
on_terminal() {
  need_terminal
  mkfifo "$T/keys"
  exec 7<>"$T/keys"
  # shellcheck disable=SC2016
  start_bg terminal env TERM=xterm sh -c 'exec script -qec "$0" /dev/null <"$T/keys" 7>&-' \
    "stty rows 10 cols 100; $1"
}

@test "--watch ends on SIGTERM on a terminal that Ctrl-S has stopped" {
  # shellcheck disable=SC2016
  on_terminal 'echo $$ >"$T/pid"; read -r go; exec gms-stat --watch 100ms'
  local terminal=$BG_PID
  wait_for "[ -s $T/pid ]"
  printf '\n\023' >&7
  wait_stalled "$(<"$T/pid")"
  kill -TERM "$(<"$T/pid")"
  expect_exit "$terminal" 0 10
  exec 7>&-
}

@test "--watch is not stopped by SIGTSTP if it could not be continued" {
  start_weights
  # The only process of its session, as in a container. script(1) continues a stopped child.
  # shellcheck disable=SC2016
  on_terminal 'setsid --fork --wait sh -c '\''echo $$ >"$T/pid"; exec gms-stat --watch 100ms'\'
  local terminal=$BG_PID
  wait_for "grep -q EMPTY $T/terminal.out"
  kill -TSTP "$(<"$T/pid")"
  wait_for "tr -d '\n' <$T/terminal.out | grep -q '1049l.*1049h'"
  publish "$S" 1000
  watched terminal $'\e\\[7mCOMMITTED'
  kill -TERM "$(<"$T/pid")"
  expect_exit "$terminal" 0
  exec 7>&-
}

@test "--watch restores the terminal when SIGTSTP stops it, and draws again when it is continued" {
  start_weights
  # shellcheck disable=SC2016
  on_terminal 'bash -mc '\''gms-stat --watch 100ms & echo $! >"$T/pid"; wait -f $!; exit $?'\'
  local terminal=$BG_PID pid
  wait_for "grep -q EMPTY $T/terminal.out"
  pid=$(<"$T/pid")
  kill -TSTP "$pid"
  wait_for "grep -q '^State:.T' /proc/$pid/status"
  wait_for "grep -q '1049l' $T/terminal.out"
  kill -CONT "$pid"
  wait_for "tr -d '\n' <$T/terminal.out | grep -q '1049l.*1049h.*EMPTY'"
  kill -TSTP "$pid"
  wait_for "grep -q '^State:.T' /proc/$pid/status"
  kill -TERM "$pid"
  kill -CONT "$pid"
  wait_for "[ ! -e /proc/$pid ]"
  printf '\n' >&7
  wait_exit "$terminal"
  exec 7>&-
}

@test "--holders shows the processes that keep memory of no layout" {
  start_gms --devices 0
  publish "$S" 1000
  local -a memory=("$GMS_SIM_DIR"/device-0/mem-*)
  [ "${#memory[@]}" -eq 1 ]
  start_bg keeper flock --shared --no-fork "${memory[0]}" sleep 1000
  local keeper=$BG_PID
  wait_for "[ \"\$(cat /proc/$keeper/comm)\" = sleep ]"
  ends_with 0 gms-stat --holders
  [ "${lines[0]}" = "device 0, simulated in $(realpath "$GMS_SIM_DIR")/device-0" ]
  [ "${lines[1]}" = "memory of a layout: 2 MiB in 1 allocation" ]
  [ "${lines[2]}" = "memory of no layout: 0 B in 0 allocations" ]
  [[ $output =~ [0-9]+\ \ gms-serve\ \(server\)\ +0\ B\ +0\ +0\ +2\ MiB\ +1\ +0 ]]
  [[ $output =~ $keeper\ \ sleep\ +0\ B\ +0\ +0\ +2\ MiB\ +1\ +0 ]]
  ask_lock writer rw "$S"
  wait_stat has_rw_session true
  wait_for 'gms-stat --holders | grep -qx "memory of no layout: 2 MiB in 1 allocation"'
  ends_with 0 gms-stat --holders
  [ "${lines[1]}" = "memory of a layout: 0 B in 0 allocations" ]
  [[ ${lines[-1]} =~ ^\ *$keeper\ \ sleep\ +2\ MiB\ +1\ +0\ +0\ B\ +0\ +0$ ]]
  ends_with 0 gms-stat --holders --json
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == *'"no_layout":{"allocations":1,"bytes":2097152,"fds":1,"mappings":0},"pid":'$keeper',"process":"sleep"'* ]]
  kill_now "$keeper"
  ends_with 0 gms-stat --holders
  [ "${lines[2]}" = "memory of no layout: 0 B in 0 allocations" ]
}

@test "--holders knows the memory of a server outside the folder by --server" {
  serve_at "$T/outside" --device 0
  publish "$T/outside" 1000
  ends_with 0 gms-stat --holders
  [ "${lines[2]}" = "memory of no layout: 2 MiB in 1 allocation" ]
  ends_with 0 gms-stat --holders --server "$T/outside"
  [ "${lines[1]}" = "memory of a layout: 2 MiB in 1 allocation" ]
  [ "${lines[2]}" = "memory of no layout: 0 B in 0 allocations" ]
  [[ $output =~ gms-serve\ \(server\)\ +0\ B\ +0\ +0\ +2\ MiB\ +1\ +0 ]]
  # Servers in the folder count, too, and --server takes more than one.
  start_layout 1000
  ends_with 0 gms-stat --holders --server "$T/outside,$T/none"
  [ "${lines[1]}" = "memory of a layout: 4 MiB in 2 allocations" ]
  fails 64 "*" gms-stat --holders --server "$(printf '%0200d' 0)"
}

@test "--holders without a server, without such a device and without a GPU" {
  start_gms --devices 0
  kill -TERM "$GMS_PID"
  wait_exit "$GMS_PID"
  ends_with 0 gms-stat --holders
  [ "${lines[3]}" = "no server is visible: all memory is counted as memory of no layout" ]
  fails 69 "inspect simulated device '$GMS_SIM_DIR/device-99': No such file or directory" \
    gms-stat --holders --device 99
  fails 69 "use helper program '$T/fo-sim-memory': No such file or directory" \
    gms-stat --holders --driver "$T/libcuda.so.1"
  GMS_SIM_VRAM=much fails 78 "GMS_SIM_VRAM='much': not *" gms-stat --holders
  run -78 gms-stat --holders --driver other
  if [ ! -e /proc/driver/nvidia ]; then
    ends_with 69 gms-stat --holders --driver auto
    [ "$stderr" = "gms-stat: error: look for NVIDIA devices in '/proc/driver/nvidia/gpus': No such file or directory" ]
  fi
}

@test "the program that lists the simulated driver's memory fails like a tool" {
  local helper=$FO_BUILD/lib/sim/fo-sim-memory
  start_gms --devices 0
  publish "$S" 1000
  run -0 bash -c "'$helper' all 0 | tr '\\0' '\\n'"
  [ "${lines[0]}" = "$(realpath "$GMS_SIM_DIR")/device-0" ]
  [[ ${lines[-1]} =~ ^[0-9]+\ [0-9]+\ [0-9]+\ mem-[0-9]+$ ]]
  ends_with 64 "$helper" some 0
  [ "$stderr" = "fo-sim-memory: error: expected all or held, and a device" ]
  reports 74 "fo-sim-memory: error: write to standard output" bash -c "'$helper' held 0 >/dev/full"
}
