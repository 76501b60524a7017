#!/usr/bin/env bats
# The files that cmake --install creates, that they work there, and the tarball of the static tools.

load test_helper

setup_file() {
  PREFIX=$BATS_FILE_TMPDIR/opt
  export PREFIX
  cmake --install "$FO_BUILD" --prefix "$PREFIX" >/dev/null
  if is_release; then make_tarball; fi
}

# make_tarball: builds it, and sets TARBALL to its path.
make_tarball() {
  export TARBALL
  TARBALL=$(SOURCE_DATE_EPOCH=1700000000 "$FO_ROOT/packaging/package" --tarball --no-build)
  TARBALL=$FO_ROOT/$TARBALL
}

# unpack_tarball: unpacks it in $T/root, and sets TOOLS to its one folder.
unpack_tarball() {
  need_release
  mkdir "$T/root"
  tar -xf "$TARBALL" -C "$T/root"
  TOOLS=$(basename "$TARBALL" .tar.gz)
}

# units: prints the paths of the installed units.
units() { find "$PREFIX/lib/systemd/system" "$PREFIX/share/doc" -name '*.service'; }

# start_of UNIT [INSTANCE]: prints its ExecStart, in one line.
start_of() {
  sed -e ':join' -e '/\\$/{N;s/\\\n//;bjoin' -e '}' "$1" | sed -n "s/%i/${2:-}/g;s/^ExecStart=//p"
}

# environment_of UNIT INSTANCE: prints its Environment, one variable per line.
environment_of() { sed -n "s/%i/$2/g;s/^Environment=//p" "$1" | tr ' ' '\n'; }

@test "an installed tool finds the simulated driver, the helper and the loader in its prefix" {
  start_bg gms "$PREFIX/bin/gms-serve" --socket-dir "$T" --devices 0
  wait_for "[ -e $T/gms-ready ]"
  answers 0 active "$PREFIX/bin/gms-lock" acquire -q --lock "$T/lock" --gpu-free 1MiB -- echo active
  run -0 "$PREFIX/bin/gms-stat" --holders --socket-dir "$T"
  [[ "$output" == "device 0, simulated in "* ]]
  # These copies have no helper and no driver beside them.
  mkdir "$T/bin"
  cp "$PREFIX/bin/gms-lock" "$PREFIX/bin/gms-serve" "$T/bin"
  ends_with 69 "$T/bin/gms-lock" acquire -q --lock "$T/lock" --gpu-free 1MiB -- echo active
  [[ "$stderr" == *"'$T/libexec/fo/fo-gpu': No such file or directory" ]]
  mkdir "$T/other"
  ends_with 69 "$T/bin/gms-serve" --socket-dir "$T/other"
  [[ "$stderr" == *"no simulated CUDA driver beside '$T/bin/gms-serve'"* ]]
}

@test "every tool is installed with its page and its completions" {
  local tool
  for tool in $(all_tools); do
    for file in "bin/$tool" "share/bash-completion/completions/$tool" \
      "share/zsh/site-functions/_$tool" "share/fish/vendor_completions.d/$tool.fish"; do
      if [ ! -s "$PREFIX/$file" ]; then wrong "$file is not there"; fi
    done
    bash -n "$PREFIX/share/bash-completion/completions/$tool" || wrong "$tool"
  done
  for page in "$FO_ROOT"/man/*.[1-8]; do
    cmp "$page" "$PREFIX/share/man/man${page##*.}/${page##*/}" || wrong "$page"
  done
  none_wrong
  [ "$(cd "$PREFIX" && echo *)" = "bin etc lib libexec share" ]
  [ -x "$PREFIX/libexec/fo/fo-gpu" ]
}

@test "an installation below another root contains only the prefix" {
  DESTDIR=$T/root cmake --install "$FO_BUILD" --prefix /usr >/dev/null
  [ "$(cd "$T/root" && echo *)" = "etc usr" ]
  [ "$(start_of "$T/root/usr/lib/systemd/system/gms-serve.service")" = '/usr/bin/gms-serve $GMS_SERVE_OPTIONS' ]
  grep -qx 'EnvironmentFile=-/etc/default/gms-serve@%i' "$T/root/usr/lib/systemd/system/gms-serve@.service"
  [ -f "$T/root/etc/default/gms-serve" ]
  run -1 grep -rIlE "$T|@[a-z]+@" "$T/root"
  cmp "$T/root/usr/bin/gms-stat" "$PREFIX/bin/gms-stat"
  # The administrator's settings stay.
  echo '#' >"$T/root/etc/default/gms-serve"
  DESTDIR=$T/root cmake --install "$FO_BUILD" --prefix /usr >/dev/null
  [ "$(cat "$T/root/etc/default/gms-serve")" = '#' ]
}

@test "dynamic programs need nothing but libc" {
  need_release
  local program
  for program in "$FO_BIN"/* "$FO_BUILD"/libexec/fo/* "$FO_BUILD"/lib/sim/*; do
    readelf -d "$program" | sed -n "s|.*(NEEDED).*\[\(.*\)\]|${program##*/} needs \1|p"
  done >"$T/needed"
  grep -qx 'gms-serve needs libc.so.6' "$T/needed"
  run -1 grep -vE ' needs (libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2)$' "$T/needed"
}

@test "the units are right for a relative folder, and for one with a blank in its name" {
  cd "$T"
  cmake -DCMAKE_INSTALL_PREFIX="./a b" -DFO_BINDIR=bin -P "$FO_ROOT/packaging/systemd/install.cmake"
  [ "$(start_of "a b/lib/systemd/system/gms-serve.service")" = "$T/a\\x20b/bin/gms-serve \$GMS_SERVE_OPTIONS" ]
  grep -qxF "EnvironmentFile=-$T/a b/etc/default/gms-serve@%i" "a b/lib/systemd/system/gms-serve@.service"
  [ -f "a b/etc/default/gms-serve" ]
  need systemd-analyze systemd
  install -D /bin/true "a b/bin/gms-serve"
  answers 0 "" systemd-analyze verify --man=no --recursive-errors=no "$T/a b/lib/systemd/system/gms-serve.service"
}

# --- units ----------------------------------------------------------------------------------------

@test "systemd-analyze accepts the units" {
  need systemd-analyze systemd
  local unit name
  for unit in $(units); do
    name=${unit##*/}
    # The example names the paths of the packages.
    sed "s|=/usr/bin/|=$PREFIX/bin/|" "$unit" >"$T/$name"
    answers 0 "" systemd-analyze verify --man=no --recursive-errors=no "$T/${name/@./@0.}"
  done
  for unit in gms-serve.service gms-serve@.service; do
    run -0 systemd-analyze security --offline=yes --threshold=25 "$PREFIX/lib/systemd/system/$unit"
  done
}

@test "the servers load the GPU's modules, and engines have a /tmp" {
  local unit key
  for unit in gms-serve.service gms-serve@.service; do
    for key in Wants After; do
      grep -q "^$key=.*modprobe@nvidia_uvm.service" "$PREFIX/lib/systemd/system/$unit"
    done
  done
  # Two servers of the same GPU would share its memory.
  grep -qx Conflicts=gms-serve.service "$PREFIX/lib/systemd/system/gms-serve@.service"
  run -1 grep -q ^Conflicts= "$PREFIX/lib/systemd/system/gms-serve.service"
  for unit in $(units); do
    if grep -qx ProtectSystem=strict "$unit"; then grep -qx PrivateTmp=yes "$unit"; fi
  done
}

@test "the units' commands serve, and notify systemd" {
  local unit line
  for unit in gms-serve.service gms-serve@.service; do
    mapfile -t environment < <(environment_of "$PREFIX/lib/systemd/system/$unit" 1 | sed "s|/run|$T/run|")
    line=$(start_of "$PREFIX/lib/systemd/system/$unit" 1)
    folder=$T/run/gms devices=2
    if [ "$unit" = gms-serve@.service ]; then folder=$T/run/gms/1 devices=1; fi
    mkdir -p "$folder"
    start_bg manager socat -u "UNIX-RECV:$T/notify" "OPEN:$T/told,creat,trunc"
    wait_for "[ -S $T/notify ]"
    # shellcheck disable=SC2016,SC2086  # the unit's own variable; words, as systemd makes them
    start_bg gms env "${environment[@]}" NOTIFY_SOCKET="$T/notify" \
      ${line/'$GMS_SERVE_OPTIONS'/--tags weights}
    wait_for "grep -qx READY=1 $T/told"
    # One instance serves one device, the other unit all.
    [ "$(find "$folder" -maxdepth 1 -name 'gms_?.sock' | wc -l)" -eq "$devices" ]
    terminate "$BG_PID"
    wait_for "grep -q STOPPING=1 $T/told"
    kill "${BG_PIDS[-2]}"
    wait_exit "${BG_PIDS[-2]}"
    rm -f "$T/notify"
  done
}

@test "the example of a pair has a command line that fo-shadow accepts" {
  local unit line
  unit=$(units | grep fo-shadow@)
  line=$(start_of "$unit" 1)
  [[ "$line" == /usr/bin/fo-shadow\ *--publish*" -- "*vllm* ]]
  pick_port
  line=${line/--port 9091/--port $PORT}
  pick_port
  line=${line/0.0.0.0:8000/127.0.0.1:$PORT}
  pick_port
  line=${line/:8011/:$PORT}
  line=${line/#\/usr/$PREFIX}
  start_bg gms gms-serve --socket-dir "$T" --tags weights --devices 0
  wait_for "[ -e $T/gms-ready ]"
  mapfile -t environment < <(environment_of "$unit" 1 | sed "s#/run/fo#$T#;s#/run/gms#$T#")
  # shellcheck disable=SC2086  # words, as systemd makes them
  ends_with 1 env "${environment[@]}" timeout 20 ${line%% -- *} -- false
  [ "${stderr_lines[0]}" = "fo-shadow: error: the engine ended with status 1, while init" ]
}

# --- the tarball ----------------------------------------------------------------------------------

@test "the tarball has the static tools, stripped and small, with their pages and completions" {
  unpack_tarball
  local tool tools page
  [ "$(ls "$T/root")" = "$TOOLS" ]
  tools=$(sed -n 's/^fo_tool(\([^ ]*\) STATIC$/\1/p' "$FO_ROOT"/cmd/*/CMakeLists.txt | sort | xargs)
  [ "$(ls "$T/root/$TOOLS/bin" | sort | xargs)" = "$tools" ]
  [ "$(ls "$T/root/$TOOLS/libexec/fo")" = fo-gpu ]
  for tool in $tools; do
    if [ "$(stat -c %s "$T/root/$TOOLS/bin/$tool")" -ge $((9 * 1024 * 1024)) ]; then
      wrong "$tool has $(stat -c %s "$T/root/$TOOLS/bin/$tool") bytes"
    fi
    for file in share/man/man?/"$tool".? share/bash-completion/completions/"$tool"; do
      # shellcheck disable=SC2086  # the section is any
      ls "$T/root/$TOOLS"/$file >/dev/null || wrong "$file"
    done
  done
  none_wrong
  run -1 bash -c "readelf -S '$T/root/$TOOLS'/bin/* '$T/root/$TOOLS'/libexec/fo/* | grep -E 'symtab|debug_info'"
}

@test "the tarball has all pages, its own README, and the licences of libraries in the tools" {
  unpack_tarball
  local page library path
  for page in "$FO_ROOT"/man/*.[1-8]; do
    cmp "$page" "$T/root/$TOOLS/share/man/man${page##*.}/${page##*/}"
  done
  run -0 ls "$T/root/$TOOLS/share/doc/fo-tools/third-party"
  for library in boost c-ares c6 cli11 fmt msgpuck ssl stdc++ tomlplusplus yaml json; do
    [[ "$output" == *"$library"* ]]
  done
  grep -q 'copyright files are in$' "$T/root/$TOOLS/share/doc/fo-tools/copyright"
  grep -qx 'share/doc/fo-tools/third-party.*' "$T/root/$TOOLS/share/doc/fo-tools/copyright"
  # The README's files exist, and it names all tools.
  cd "$T/root/$TOOLS"
  mapfile -t named < <(grep -oE '`[^`]*(bin|libexec|share)/[^` ]*' README.md | tr -d '`')
  [ "${#named[@]}" -ge 12 ]
  for path in "${named[@]}"; do ls "${path##* }" >/dev/null; done
  run -1 grep -E '\]\(' README.md
  for path in bin/*; do grep -q "\`$path\`" README.md; done
}

# bats test_tags=slow
@test "the tarball is reproducible" {
  need_release
  run -0 tar -tvf "$TARBALL" --numeric-owner
  [ "$(awk '{ print $2 }' <<<"$output" | sort -u)" = 0/0 ]
  cp "$TARBALL" "$T/first.tar.gz"
  (umask 077 && make_tarball)
  cmp "$T/first.tar.gz" "$TARBALL"
}

@test "the tools of the tarball need nothing but /proc" {
  unpack_tarball
  local tool own=(--mount --pid --fork --kill-child)
  if [ "$(id -u)" -ne 0 ]; then own+=(--map-root-user); fi
  mkdir "$T/root/proc"
  # inside COMMAND [ARG]...: runs it in a root folder that contains only the tools.
  inside() {
    # shellcheck disable=SC2016  # for the shell in there
    timeout 20 unshare "${own[@]}" sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' \
      "$T/root" "$@" 3>&-
  }
  inside "/$TOOLS/bin/gms-lock" --version >/dev/null ||
    skip_because root "this user may not change the root folder"
  for tool in "$T/root/$TOOLS"/bin/*; do
    tool=${tool##*/}
    run -0 inside "/$TOOLS/bin/$tool" --version
    [[ "$output" == "$tool "* ]]
  done
  # The command that gms-lock becomes finds the lock held.
  run -0 inside "/$TOOLS/bin/gms-lock" acquire --exec --id me --lock /failover.lock -- \
    "/$TOOLS/bin/gms-lock" owner --lock /failover.lock
  [ "$output" = me ]
  ends_with 1 inside "/$TOOLS/bin/gms-probe" lock --lock /failover.lock --held
  run -0 inside "/$TOOLS/bin/gms-probe" lock --lock /failover.lock
  run -0 inside "/$TOOLS/bin/fo-podgen" <"$FO_ROOT/packaging/k8s/kustomize/dgd.yaml"
  [[ "$output" == *"kind: ResourceClaimTemplate"* ]]
}
