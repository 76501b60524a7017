# The examples of the documents, and a machine on which they run unchanged: their paths (/shared,
# /models, /run/gms), ports, addresses and host names exist there, and are private to it. What can't
# exist there is a stub in PATH: see standard_stubs.

# shellcheck disable=SC2016,SC2034,SC2119,SC2120,SC2154  # text for other shells; others set variables

# Placeholders of the documents, and folders that exist on the host.
SUBSTITUTIONS='
  s|\bMODEL\b|/models/llama|g
  s|\bSNAPSHOT\b|--snapshot /snapshots/llama|g
  s|\bDIR\b|/snapshots/llama|g
  s|\bSIZE\b|64MiB|g
  s|k8s:NAMESPACE/LEASE\b|k8s:default/pair|g
  s|^fo-shadow(.*) -- ENGINE \.\.\.$|fo-shadow\1 -- vllm serve /models/llama --enable-sleep-mode|
  s|\bENGINE \.\.\.$|my-engine|
  s|/usr/share/doc/fo-tools\b|/var/lib/fo-tools|g
  s|/etc/systemd/system\b|/run/systemd/system|g
  s|-- \.\.\.$|-- vllm serve /models/llama --enable-sleep-mode|
'

# --- documents ------------------------------------------------------------------------------------

# documents: lists every page, and the README.
documents() { (cd "$FO_ROOT" && ls README.md man/*.[1-9]); }

# blocks DOCUMENT: prints its literal blocks, each ended by a zero byte: in mdoc, the literal
# displays; in Markdown, text that is fenced, or indented by four columns after an empty line.
blocks() {
  case $1 in
    *.md)
      awk '
        function flush() { sub(/\n+$/, "\n", text); if (text != "") printf "%s%c", text, 0; text = "" }
        /^ *```/ { if (fenced) flush(); fenced = !fenced; next }
        fenced { text = text $0 "\n"; next }
        /^    / && (text != "" || empty) { text = text substr($0, 5) "\n"; next }
        /^$/ { if (text != "") text = text "\n"; empty = 1; next }
        { flush(); empty = 0 }
        END { flush() }' "$FO_ROOT/$1"
      ;;
    *)
      awk '
        function plain(line) {
          gsub(/\\&/, "", line); gsub(/\\-/, "-", line)
          gsub(/\\\(dq/, "\"", line); gsub(/\\\(aq/, "\047", line)
          if (line ~ /\\[^e]/) { print FILENAME ": unknown escape: " line >"/dev/stderr"; exit 1 }
          gsub(/\\e/, "\\", line)
          return line
        }
        /^\.Bd -literal/ { inside = 1; next }
        /^\.Ed/ && inside { printf "%c", 0; inside = 0; next }
        inside { print plain($0) }
        /^\.Dl / { printf "%s\n%c", plain(substr($0, 5)), 0 }' "$FO_ROOT/$1"
      ;;
  esac
}

# calls DOCUMENT: prints the commands within its sentences, one per line: a tool and its arguments.
calls() {
  {
    case $1 in
      *.md) cat "$FO_ROOT/$1" ;;
      *) mandoc -T markdown "$FO_ROOT/$1" ;;
    esac
  } | grep -oE '(`|\*\*)(gms|fo)-[a-z]+ [^`*,]+' | tr -d '`*'
}

# read_blocks DOCUMENT: reads its blocks into BLOCKS.
BLOCKS_OF=
read_blocks() {
  if [ "$BLOCKS_OF" = "$1" ]; then return; fi
  mapfile -d '' -t BLOCKS < <(blocks "$1")
  BLOCKS_OF=$1
}

# find_block DOCUMENT WORDS: sets BLOCK to the number, from 1, of the block that contains WORDS, or
# begins with them if WORDS begins with ^. Fails unless exactly one block does.
find_block() {
  local i found=
  read_blocks "$1"
  for i in "${!BLOCKS[@]}"; do
    if [[ ^${BLOCKS[i]} == *"$2"* ]]; then found+=" $((i + 1))"; fi
  done
  if [[ ! $found =~ ^\ [0-9]+$ ]]; then
    echo "$1: '$2' is to be in one block; it is in:${found:- none}"
    return 1
  fi
  BLOCK=${found# }
}

# example DOCUMENT WORDS: sets EXAMPLE to the block, with substitutions, for the test that runs it.
# documents.bats checks that every block has one such line, or a line of no_example, in a test.
example() {
  find_block "$1" "$2" || return
  EXAMPLE=$(sed -E "$SUBSTITUTIONS" <<<"${BLOCKS[BLOCK - 1]%$'\n'}")
}

# --- the machine ----------------------------------------------------------------------------------

# start_machine: sets ROOM to the machine's root folder, as seen from outside. It has the host's
# programs, its own other folders, and a network without connections.
start_machine() {
  local -a namespaces=(--mount --net --uts)
  if [ "$(id -u)" -ne 0 ]; then namespaces+=(--user --map-root-user); fi
  unshare "${namespaces[@]}" mount --bind "$T" "$T" 2>"$T/machine.err" ||
    skip_because namespaces "no machine for the examples: $(cat "$T/machine.err")"
  ROOM=$T/room
  mkdir -p "$ROOM"/{models,root/here,run/gms,shared,snapshots,tmp,var/lib} "$T/stubs"
  printf '127.0.0.1 localhost node-3\n10.0.0.5 etcd\n' >"$T/hosts"
  start_bg machine unshare "${namespaces[@]}" bash -ec '
    room=$1 hosts=$2
    shift 2
    # Paths that the tests need, if they are below a folder that the machine has of its own.
    for path; do
      top=${path#/}
      if [ -d "$room/${top%%/*}" ]; then
        mkdir -p "$room$path"
        mount --rbind "$path" "$room$path"
      fi
    done
    links=() folders=() table=
    for path in /*; do
      if [ -L "$path" ]; then
        links+=("$path")
      elif [ -d "$path" ] && [ ! -d "$room$path" ]; then
        folders+=("$path")
        # Examples cannot change the host.
        case $path in
          /dev | /proc | /sys) flags=rbind ;;
          *) flags=rbind,ro ;;
        esac
        table+="$path $room$path none $flags 0 0
"
      fi
    done
    if [ "${#links[@]}" -gt 0 ]; then cp -P "${links[@]}" "$room"; fi
    mkdir "${folders[@]/#/$room}"
    # In a user namespace, some cannot be read-only.
    printf %s "$table" >"$hosts.fstab"
    mount --all --fstab "$hosts.fstab" 2>/dev/null || :
    mount --bind "$hosts" "$room/etc/hosts"
    ip link set lo up
    ip address add 10.0.0.5/32 dev lo
    hostname node-3
    exec chroot "$room" sh -c "cd /root/here && echo ready && exec sleep infinity"' \
    bash "$ROOM" "$T/hosts" "$FO_ROOT" "$FO_BUILD" "$GMS_SIM_DIR" "$T"
  MACHINE=$BG_PID
  wait_for "[ -s $T/machine.out ] || ! kill -0 $MACHINE"
  [ -s "$T/machine.out" ] || return
  INSIDE=(nsenter --target "$MACHINE" --mount --net --uts --root --wd)
  if [ "$(id -u)" -ne 0 ]; then INSIDE+=(--user --preserve-credentials); fi
  INSIDE+=(--)
  export GMS_SOCKET_DIR=/shared PATH=$T/stubs:$PATH GMS_SIM_CONTEXT_SIZE=0 GMS_SIM_DEVICES=1
}

# inside COMMAND...: runs it on the machine, in /root/here. In the background, use INSIDE itself.
inside() { "${INSIDE[@]}" "$@"; }

# run_example [STATUS] [WORD=VALUE...]: runs EXAMPLE with these variables, like run does.
run_example() {
  local wanted=0
  if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    wanted=$1
    shift
  fi
  ends_with "$wanted" inside env "$@" timeout -s KILL 60 bash -ec "$EXAMPLE"
  echo "$output$stderr"
}

# start_example NAME [WORD=VALUE...]: the same in the background, like start_bg does. The shell
# waits for the example's own background processes.
start_example() {
  start_bg "$1" "${INSIDE[@]}" env "${@:2}" bash -ec "$EXAMPLE
wait"
}

# end_example PID [STATUS]: sends SIGTERM to the example's program, and expects this exit status.
end_example() {
  local pids=$1
  if [ "$(cat "/proc/$1/comm")" = bash ]; then pids=$(cat "/proc/$1/task/$1/children"); fi
  # shellcheck disable=SC2086  # several
  kill -TERM $pids
  wait_exit "$1"
  [ "$status" -eq "${2:-0}" ] || { echo "status $status instead of ${2:-0}"; return 1; }
}

# prints LINES: the last program has printed these lines, in their shape, among others.
prints() {
  run ! grep '^<' <(diff <(shape <<<"$1" | sort -u) <(shape <<<"$output" | sort -u))
}

# run_session: runs the command after the prompt in EXAMPLE, and expects the output below it.
run_session() {
  local wanted=${EXAMPLE#*$'\n'}
  [[ $EXAMPLE == "$ "* ]] || return
  EXAMPLE=${EXAMPLE%%$'\n'*}
  EXAMPLE=${EXAMPLE#"$ "} run_example
  prints "$wanted"
}

# shape: copies standard input, without the parts that differ between runs.
shape() {
  sed -E 's/[0-9a-f]{8}-[-0-9a-f]{27}/ID/g; s/[0-9]{4}-[0-9-]+T[0-9:.]+Z/TIME/g
    s/[0-9a-f]{64}|\b[0-9a-f]{4}\.\.\./HASH/g; s/[0-9]+(\.[0-9]+)?/N/g; s/\b[KMGT]iB\b/B/g; s/ +/ /g'
}

# --- other programs and engines ------------------------------------------------------------------

# stub NAME SCRIPT: creates a program that records its arguments in $T/calls and runs the script.
stub() {
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$T" "$2" >"$T/stubs/$1"
  chmod +x "$T/stubs/$1"
}
called() { grep -qxF -- "$1" "$T/calls"; }

standard_stubs() {
  : >"$T/calls"
  # An engine of no particular kind, which records its environment.
  stub my-engine 'env >"$T/engine.env"; exec sleep infinity'
  # vLLM, with the options that the documents use. Its sleep mode requires option and variable.
  stub vllm '
    if [ "$1" != serve ] || [ ! -d "$2" ]; then echo "vllm: no model: $*"; exit 2; fi
    model=$2 host=0.0.0.0 port=8000 sleeps= loader= worker= reads=
    shift 2
    while [ $# -gt 0 ]; do
      case $1 in
        --enable-sleep-mode) sleeps=$VLLM_SERVER_DEV_MODE ;;
        --load-format) [ "$2" = gms ] && loader=gms && shift ;;
        --worker-cls) worker=${2##*.} && shift ;;
        --model-loader-extra-config) reads=$(jq .gms_read_only <<<"$2") && shift ;;
        --host) host=$2 && shift ;;
        --port) port=$2 && shift ;;
        *) false ;;
      esac || { echo "vllm: error: unrecognized arguments: $1"; exit 2; }
      shift
    done
    if [ "$sleeps" != 1 ]; then echo "vllm: cannot be put to sleep"; exit 2; fi
    if [ "$loader:$worker" = gms: ]; then echo "vllm: unknown load format: gms"; exit 2; fi
    if [ "${ENGINE_ID:-0}:$reads" = 1:false ]; then echo "vllm: two engines may write"; exit 2; fi
    exec fo-refengine serve -q --model "$model" --host "$host" --port "$port" --kv-bytes 64MiB'
  # Accepts YAML manifests that have a kind.
  stub kubectl '
    case $* in
      "apply "*"-f -")
        fo-podgen -q -o json >"$T/applied.json" &&
          jq -er "(.items[]? // .) | \"\(.kind)/\(.metadata.name) created\"" "$T/applied.json" ;;
      "delete pod "* | "apply -k "*) ;;
      *) echo "error: unknown command \"$*\""; exit 1 ;;
    esac'
}

# a_model FOLDER...: creates small models of random weights, all equal.
a_model() {
  local folder
  for folder; do fo-refengine make-model -q --hidden 64 --layers 4 --seed 1 "$ROOM$folder" >/dev/null; done
}

# a_server [OPTION]...: starts gms-serve and waits until it is ready. Sets SERVER.
a_server() {
  start_bg server "${INSIDE[@]}" gms-serve "$@"
  SERVER=$BG_PID
  wait_for "[ -e $ROOM$GMS_SOCKET_DIR/gms-ready ]"
}

# weights [OPTION]...: starts a server and publishes the weights of /models/llama.
weights() {
  a_model /models/llama
  a_server --tags weights "$@"
  inside gms-load -q --role rw /models/llama >/dev/null
}

# a_holder ID [LOCK]: starts a process that holds the lock. Sets HOLDER.
a_holder() {
  start_bg "$1" "${INSIDE[@]}" gms-lock acquire --id "$1" ${2:+--lock "$2"} -- sleep infinity
  HOLDER=$BG_PID
  wait_for "inside gms-lock owner ${2:+--lock $2} | grep -qx $1"
}

# tokens: prints the tokens that a client of the published address gets.
tokens() {
  inside curl -fsS -d '{"prompt":"Hello","max_tokens":2}' http://127.0.0.1:8000/v1/completions |
    jq -ce '.choices[0].token_ids'
}

# engine_runs: waits until my-engine runs; its environment is in $T/engine.env then. run_engine NAME
# [WORD=VALUE...]: starts EXAMPLE, which runs it, like start_example does.
engine_runs() { wait_for "grep -q '^_=' $T/engine.env"; }
run_engine() {
  start_example "$@"
  engine_runs
}
