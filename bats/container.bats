#!/usr/bin/env bats
# The images of packaging/container: their contents, and that they work. tests/container/simulate
# runs them in a chroot; buildah builds them, as an example of all builders. No image comes from a
# registry: the server's base is a folder with this machine's C library.

# bats file_tags=slow
load test_helper

BUILD=$FO_ROOT/packaging/container/build
SIMULATE=$FO_ROOT/tests/container/simulate

setup_file() {
  export IMAGES=$BATS_FILE_TMPDIR
  if ! is_release; then return; fi
  local image
  for image in tools server rehearsal; do "$BUILD" --no-build "$image" "$IMAGES/$image"; done
  make_libc_base "$IMAGES/base"
}

setup() {
  fo_setup
  # The images run as other users.
  chmod 755 "$T"
}

need_root() {
  need_release
  [ "$(id -u)" -eq 0 ] || skip_because root "not root"
  unshare --mount true 2>/dev/null || skip_because root "root may not mount here"
}
need_buildah() {
  need_root
  need buildah
  # The path must be short, because sockets are below it.
  buildah=(buildah --storage-driver vfs --root "$T/store" --runroot "$T/run")
}

# make_libc_base FOLDER: creates an image that has a C library and nothing else.
make_libc_base() {
  local library
  mkdir -p "$1"
  for library in $(ldd "$FO_BIN/gms-serve" | grep -o '/[^ ]*'); do cp -L --parents "$library" "$1"; done
}

# use_server: sets in_server to the command that runs the image of gms-serve with the simulated
# driver; further options and the image follow.
use_server() {
  install -d -m 777 "$T/sim"
  in_server=(
    "$SIMULATE" run --env GMS_DRIVER=sim --env GMS_SIM_LIBRARY=/libcuda.so.1 --env GMS_SIM_DIR=/sim/device
    --env GMS_SIM_DEVICES=1
    --volume "$FO_BUILD/lib/sim/libcuda.so.1:/libcuda.so.1" --volume "$T/sim:/sim"
  )
}

@test "a linter has nothing to say about the Containerfiles" {
  local linter=$FO_BUILD/k8s/node_modules/dockerfile-utils/bin/dockerfile-utils file
  [ -f "$linter" ] || skip_because k8s "no dockerfile-utils in $FO_BUILD/k8s (tests/k8s/install gets it by npm)"
  for file in "$FO_ROOT"/packaging/container/*.Containerfile; do
    answers 0 "" node "$linter" lint "$file"
  done
  printf 'FROM scratch\nCOPY bin\nFROB x\n' >"$T/bad"
  run -1 node "$linter" lint "$T/bad"
}

@test "a build context has the image's programs, stripped, and its Containerfile" {
  need_release
  run -0 bash -c "cd '$IMAGES/server' && find . -type f ! -path \"./share/*\" | sort"
  [ "${lines[*]}" = "./Containerfile $(printf './bin/gms-%s ' load probe save serve stat)./libexec/fo/fo-gpu" ]
  answers 0 0 bash -c "readelf -S '$IMAGES'/*/bin/* | grep -c '\.symtab' || :"
  # The image has every program that fo-podgen's pods run, and every user can read them.
  run -0 ls "$IMAGES/tools/bin"
  [ "${lines[*]}" = "fo-canary fo-podgen fo-reg fo-route fo-shadow gms-load gms-lock gms-lockd gms-probe gms-remap-check gms-save gms-serve gms-stat" ]
  answers 0 "" find "$IMAGES/tools" "$IMAGES/server" "$IMAGES/rehearsal" ! -perm -o=r
  (
    umask 077
    "$BUILD" --no-build server "$T/server"
  )
  answers 0 "" find "$T/server" -type f ! -perm -o=r
}

@test "build refuses unknown images, and never writes into an existing folder" {
  local arguments
  for arguments in --frob tools 'frob DIR' 'tools DIR more' '--preset'; do
    # shellcheck disable=SC2086  # several arguments
    ends_with 64 "$BUILD" $arguments
    [[ "${stderr_lines[0]}" == "build: error: "* ]]
    [ "${stderr_lines[1]}" = "Try 'packaging/container/build --help'" ]
  done
  ends_with 66 "$BUILD" --preset nothing tools "$T/tools"
  [[ "${stderr_lines[-1]}" == \
    "build: error: install from '$FO_ROOT/build/nothing': not built: cmake --preset nothing, "* ]]
  [ ! -e "$T/tools" ]
  need_release
  mkdir "$T/there"
  ends_with 73 "$BUILD" tools "$T/there"
  [ "$stderr" = "build: error: create '$T/there': it is there already" ]
  ends_with 73 "$BUILD" tools /dev/null/tools
}

# init_container: sets command and folder, which fo-podgen's pods use with the tools image. The
# folder is a volume of the pod, here $T/volume.
init_container() {
  local container
  container=$(fo-podgen -q -f "$FO_ROOT/tests/dgd/single.yaml" --tools-image fo-tools -o json |
    jq '[.. | .initContainers? // empty | .[] | select(.image == "fo-tools")][0]')
  folder=$(jq -r '.volumeMounts[0].mountPath' <<<"$container")
  mapfile -t command < <(jq -r '.command[]' <<<"$container")
  [ "${#command[@]}" -eq 3 ]
  install -d -m 777 "$T/volume"
}

# tools_work: runs each tool in $T/volume in an engine's container, at its path there.
tools_work() {
  local tool
  mkdir -p "$T/engine"
  cp -r "$IMAGES/base" "$T/engine/root"
  echo '{"env": {}, "user": "1000:1000", "entrypoint": [], "cmd": []}' >"$T/engine/root.json"
  for tool in "$IMAGES"/tools/bin/*; do
    tool=${tool##*/}
    run -0 "$SIMULATE" run --volume "$T/volume:$folder" --entrypoint "$folder/bin/$tool" "$T/engine/root" --version
    [[ "$output" == "$tool "* ]]
  done
  # The helper program is installed with them.
  run -0 "$SIMULATE" run --volume "$T/volume:$folder" --volume "$FO_BUILD/lib/sim/libcuda.so.1:/libcuda.so.1" \
    --env GMS_DRIVER=sim --env GMS_SIM_LIBRARY=/libcuda.so.1 --env GMS_SIM_DIR=/tmp/device \
    --volume "$GMS_SIM_DIR:/tmp" --entrypoint "$folder/bin/gms-probe" "$T/engine/root" gpu --free 1MiB
}

@test "the tools image copies its tools into a pod's volume, where engines run them (simulated)" {
  need_root
  init_container
  chmod 777 "$GMS_SIM_DIR"
  "$SIMULATE" build "$IMAGES/tools" "$T/root"
  ends_with 0 "$SIMULATE" run --volume "$T/volume:$folder" --entrypoint "${command[0]}" \
    "$T/root" "${command[@]:1}"
  [ "$output" = "14 programs installed in $folder" ]
  [ "$(stat -c %u "$T/volume/bin/gms-lock")" -eq 65532 ]
  tools_work
  # So does the image's own command, also when the tools are installed already.
  answers 0 "14 programs installed in $folder" "$SIMULATE" run --volume "$T/volume:$folder" "$T/root"
}

@test "the server image runs as its own user, answers its probe, and ends on a signal (simulated)" {
  need_root
  "$SIMULATE" build --base "$IMAGES/base" "$IMAGES/server" "$T/server"
  use_server
  start_bg server "${in_server[@]}" "$T/server"
  local server=$BG_PID
  ends_with 0 "${in_server[@]}" --entrypoint gms-probe "$T/server" sockets --tags weights --wait 20s
  [ "$(awk '/^Uid:/ {print $2}' "/proc/$server/status")" -eq 65532 ]
  ends_with 0 "${in_server[@]}" --entrypoint gms-stat "$T/server" --json
  # Loads a model, and saves it as a snapshot.
  fo-refengine make-model "$T/sim/model" --layers 1 >/dev/null
  chmod -R a+rX "$T/sim/model"
  ends_with 0 "${in_server[@]}" --entrypoint gms-load "$T/server" /sim/model --role rw -q
  ends_with 0 "${in_server[@]}" --entrypoint gms-probe "$T/server" sockets --tags weights --committed
  ends_with 0 "${in_server[@]}" --entrypoint gms-save "$T/server" /sim/snapshot -q
  [ -d "$T/sim/snapshot" ]
  kill "-$(jq -r '.signal | ltrimstr("SIG")' "$T/server.json")" "$server"
  expect_exit "$server" 0
  ends_with 1 "${in_server[@]}" --entrypoint gms-probe "$T/server" sockets --tags weights
}

@test "the rehearsal image has a simulated GPU, and all programs of its pod (simulated)" {
  need_root
  "$SIMULATE" build --base "$IMAGES/base" "$IMAGES/rehearsal" "$T/rehearsal"
  local pod=$FO_ROOT/packaging/k8s/rehearsal/deployment.yaml program
  while read -r program; do
    case $program in
      fo-rehearsal | gms-metrics) ;;
      *) [ -x "$IMAGES/rehearsal/bin/$program" ] || { echo "no $program"; return 1; } ;;
    esac
  done < <(grep -oE '(gms|fo)-[a-z]+' "$pod" | sort -u)
  install -d -m 777 "$T/sim"
  local in_image=("$SIMULATE" run --env GMS_SIM_DIR=/sim/device --env GMS_SOCKET_DIR=/sim --volume "$T/sim:/sim")
  start_bg server "${in_image[@]}" --entrypoint gms-serve "$T/rehearsal" --devices 0
  ends_with 0 "${in_image[@]}" --entrypoint gms-probe "$T/rehearsal" sockets --wait 20s
  ends_with 0 "${in_image[@]}" --entrypoint gms-probe "$T/rehearsal" gpu --free 1MiB
  ends_with 0 "${in_image[@]}" --entrypoint fo-refengine "$T/rehearsal" make-model -q --layers 1 /sim/model
  ends_with 0 "${in_image[@]}" --entrypoint gms-load "$T/rehearsal" -q --role rw /sim/model
}

@test "the server image runs as a given user (simulated)" {
  need_root
  "$SIMULATE" build --base "$IMAGES/base" "$IMAGES/server" "$T/server"
  use_server
  mkdir "$T/shared"
  chown 1234 "$T/shared"
  start_bg server "${in_server[@]}" --user 1234 --volume "$T/shared:/shared" "$T/server"
  ends_with 0 "${in_server[@]}" --user 1234 --volume "$T/shared:/shared" --entrypoint gms-probe "$T/server" \
    sockets --tags weights --wait 20s
  [ "$(stat -c %u "$(find "$T/shared" -type s | head -n 1)")" -eq 1234 ]
}

@test "the server image is not built on a base that can't run it (simulated)" {
  need_root
  mkdir "$T/empty"
  ends_with 70 "$SIMULATE" build --base "$T/empty" "$IMAGES/server" "$T/server"
  [[ "$stderr" == *'simulate: error: run ["/usr/local/bin/gms-serve", "--version"]: exit status '* ]]
}

# same_image NAME ROOT: buildah's image has the files and settings of the simulated one.
same_image() {
  local container mounted
  container=$("${buildah[@]}" from "localhost/$1")
  mounted=$("${buildah[@]}" mount "$container")
  # A runtime creates mount points, which are not part of the image.
  diff -r --no-dereference -x proc -x dev -x sys -x etc -x run "$mounted" "$2"
  diff <(cd "$mounted" && find bin libexec share usr/local shared -printf '%p %m %U %G\n' 2>/dev/null | sort) \
    <(cd "$2" && find bin libexec share usr/local shared -printf '%p %m %U %G\n' 2>/dev/null | sort)
  diff <("${buildah[@]}" inspect --type image "localhost/$1" | jq -S '.OCIv1.config | {
      user: .User, cmd: (.Cmd // []), entrypoint: (.Entrypoint // []), signal: (.StopSignal // "SIGTERM"),
      env: ([.Env[]?] | sort)
    }') \
    <(jq -S '{
      user, cmd, entrypoint, signal, env: ([.env | to_entries[] | "\(.key)=\(.value)"] | sort)
    }' "$2.json")
}

@test "buildah builds the tools image, which copies its tools into a pod's volume" {
  need_buildah
  init_container
  chmod 777 "$GMS_SIM_DIR"
  "${buildah[@]}" bud -q --isolation chroot -t fo-tools "$IMAGES/tools"
  "$SIMULATE" build "$IMAGES/tools" "$T/root"
  same_image fo-tools "$T/root"
  local container
  container=$("${buildah[@]}" from localhost/fo-tools)
  run -0 "${buildah[@]}" run --isolation chroot -v "$T/volume:$folder" "$container" -- "${command[@]}"
  [[ "$output" == *"14 programs installed in $folder"* ]]
  tools_work
}

@test "buildah builds the server image on the given base, and not on one that can't run it" {
  need_buildah
  local container
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" copy -q "$container" "$IMAGES/base" /
  "${buildah[@]}" commit -q "$container" localhost/base
  "${buildah[@]}" bud -q --isolation chroot --build-arg BASE=localhost/base -t fo-server "$IMAGES/server"
  "$SIMULATE" build --base "$IMAGES/base" "$IMAGES/server" "$T/root"
  same_image fo-server "$T/root"
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" commit -q "$container" localhost/empty
  run "${buildah[@]}" bud -q --isolation chroot --build-arg BASE=localhost/empty -t never "$IMAGES/server"
  [ "$status" -ne 0 ]
}
