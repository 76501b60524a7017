#!/usr/bin/env bats
# gms-lock: the behaviour on its page.

# shellcheck disable=SC2030,SC2031  # tests are subshells
load test_helper
load gms_client
load lockd

setup() {
  fo_setup
  export FAILOVER_LOCK_PATH=$T/lock GMS_SIM_VRAM=64MiB GMS_SIM_CONTEXT_SIZE=0
}

lock() { gms-lock "$@" 3>&-; }

# start_holder NAME [OPTION]...: a supervised command that holds the lock until it is terminated.
start_holder() {
  local name=$1
  shift
  start_bg "$name" gms-lock acquire --id "$name" "$@" -- sh -c "echo \$\$ >$T/$name.cmd; exec sleep 1000"
  wait_for "[ -s $T/$name.cmd ]"
}

# await_waiter: waits until a process of this pid namespace is blocked on the lock.
await_waiter() { wait_for 'gms-lock status | grep -q ^waiter:'; }

# start_waiter: engine-1, which waits for the lock to create $T/ran.
start_waiter() {
  start_bg other gms-lock acquire --id engine-1 -- touch "$T/ran"
  await_waiter
}

field() { sed -n "s/^$1: //p"; }

# --- argv -----------------------------------------------------------------------------------------

@test "no subcommand, an unknown one, unknown options and misplaced commands are usage errors" {
  usage_errors gms-lock "" "steal" "acquire --unknown" "owner -- true" "status -- true" \
    "acquire --exec" \
    "acquire --timeout 5x" "acquire -w -1" "acquire --timeout 1s --nonblock -- true" "acquire -w 1 -n -- true" "acquire -E 256 -- true" \
    "acquire -E -1 -- true" "acquire -E x -- true" "acquire --fd 2 -- true" "acquire --status-fd 99 -- true" "acquire --"
}

@test "an unsupported kind of lock, or a relative path, is refused with the supported ones" {
  for uri in unix:s tcp:host etcd:http://h:1 k8s:n consul:k relative flock:relative flock:; do
    for command in acquire owner status; do
      ends_with 64 lock "$command" --lock "$uri"
      [[ $stderr == "gms-lock: error: read lock URI '$uri': "*"expected "* ||
        $stderr == *"unknown kind of lock; supported: flock:/path"* ]]
    done
  done
}

@test "a flag beats the environment, which beats the configuration file" {
  echo "lock = 'flock:$T/from-file'" >"$T/config.toml"
  lock acquire --config "$T/config.toml" -- true
  [ -e "$T/lock" ] && [ ! -e "$T/from-file" ]
  env -u FAILOVER_LOCK_PATH gms-lock acquire --config "$T/config.toml" -- true 3>&-
  [ -e "$T/from-file" ]
  lock acquire --lock "$T/from-flag" -- true
  [ -e "$T/from-flag" ]
}

@test "a lock file that can't be opened: 73, or 77 without permission" {
  fails 73 "open lock file '$T/absent/lock': missing folder '$T/absent'" lock acquire --lock "$T/absent/lock" -- true
  ends_with 73 lock acquire --lock "$T" -- true
  need_root
  lock acquire -- true
  chmod 711 "$T"
  cp "$FO_BIN/gms-lock" "$T/gms-lock"
  ends_with 77 setpriv --reuid 65534 --clear-groups "$T/gms-lock" acquire -- true
  [[ $stderr == "gms-lock: error: open lock file '$T/lock': Permission denied" ]]
}

@test "a mistyped path is not reported as a free lock: 66, and the missing folder is named" {
  for command in status owner; do
    fails 66 "open lock file '$T/absent/lock': missing folder '$T/absent'" lock "$command" --lock "$T/absent/lock"
  done
  ends_with 66 gms-probe lock --lock "$T/absent/lock"
  [ "$stderr" = "gms-probe: error: open lock file '$T/absent/lock': missing folder '$T/absent'" ]
  run -1 lock owner
}

# --- identity -------------------------------------------------------------------------------------

@test "the id is engine-\$ENGINE_ID, 0 when unset, or --id; an invalid number is 78" {
  # shellcheck disable=SC2016
  id_of_child() { lock acquire "$@" -- sh -c 'echo "$FAILOVER_LOCK_ID"'; }
  [ "$(id_of_child)" = engine-0 ]
  ENGINE_ID=3
  export ENGINE_ID
  [ "$(id_of_child)" = engine-3 ]
  [ "$(id_of_child --id other)" = other ]
  [ "$(cat "$T/lock")" = other ]
  ENGINE_ID=x
  fails 78 "read ENGINE_ID 'x': *" id_of_child
  ends_with 78 id_of_child --id $'a\nb'
}

# --- exec form ------------------------------------------------------------------------------------

@test "exec form: the same pid becomes the command, with the lock, its environment and small cores" {
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire --exec -- sh -c \
    'echo "$$ $FAILOVER_GENERATION $FAILOVER_LOCK_ID $FAILOVER_LOCK_FD"
     readlink "/proc/$$/fd/$FAILOVER_LOCK_FD"; cat /proc/self/coredump_filter; exec sleep 1000'
  wait_for "[ \$(wc -l <$T/engine.out) -eq 3 ]"
  [ "$(cat "$T/engine.out")" = "$BG_PID 1 engine-0 3
$T/lock
00000010" ]
  answers 0 engine-0 lock owner
  kill_now "$BG_PID"
  run -1 lock owner
}

@test "exec form: the exit status is the command's, or 126 or 127 if it can't run" {
  run -7 lock acquire --exec -- sh -c 'exit 7'
  fails 127 "run '/absent': No such file or directory" lock acquire --exec -- /absent
  ends_with 126 lock acquire --exec -- "$T"
  run -1 lock owner
}

@test "exec form: --fd chooses the descriptor, and one in use is refused" {
  # shellcheck disable=SC2016
  run -0 lock acquire --exec --fd 300 -- sh -c 'readlink /proc/$$/fd/300; echo $FAILOVER_LOCK_FD'
  [ "$output" = "$T/lock
300" ]
  exec 9</dev/null
  fails 64 "move the lock to descriptor 9: it is in use*" lock acquire --exec --fd 9 -- true
  exec 9<&-
}

@test "exec form: signals have their defaults and no descriptor but the lock is added" {
  run -0 lock acquire --exec -- sh -c 'grep -E "^Sig(Blk|Cgt|Ign)" /proc/self/status'
  locked=$output
  run -0 bash -c 'exec 3>&-; grep -E "^Sig(Blk|Cgt|Ign)" /proc/self/status'
  [ "$locked" = "$output" ]
  run -0 bash -c 'exec 3>&-; exec ls /proc/self/fd'
  count=${#lines[@]}
  run -0 bash -c 'exec 3>&-; exec gms-lock acquire --exec -- ls /proc/self/fd'
  [ "${#lines[@]}" -eq $((count + 1)) ]
}

@test "the lock lives as long as a grandchild that inherited it" {
  mkfifo "$T/end"
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire --exec -- sh -c \
    "sh -c 'read -r x <$T/end' & echo started; wait"
  wait_for "grep -q started $T/engine.out"
  kill_now "$BG_PID"
  [ "$(lock owner)" = engine-0 ]
  [[ $(lock status | field pid) == "$BG_PID (ended; others inherited the lock)" ]]
  run -75 lock acquire --nonblock -- true
  echo >"$T/end"
  run -0 lock acquire --timeout 20s -- true
  run -1 lock owner
}

@test "nested locks: each command uses the innermost; the same lock twice is 78, without a wait" {
  # shellcheck disable=SC2016
  run -0 lock acquire --exec -- gms-lock acquire --exec --lock "$T/inner" --id inner -- sh -c \
    'echo "$FAILOVER_LOCK_ID"; readlink "/proc/$$/fd/$FAILOVER_LOCK_FD"; gms-lock owner'
  [ "$output" = "inner
$T/inner
engine-0" ]
  # From any ancestor, not only from the last one.
  ends_with 78 lock acquire --exec -- gms-lock acquire --exec --lock "$T/inner" -- \
    gms-lock acquire --exec -- true
  [[ $stderr == "gms-lock: error: acquire lock '$T/lock': already inherited, on descriptor "* ]]
}

# --- waiting --------------------------------------------------------------------------------------

@test "a lock that is held: 75, or the status of -E, and the holder" {
  start_holder engine-7
  warns 75 "acquire lock '$T/lock': held by 'engine-7'" lock acquire --nonblock -- touch "$T/ran"
  run -75 lock acquire --timeout 10ms -- touch "$T/ran"
  run -0 lock acquire --timeout 0 -E 0 --exec -- touch "$T/ran"
  run -9 lock acquire --nonblock -E 9
  [ ! -e "$T/ran" ]
}

@test "-n, -w SECONDS and -E work like those of flock" {
  start_holder engine-7
  local args
  for args in "-n -E 9" "-w 0.01 -E 9" "-w 0 -E 9" "--timeout 0.01 -E 9"; do
    # shellcheck disable=SC2086
    run -9 flock $args "$T/lock" touch "$T/ran"
    # shellcheck disable=SC2086
    run -9 lock acquire $args -- touch "$T/ran"
  done
  [ ! -e "$T/ran" ]
  run -0 lock acquire -n --lock "$T/other" -- true
  run -0 lock acquire -w 20 --lock "$T/other" -- true
}

@test "a signal ends a waiter with 128+n, and its claim" {
  start_holder holder
  for signal in TERM HUP USR1; do
    # nohup(1) may have started the tests with SIGHUP ignored.
    start_bg waiter env --default-signal gms-lock acquire --exec -- touch "$T/ran"
    await_waiter
    kill -"$signal" "$BG_PID"
    expect_exit "$BG_PID" $((128 + $(kill -l "$signal")))
  done
  [ ! -e "$T/ran" ]
  [ "$(lock status | grep -c ^waiter:)" -eq 0 ]
}

@test "a waiter ignores a signal that was ignored when it started" {
  start_holder holder
  start_bg waiter nohup gms-lock acquire --exec -- touch "$T/ran"
  await_waiter
  kill -HUP "$BG_PID"
  terminate "$BG_PID" 143
}

@test "pid 1 waits and ends on SIGTERM with 143" {
  need_pid_namespace
  start_holder holder
  start_bg container unshare --pid --fork --kill-child --mount-proc \
    gms-lock acquire --exec -- true
  await_waiter
  wait_for "grep -q . /proc/$BG_PID/task/$BG_PID/children"
  init=$(tr -d ' ' <"/proc/$BG_PID/task/$BG_PID/children")
  [ "$(awk '/^NSpid/ {print $3}' "/proc/$init/status")" -eq 1 ]
  kill -TERM "$init"
  expect_exit "$BG_PID" 143
}

@test "pid 1 forwards SIGTERM to its command, and reaps orphans" {
  need_pid_namespace
  # shellcheck disable=SC2016
  start_bg container unshare --pid --fork --kill-child --mount-proc gms-lock acquire -- bash -c \
    'trap "exit 5" TERM; (sleep 1000 &); echo "$PPID"; while :; do sleep 0.01; done'
  wait_for "[ -s $T/container.out ]"
  [ "$(cat "$T/container.out")" = 1 ]
  [[ $(lock status | field pid) == "not visible from here" ]]
  [ "$(lock owner)" = engine-0 ]
  kill -TERM "$(tr -d ' ' <"/proc/$BG_PID/task/$BG_PID/children")"
  expect_exit "$BG_PID" 5
}

@test "a long wait reports the holder, and after its death the processes that keep the lock" {
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire --exec -- sh -c 'sleep 1000 & echo $!; wait'
  BG_ENGINE=$BG_PID
  wait_for "[ -s $T/engine.out ]"
  orphan=$(cat "$T/engine.out")
  start_bg waiter gms-lock acquire --warn-after 20ms --id engine-1 -- true
  wait_for "grep -q . $T/waiter.err"
  [ "$(cat "$T/waiter.err")" = "gms-lock: warning: waiting for lock '$T/lock': held by 'engine-0', generation 1, process $BG_ENGINE; held open by $BG_ENGINE (sh), $orphan (sleep)" ]
  kill -KILL "$BG_ENGINE"
  wait_for "grep -q ended $T/waiter.err"
  [ "$(tail -n 1 "$T/waiter.err")" = "gms-lock: warning: waiting for lock '$T/lock': held by 'engine-0', generation 1, process $BG_ENGINE which has ended; held open by $orphan (sleep)" ]
  # A query while the engine ends may see no descriptors of it, which logs one more line.
  [ "$(wc -l <"$T/waiter.err")" -le 3 ]
  kill "$orphan"
  expect_exit "$BG_PID" 0
}

# --- supervise form -------------------------------------------------------------------------------

@test "supervise form: the exit status is the command's status or death" {
  run -3 lock acquire -- sh -c 'exit 3'
  # shellcheck disable=SC2016
  run -139 lock acquire -- sh -c 'kill -SEGV $$'
  run -127 lock acquire -- /absent
  run -126 lock acquire -- "$T"
  run -1 lock owner
}

@test "supervise form: the command has its own process group and gets forwarded signals" {
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire -- bash -c \
    'trap "echo usr1" USR1; trap "echo winch" WINCH; trap "exit 9" TERM
     ps -o pgid= -p $$ | tr -d " "; echo $$; while :; do sleep 0.01; done'
  wait_for "[ \$(wc -l <$T/engine.out) -eq 2 ]"
  [ "$(sed -n 1p "$T/engine.out")" = "$(sed -n 2p "$T/engine.out")" ]
  kill -USR1 "$BG_PID"
  wait_for "grep -q usr1 $T/engine.out"
  kill -WINCH "$BG_PID"
  wait_for "grep -q winch $T/engine.out"
  terminate "$BG_PID" 9
}

@test "supervise form: leftovers of the command are killed before the lock is released" {
  run -4 lock acquire --grace 50ms -- sh -c "
    (trap '' TERM; exec setsid sleep 1000) & echo \$! >$T/orphan; exit 4"
  run ! kill -0 "$(cat "$T/orphan")"
  run -1 lock owner
}

@test "supervise form: a replaced lock file loses the lock, 76, and ends the whole process tree" {
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire --grace 50ms --status-fd 7 -- sh -c \
    'trap "" TERM; (exec sleep 1000) & echo $! >"$0/worker"; echo $$ >"$0/cmd"; wait' "$T" \
    7>"$T/events"
  wait_for "[ -s $T/cmd ]"
  touch "$T/new"
  mv "$T/new" "$T/lock"
  expect_exit "$BG_PID" 76
  [ "$(cat "$T/engine.err")" = "gms-lock: error: hold lock '$T/lock': the file was replaced" ]
  run ! kill -0 "$(cat "$T/worker")"
  run ! kill -0 "$(cat "$T/cmd")"
  run -0 sed -n 's/.*"event":"\([^"]*\)".*/\1/p' "$T/events"
  [ "$output" = "waiting
granted
child_started
lost
child_ended" ]
}

@test "supervise form: an interactive command has the terminal, and gms-lock stops with it" {
  need_terminal
  script -qec "gms-lock acquire -- sh -c 'read -r x && echo got=\$x'" /dev/null \
    <<<hello >"$T/out" 3>&-
  grep -q 'got=hello' "$T/out"
  # The command stops itself; then gms-lock is a stopped job of the shell, which fg continues.
  # shellcheck disable=SC2016
  printf '%s\n' 'until read -r _ _ _ _ group _ _ front _ <"/proc/$$/stat" && [ $group = $front ]' \
    'do sleep 0.01; done' 'kill -STOP $$' 'echo went on' >"$T/stops"
  echo "gms-lock acquire -- sh $T/stops; jobs; fg" >"$T/job"
  script -qec "bash --norc -i $T/job" /dev/null </dev/null >"$T/out" 3>&- || { cat "$T/out"; false; }
  grep -q 'Stopped.*gms-lock' "$T/out"
  grep -q 'went on' "$T/out"
}

# --- the gate -------------------------------------------------------------------------------------

@test "gate: the command runs once the device has the memory free" {
  for form in --exec --grace=1s; do
    fill $((48 << 20))
    start_bg "engine$form" gms-lock acquire --gpu-free 60MiB "$form" --status-fd 7 \
      -- "$FO_BUILD/libexec/fo/fo-gpu" free 7>"$T/events"
    wait_for "grep -q granted $T/events"
    [ "$(lock owner)" = engine-0 ]
    kill -0 "$BG_PID"
    if [ "$form" = --exec ]; then run ! grep -q gpu_free "$T/events"; fi
    empty
    expect_exit "$BG_PID" 0
    grep -q '"free":67108864' "$T/engine$form.out"
    grep -q '"event":"gpu_free".*"free":67108864' "$T/events"
    rm "$T/events" "$T/filler.sock"
  done
}

@test "gate: the lock is released at the timeout, with the busy status" {
  fill $((48 << 20))
  ends_with 9 lock acquire --gpu-free 60MiB --timeout 100ms -E 9 -- touch "$T/ran"
  [ "$stderr" = "gms-lock: warning: acquire lock '$T/lock': released: device 0 has 16 MiB free, 60 MiB needed" ]
  [ ! -e "$T/ran" ]
  run -1 lock owner
  run -0 lock acquire --gpu-free 16MiB --nonblock --id next -- true
}

@test "gate: what can't work is reported before the wait for the lock" {
  start_holder engine-9
  ends_with 64 lock acquire --gpu-free 65MiB -- true
  # shellcheck disable=SC2154
  [[ ${stderr_lines[0]} == "gms-lock: error: query the free memory of device 0: "*"it has 67108864 bytes, 68157440 needed" ]]
  fails 69 "query the free memory of device 9: *" lock acquire --gpu-free 1MiB --device 9 -- true
  FO_LIBEXEC_DIR=$T fails 69 "use helper program '$T/fo-gpu': *" lock acquire --gpu-free 1MiB -- true
  run -64 lock acquire --device 0 -- true
  run -64 lock acquire --gpu-free lots -- true
}

@test "gate: a signal ends the wait, a replaced file loses the lock; neither runs the command" {
  fill $((48 << 20))
  start_bg engine gms-lock acquire --gpu-free 60MiB --status-fd 7 -- touch "$T/ran" 7>"$T/events"
  wait_for "grep -q granted $T/events"
  terminate "$BG_PID" 143
  run -1 lock owner
  start_bg engine gms-lock acquire --gpu-free 60MiB --status-fd 7 -- touch "$T/ran" 7>"$T/events"
  wait_for "grep -q granted $T/events"
  rm "$T/lock"
  expect_exit "$BG_PID" 76
  [ "$(cat "$T/engine.err")" = "gms-lock: error: hold lock '$T/lock': the file was replaced" ]
  start_bg engine gms-lock acquire --gpu-free 60MiB --exec --status-fd 7 -- touch "$T/ran" \
    7>"$T/events"
  wait_for "grep -q granted $T/events"
  rm "$T/lock"
  expect_exit "$BG_PID" 76
  grep -q '"event":"lost"' "$T/events"
  run ! grep gpu_free "$T/events"
  [ ! -e "$T/ran" ]
}

@test "gate: a signal also ends the first query" {
  # shellcheck disable=SC2016
  stub_gpu 'echo asked >"$T/asked"; exec sleep 1000'
  start_bg engine gms-lock acquire --gpu-free 1MiB --exec -- touch "$T/ran"
  wait_for "[ -e $T/asked ]"
  terminate "$BG_PID" 143
  [ ! -e "$T/ran" ]
}

@test "gate: after a lock server's death the command starts only once a server is reachable again" {
  serve_lock
  fill $((48 << 20))
  start_bg engine gms-lock acquire --gpu-free 60MiB --status-fd 7 -- touch "$T/ran" 7>"$T/events"
  engine=$BG_PID
  wait_for "grep -q granted $T/events"
  kill_lockd
  empty
  wait_for "grep -q gpu_free $T/events"
  [ ! -e "$T/ran" ]
  serve_lock
  expect_exit "$engine" 0
  [ -e "$T/ran" ]
}

@test "gate: a helper that prints nothing or fails is an error" {
  stub_gpu 'exit 0'
  fails 70 "query the free memory of device 0: fo-gpu gave no answer" lock acquire --gpu-free 1MiB -- touch "$T/ran"
  # shellcheck disable=SC2016
  stub_gpu 'kill -SEGV $$'
  fails 70 "*fo-gpu ended with status 139" lock acquire --gpu-free 1MiB -- touch "$T/ran"
  printf '#!/absent/interpreter\n' >"$T/bin/fo-gpu"
  fails 69 "run '$T/bin/fo-gpu': *" lock acquire --gpu-free 1MiB -- touch "$T/ran"
  [ ! -e "$T/ran" ]
}

# --- unusual process environments -----------------------------------------------------------------

@test "it works under a parent that ignores SIGCHLD" {
  for command in "gms-lock acquire -- sh -c 'exit 3'" \
    "gms-lock acquire --gpu-free 1 -- sh -c 'exit 3'" "gms-lock acquire --exec -- sh -c 'exit 3'"; do
    run -3 bash -c "exec 3>&-; trap '' CHLD; $command"
  done
  # The command inherits the ignored signal.
  run -0 bash -c "exec 3>&-; trap '' CHLD; gms-lock acquire -- grep SigIgn /proc/self/status"
  [ $((0x${output##*[[:space:]]} >> 16 & 1)) -eq 1 ]
}

@test "with few descriptors, all of many processes are ended" {
  # shellcheck disable=SC2016
  run -5 bash -c 'exec 3>&-; ulimit -n 32
    gms-lock acquire --grace 10ms -- sh -c "
      i=0; while [ \$i -lt 80 ]; do setsid sleep 1000 & i=\$((i + 1)); done; exit 5"'
  run -1 lock owner
}

@test "a command of another user that may not be signalled: reported, and the lock is kept" {
  need_root
  setpriv --bounding-set -kill true 2>/dev/null || skip_because root "no capability can be dropped"
  chmod 777 "$T"
  mkfifo -m 666 "$T/end"
  start_bg engine setpriv --inh-caps -kill --bounding-set -kill \
    gms-lock acquire -- setpriv --reuid 65534 --clear-groups sh -c \
    "echo started >$T/started; read -r x <$T/end; exit 4"
  wait_for "[ -e $T/started ]"
  kill -USR1 "$BG_PID"
  wait_for "grep -q 'forward to process' $T/engine.err"
  [ "$(lock owner)" = engine-0 ]
  echo >"$T/end"
  expect_exit "$BG_PID" 4
}

# --- hold form ------------------------------------------------------------------------------------

@test "hold form: prints the grant, holds until stdin ends, then 0" {
  mkfifo "$T/in"
  gms-lock acquire --json <"$T/in" >"$T/out" 3>&- &
  pid=$!
  exec 8>"$T/in"
  wait_for "[ -s $T/out ]"
  [[ $(cat "$T/out") =~ ^\{\"generation\":1,\"granted_at\":\"20[^\"]*Z\",\"id\":\"engine-0\",\"waited\":[-0-9.e]+\}$ ]]
  [ "$(lock owner)" = engine-0 ]
  echo "is ignored" >&8
  run -75 lock acquire --nonblock -- true
  exec 8>&-
  expect_exit "$pid" 0
  run -1 lock owner
}

@test "hold form: a signal ends it with 0, a replaced file with 76, a full stdout with 74" {
  mkfifo "$T/in"
  exec 8<>"$T/in"
  gms-lock acquire <"$T/in" >"$T/out" 3>&- 8>&- &
  pid=$!
  wait_for "grep -q ^waited: $T/out"
  [ "$(field generation <"$T/out")" = 1 ]
  terminate "$pid"
  rm "$T/out"
  gms-lock acquire <"$T/in" >"$T/out" 2>"$T/err" 3>&- 8>&- &
  pid=$!
  wait_for "grep -q ^waited: $T/out"
  rm "$T/lock"
  expect_exit "$pid" 76
  [ "$(cat "$T/err")" = "gms-lock: error: hold lock '$T/lock': the file was replaced" ]
  status=0
  gms-lock acquire <"$T/in" >/dev/full 2>"$T/err" 3>&- 8>&- || status=$?
  [ "$status" -eq 74 ]
  exec 8>&-
}

# --- owner and status -----------------------------------------------------------------------------

@test "owner: the holder's id, or 1 and nothing, even if the file has a stale text" {
  ends_with 1 lock owner
  [ -z "$output$stderr" ]
  [ ! -e "$T/lock" ]
  echo engine-9 >"$T/lock"
  ends_with 1 lock owner
  [ -z "$output$stderr" ]
  [ "$(lock owner --json || :)" = '{"holder":null}' ]
  start_holder engine-0
  answers 0 engine-0 lock owner
  [ "$(lock owner --json)" = '{"holder":"engine-0"}' ]
}

@test "status: free, held, waited for, and held by a process without a record" {
  run -0 lock status
  [ "$output" = "lock: $T/lock
state: free" ]
  start_holder engine-0
  holder=$BG_PID
  run -0 lock status
  [ "$(field state <<<"$output")" = held ]
  [ "$(field holder <<<"$output")" = engine-0 ]
  [ "$(field generation <<<"$output")" = 1 ]
  [ "$(field pid <<<"$output")" = "$holder" ]
  [[ $(field since <<<"$output") == 20*Z\ on\ * ]]
  [ "$(field open_by <<<"$output" | sort)" = "$(printf '%s\n' "$holder (gms-lock) fd 3, holds the lock" \
    "$(cat "$T/engine-0.cmd") (sleep) fd 3, holds the lock" | sort)" ]
  start_bg waiter gms-lock acquire --id engine-1 -- true
  await_waiter
  [ "$(lock status | field waiter)" = "$BG_PID" ]
  [[ $(lock status --json) == *"\"waiters\":[{\"id\":null,\"pid\":$BG_PID}]"* ]]
  kill -TERM "$holder"
  wait_exit "$BG_PID"
  run -0 lock status
  [ "$output" = "lock: $T/lock
state: free
last_generation: 2" ]
}

# --- a lock server --------------------------------------------------------------------------------

# serve_lock: starts a server. Sets LOCKD.
serve_lock() {
  S=$T/lock.sock
  export FAILOVER_LOCK_PATH=unix:$S
  start_lockd --reconnect-window 300ms
  LOCKD=$BG_PID
}
kill_lockd() { kill_now "$LOCKD"; }
restart_lockd() {
  kill_lockd
  serve_lock
}

@test "lock server: a supervised command, owner, status, refusal; the exec form is refused" {
  serve_lock
  run -1 lock owner
  start_holder engine-7
  run -0 lock owner
  [ "$output" = engine-7 ]
  [ "$(lock status | field holder)" = engine-7 ]
  [ "$(lock status | field generation)" = 1 ]
  [ "$(lock status | field pid)" = "$BG_PID" ]
  warns 75 "acquire lock '$T/lock.sock': held by 'engine-7'" lock acquire --nonblock -- touch "$T/ran"
  fails 64 "acquire lock '$T/lock.sock': --exec works with a flock only; *" lock acquire --exec -- touch "$T/ran"
  run -64 lock acquire --fd 9 -- touch "$T/ran"
  [ ! -e "$T/ran" ]
}

@test "lock server: ranks of one engine hold the lock together, the last one releases it" {
  serve_lock
  start_bg rank-0 gms-lock acquire --id engine-0 -- sleep 1000
  first=$BG_PID
  wait_for 'gms-probe lock --holder engine-0'
  start_bg rank-1 gms-lock acquire --id engine-0 -- sleep 1000
  second=$BG_PID
  wait_for 'lock status | grep -c "holds the lock" | grep -qx 2'
  start_waiter
  kill_now "$first"
  [ "$(lock owner)" = engine-0 ]
  [ ! -e "$T/ran" ]
  kill -KILL "$second"
  wait_for "[ -e $T/ran ]"
}

@test "lock server: its crash causes no failover of a healthy engine" {
  serve_lock
  start_holder engine-0 --status-fd 7 7>"$T/events"
  engine=$BG_PID
  start_waiter
  for _ in 1 2 3; do
    restart_lockd
    wait_for 'gms-probe lock --holder engine-0'
    await_waiter
    wait_for '! lock status | grep -q ^window_left:'
    grep -q "info: returned to 'engine-0' (process $engine): generation 1" "$T/lockd.err"
  done
  [ "$(lock status | field generation)" = 1 ]
  kill -0 "$(cat "$T/engine-0.cmd")"
  run ! grep -q lost "$T/events"
  [ ! -e "$T/ran" ]
  kill -KILL "$engine"
  wait_for "[ -e $T/ran ]"
}

@test "lock server: it crashes and the engine hangs: no other gets the lock while that lives" {
  serve_lock
  start_holder engine-0
  engine=$BG_PID
  start_waiter
  kill -STOP "$engine"
  restart_lockd
  # The window is over, and the lock is not granted.
  wait_for 'lock status --json | grep -Eq "\"window_left\":0(\\.0)?[,}]"'
  await_waiter
  [ "$(lock owner)" = engine-0 ]
  [ ! -e "$T/ran" ]
  kill -CONT "$engine"
  wait_for '! lock status | grep -q ^window_left:'
  [ "$(lock status | field generation)" = 1 ]
  [ ! -e "$T/ran" ]
  kill -STOP "$engine"
  restart_lockd
  kill -KILL "$engine"
  wait_for "[ -e $T/ran ]"
}

@test "lock server: a holder that was replaced is killed when it reconnects, 75" {
  serve_lock
  # shellcheck disable=SC2016
  start_bg engine gms-lock acquire --id engine-0 --grace 1h -- bash -c \
    'trap "" TERM; echo $$ >"$0/cmd"; while :; do sleep 0.01; done' "$T"
  engine=$BG_PID
  wait_for "[ -s $T/cmd ]"
  kill -STOP "$engine"
  kill_lockd
  # A server without this state does not know the holder, as if it could not see its process.
  rm "$T"/lock.sock.state
  serve_lock
  start_holder engine-1
  kill -CONT "$engine"
  expect_exit "$engine" 75
  [ "$(tail -n 1 "$T/engine.err")" = "gms-lock: error: hold lock '$T/lock.sock': the grant of generation 1 is over" ]
  run ! kill -0 "$(cat "$T/cmd")"
  [ "$(lock owner)" = engine-1 ]
}

@test "lock server: when it stays unreachable the command is ended, 76" {
  serve_lock
  start_holder engine-0 --status-fd 7 7>"$T/events"
  kill_lockd
  expect_exit "$BG_PID" 76
  [ "$(tail -n 1 "$T/engine-0.err")" = "gms-lock: error: hold lock '$T/lock.sock': the lock server is unreachable" ]
  grep -q '"event":"lost"' "$T/events"
  run ! kill -0 "$(cat "$T/engine-0.cmd")"
}

@test "lock server: a hung server blocks neither a release nor the end of a wait" {
  serve_lock
  start_holder engine-0
  engine=$BG_PID
  kill -STOP "$LOCKD"
  start_bg waiter gms-lock acquire --id engine-1 --warn-after 1ms -- touch "$T/ran"
  # shellcheck disable=SC2016
  wait_for 'ls -l /proc/$BG_PID/fd | grep -q socket:'
  terminate "$BG_PID" 143
  run -75 lock acquire --id engine-1 --timeout 100ms -- touch "$T/ran"
  terminate "$engine" 143
  kill -CONT "$LOCKD"
  run -0 lock acquire --id engine-1 --timeout 20s -- true
  [ ! -e "$T/ran" ]
}

# --- several locks --------------------------------------------------------------------------------

@test "several locks are held together, and the command inherits them" {
  cat >"$T/command" <<EOT
gms-lock owner --lock '$T/one' && gms-lock owner --lock '$T/two' &&
  test -e "/proc/self/fd/\$FAILOVER_LOCK_FD" && echo "\$FAILOVER_GENERATION"
EOT
  answers 0 $'me\nme\n1' lock acquire --lock "$T/one" --lock "flock:$T/two" --id me -- sh "$T/command"
  answers 0 $'me\nme\n2' lock acquire --exec --lock "$T/one" --lock "$T/two" --id me -- sh "$T/command"
  run -1 lock owner --lock "$T/one"
  start_holder other --lock "$T/two"
  warns 75 "acquire lock '$T/one and $T/two': held by 'other'" \
    lock acquire --lock "$T/one" --lock "$T/two" --timeout 50ms -- true
}

@test "several locks: owner and status take one, and the exec form takes files" {
  for command in owner status; do
    fails 64 "only acquire takes several locks" lock "$command" --lock "$T/one" --lock "$T/two"
  done
  fails 64 "lock '$T/one': named twice" lock acquire --lock "$T/one" --lock "flock:$T/one" -- true
  fails 64 "*--exec works with a flock only*" lock acquire --exec --lock "$T/one" --lock "unix:$T/sock" -- true
}
