# The setup of every end-to-end test: the programs of one build in PATH, a folder $T and a simulated
# device folder of its own, no settings from outside, and a check for leftover processes.
#
# FO_BUILD names the build folder (default: build/release or build/dev, whichever is newer).
# A file with a setup or teardown of its own calls fo_setup and fo_teardown in it.

bats_require_minimum_version 1.5.0

# This file is read once for each test, and where processes are slow to start, each takes 10 ms.
FO_ROOT=${BASH_SOURCE[0]%/bats/*}
if [ -z "${FO_BUILD:-}" ]; then
  FO_BUILD=$FO_ROOT/build/release
  if [ ! -d "$FO_BUILD/bin" ] || [ "$FO_ROOT/build/dev/bin" -nt "$FO_BUILD/bin" ]; then
    FO_BUILD=$FO_ROOT/build/dev
  fi
fi
if [[ $FO_BUILD != /* ]]; then FO_BUILD=$(realpath "$FO_BUILD"); fi
FO_BIN=$FO_BUILD/bin
export FO_ROOT FO_BUILD FO_BIN
export PATH=$FO_BIN:$PATH
export MANPATH=$FO_ROOT/man

fo_setup() {
  if [ ! -d "$FO_BIN" ]; then
    echo "no programs in $FO_BIN: build first, or set FO_BUILD"
    return 1
  fi
  unset CUDA_VISIBLE_DEVICES ENGINE_ID FO_LIBEXEC_DIR NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID \
    "${!FAILOVER_@}" "${!KUBERNETES_@}" "${!GMS_@}" "${!DYN_@}"
  # The paths must be short, because sockets are below them.
  printf -v T '/tmp/fo.%08x' "$SRANDOM"
  # In containers, /dev/shm has 64 MiB by default.
  local room=$BATS_RUN_TMPDIR/shm
  if [ ! -e "$room" ]; then
    df --output=avail -B 1M /dev/shm | tail -n 1 >"$room.$$"
    mv "$room.$$" "$room"
  fi
  local available shm=/dev/shm
  read -r available <"$room"
  if [ "$available" -lt 1024 ]; then shm=/tmp; fi
  GMS_SIM_DIR=$shm/${T#/tmp/}.sim
  mkdir -m 700 "$T" "$GMS_SIM_DIR"
  # The environment of every process of the test has this mark, also if it is an orphan.
  FO_TEST_MARK=$T
  GMS_DRIVER=${FO_TEST_DRIVER:-sim}
  # Log lines without a time.
  FO_LOG_FORMAT=text
  export T GMS_SIM_DIR GMS_DRIVER FO_TEST_MARK FO_LOG_FORMAT
  BG_PIDS=()
}

fo_teardown() {
  local pid left result=0
  if [ -z "${T:-}" ]; then return 0; fi
  export -n FO_TEST_MARK
  for pid in "${BG_PIDS[@]}"; do
    if kill -TERM "$pid" 2>/dev/null; then kill -CONT "$pid" 2>/dev/null || :; fi
  done
  local until=$((SECONDS + 5))
  while left=$(processes_left) && [ "$SECONDS" -lt "$until" ]; do pause 0.02; done
  if [ -n "$left" ]; then
    echo "left behind by the test:"
    for pid in $left; do
      echo "  $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")"
      kill -KILL "$pid" 2>/dev/null || :
    done
    result=1
  fi
  if [ -z "${BATS_TEST_COMPLETED:-}" ] || [ "$result" -ne 0 ]; then
    tail -n 20 "$T"/*.err 2>/dev/null || :
  fi
  rm -rf "$T" "$GMS_SIM_DIR"
  return "$result"
}

setup() { fo_setup; }
teardown() { fo_teardown; }

# processes_left: prints the pids of this test's running processes; fails if there are none.
processes_left() {
  local file pid found=1
  while read -r file; do
    pid=${file#/proc/}
    pid=${pid%/environ}
    if [ "$pid" != "$BASHPID" ] && [ "$pid" != "$$" ]; then
      echo "$pid"
      found=0
    fi
  done < <(grep -lsxzF -- "FO_TEST_MARK=${T:?}" /proc/[0-9]*/environ)
  return "$found"
}

# start_bg NAME COMMAND...: runs it in the background, with its output in $T/NAME.out and
# $T/NAME.err. Sets BG_PID.
start_bg() {
  local name=$1
  shift
  # What an earlier process of this name has written must not be taken for the output of this one,
  # which opens its files only after this function has returned.
  : >"$T/$name.out" 2>"$T/$name.err"
  "$@" </dev/null >"$T/$name.out" 2>"$T/$name.err" 3>&- &
  BG_PID=$!
  BG_PIDS+=("$BG_PID")
}

# pause SECONDS: as sleep, but without a process, which would take the CPU from what a test waits for.
pause() {
  if [ ! -p "$T/never" ]; then mkfifo "$T/never"; fi
  read -rt "$1" <>"$T/never" || :
}

# wait_for 'COMMANDS' [SECONDS]: waits until they succeed; fails after 30 seconds.
wait_for() {
  local until=$((SECONDS + ${2:-30})) tries=0 interval=0.01
  until eval "$1" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$until" ]; then
      echo "waited in vain for: $1"
      return 1
    fi
    case $((++tries)) in
      10) interval=0.05 ;;
      50) interval=0.2 ;;
    esac
    pause "$interval"
  done
}

# await_socket SOCKET: waits until it accepts connections, which it does later than it exists.
await_socket() { wait_for "socat -u OPEN:/dev/null UNIX-CONNECT:$1"; }

# http_server SOCKET: answers every request with the file $T/answer. answer STATUS [BODY]: sets its
# content.
http_server() {
  cat >"$T/answer.sh" <<'EOF'
while IFS= read -r line && [ "${#line}" -gt 1 ]; do :; done
cat "$1"
EOF
  start_bg http socat "UNIX-LISTEN:$1,fork" "EXEC:bash $T/answer.sh $T/answer"
  await_socket "$1"
}
answer() {
  printf 'HTTP/1.1 %s\r\nContent-Length: %s\r\n\r\n%s' "$1" "${#2}" "$2" >"$T/answer.new"
  mv "$T/answer.new" "$T/answer"
}

# start_manager: starts a receiver of a service's notifications, which writes them to $T/told. Sets
# NOTIFY_SOCKET.
start_manager() {
  export NOTIFY_SOCKET=$T/notify
  start_bg manager socat -u "UNIX-RECV:$NOTIFY_SOCKET" "OPEN:$T/told,creat,append"
  wait_for "[ -S $NOTIFY_SOCKET ]"
}

# wait_exit PID [SECONDS]: waits until this child has ended; its exit status is in $status.
wait_exit() {
  # kill -0 would also find another process that has got the number by then.
  wait_for "! grep -qx $1 <<<\"\$(jobs -rp)\"" "${2:-30}" || return 1
  status=0
  # shellcheck disable=SC2034  # for the test, as after run
  wait "$1" || status=$?
}

# expect_exit PID STATUS [SECONDS]: waits until this child has ended, with this status.
expect_exit() {
  wait_exit "$1" "${3:-30}" || return 1
  [ "$status" -eq "$2" ] || { echo "status $status instead of $2"; return 1; }
}

# terminate PID [STATUS]: sends SIGTERM to this child, and expects this exit status, by default 0.
terminate() {
  kill -TERM "$1"
  expect_exit "$1" "${2:-0}"
}

# kill_now PID: sends SIGKILL to this child, and waits until it has ended.
kill_now() {
  kill -KILL "$1"
  expect_exit "$1" 137
}

# observe COMMAND...: as run --separate-stderr, which starts five more processes. ends_with STATUS
# COMMAND...: shows what it prints, and fails if it ends with another status.
# shellcheck disable=SC2034  # for the test, as after run
observe() {
  local files=$BATS_TEST_TMPDIR
  status=0
  ("$@") >"$files/stdout" 2>"$files/stderr" 3>&- || status=$?
  output=$(<"$files/stdout")
  stderr=$(<"$files/stderr")
  IFS=$'\n' read -rd '' -a lines <"$files/stdout" || :
  IFS=$'\n' read -rd '' -a stderr_lines <"$files/stderr" || :
}
ends_with() {
  observe "${@:2}"
  echo "$output$stderr"
  [ "$status" -eq "$1" ] || { echo "status $status instead of $1"; return 1; }
}

# fails STATUS PATTERN COMMAND...: it ends with STATUS and prints nothing but one line, an error of
# $TOOL that matches; after a usage error, a second line names --help. warns: it is a warning.
fails() { prints_only error "$@"; }
warns() { prints_only warning "$@"; }
# The tool of the file, by its name; lock-etcd.bats and others are of gms-lock.
TOOL=${BATS_TEST_FILENAME##*/}
TOOL=${TOOL%.bats}
TOOL=${TOOL/#lock-*/gms-lock}
prints_only() {
  ends_with "$2" "${@:4}"
  [ "$output" = "" ]
  [ "${#stderr_lines[@]}" -eq $(($2 == 64 ? 2 : 1)) ]
  # shellcheck disable=SC2053  # a pattern
  [[ ${stderr_lines[0]} == "$TOOL: $1: "$3 ]]
}

# answers STATUS TEXT COMMAND...: it ends with STATUS, and prints this text on its standard output, and
# nothing else. reports: it prints it on its standard error.
answers() {
  ends_with "$1" "${@:3}"
  [ "$output" = "$2" ]
  [ "$stderr" = "" ]
}
reports() {
  ends_with "$1" "${@:3}"
  [ "$output" = "" ]
  [ "$stderr" = "$2" ]
}

# full_stdout COMMAND...: its output can't be written, which is an error.
full_stdout() { fails 74 "write to standard output: No space left on device" to_full "$@"; }
to_full() { "$@" >/dev/full; }

# wrong TEXT: reports what is wrong, and lets the test go on until none_wrong, which fails then.
wrong() {
  echo "$1"
  WRONG=1
}
none_wrong() { [ -z "${WRONG:-}" ]; }

# usage_errors COMMAND ARGUMENTS...: each of these, split into words and appended to the command, is
# a usage error of its tool, in one line.
usage_errors() {
  local command=$1 tool=${1%% *} args
  shift
  for args; do
    # shellcheck disable=SC2086
    observe timeout 20 $command $args </dev/null
    [ "$status" -eq 64 ] || { echo "status $status for: $args"; return 1; }
    [ "$output" = "" ]
    [[ ${stderr_lines[0]} == "$tool: error: "* ]]
    [ "${#stderr_lines[@]}" -eq 2 ] || { echo "$stderr"; return 1; }
    [[ ${stderr_lines[1]} == "Try '$tool"*" --help'" ]]
  done
}

# skip_because KIND REASON: skips, or fails if KIND is in FO_MUST_RUN, a list.
skip_because() {
  case ",${FO_MUST_RUN:-}," in
    *,"$1",*)
      echo "FO_MUST_RUN asks for $1, but: $2"
      return 1
      ;;
  esac
  skip "$2"
}

is_release() { [ "$FO_BUILD" = "$FO_ROOT/build/release" ]; }

# Requirements of a test, for the build or for the machine. need PROGRAM [KIND]: it is installed.
need_release() { is_release || skip_because release "not the release build of this checkout"; }
need_root() { [ "$(id -u)" -eq 0 ] || skip_because root "becoming another user needs root"; }
need() { command -v "$1" >/dev/null || skip_because "${2:-$1}" "$1 is not installed"; }
need_promtool() { need promtool; }
need_gnuplot() { need gnuplot; }
need_terminal() {
  script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip_because script "no pseudo-terminals"
}
need_pid_namespace() {
  unshare --pid --fork --mount-proc true 2>/dev/null ||
    skip_because root "a pid namespace is not permitted here"
}
need_mount() {
  unshare --map-root-user --mount true 2>/dev/null || skip_because root "a mount is not permitted here"
}
need_types() {
  cmp -s "$FO_ROOT/tests/k8s/package-lock.json" "$FO_BUILD/k8s/installed.json" ||
    skip_because k8s "no Kubernetes types in $FO_BUILD/k8s (tests/k8s/install gets them by npm)"
}

# all_tools: prints the tools of this build, one name per line.
all_tools() {
  local path
  for path in "$FO_BIN"/*; do
    if [ -f "$path" ] && [ -x "$path" ]; then echo "${path##*/}"; fi
  done
}

# subcommands_of TOOL: prints its subcommands, one per line.
subcommands_of() { "$1" --help | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p'; }

# pick_port: sets PORT to a free port, a different one each time.
pick_port() {
  until PORT=$(shuf -i 20000-29999 -n 1) && [[ " ${PICKED:-} " != *" $PORT "* ]] &&
    ! (: <"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do :; done
  PICKED+=" $PORT"
}
