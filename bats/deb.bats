#!/usr/bin/env bats
# The Debian packages: checked by lintian, and installed, used and purged in a Debian of their own.

# bats file_tags=slow
load test_helper

# A small Debian, which is built again after a month.
BASE=$FO_ROOT/build/bookworm.tar

setup_file() {
  export PACKAGES=$BATS_FILE_TMPDIR/packages
  if ! is_release; then return; fi
  make_packages
  mkdir "$PACKAGES"
  cp "$MADE"/*.deb "$PACKAGES"
}

setup() {
  fo_setup
  need_release
}

MADE=$FO_ROOT/build/release/packages
make_packages() { "$FO_ROOT/packaging/package" --deb --no-build >/dev/null; }

# mirror: prints the URL from which apt gets Debian 12.
mirror() {
  apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^bookworm main //p' | head -n 1
}

# make_base: creates $BASE if there is none. A failure's output is the reason for a skip.
make_base() {
  if [ -n "$(find "$BASE" -mtime -30 2>/dev/null)" ]; then return 0; fi
  local from proxy new
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is not installed" && return 1; }
  from=$(mirror)
  if [ -z "$from" ]; then echo "apt has no Debian 12" && return 1; fi
  proxy=$(apt-config shell proxy Acquire::http::Proxy)
  eval "$proxy"
  http_proxy=${proxy:-${http_proxy:-}} timeout 300 mmdebstrap --mode=root --variant=essential \
    --include=passwd,systemd-standalone-sysusers bookworm "$T/base.tar" "$from" \
    >"$T/mmdebstrap.log" 2>&1 3>&- ||
    { echo "mmdebstrap can't run here: $(tail -n 1 "$T/mmdebstrap.log")" && return 1; }
  # The file is complete or absent, since other runs may create it at the same time.
  new=$(mktemp "$BASE.XXXXXX")
  mv "$T/base.tar" "$new"
  mv "$new" "$BASE"
}

@test "lintian finds no fault with the packages" {
  need lintian
  answers 0 "" lintian --allow-root --fail-on error,warning "$PACKAGES"/*.deb
}

@test "the packages are reproducible, and depend on what they need" {
  local file
  make_packages
  for file in "$PACKAGES"/*.deb; do cmp "$file" "$MADE/${file##*/}"; done
  run -0 dpkg-deb --field "$PACKAGES"/fo-tools_*.deb Version
  [ "$output" = "$(dpkg-parsechangelog -l "$FO_ROOT/packaging/deb/changelog" -S Version)" ]
  run -0 dpkg-deb --field "$PACKAGES"/fo-tools_*.deb Depends
  [[ "$output" =~ ^systemd-standalone-sysusers\ \|\ systemd-sysusers,\ libc6\ \(\>=\ 2\.3[0-5]\)$ ]]
  run -0 dpkg-deb --field "$PACKAGES"/fo-simcuda_*.deb Depends
  [[ "$output" =~ ^libc6\ \(\>=\ 2\.3[0-5]\)$ ]]
  # The library is not in the dynamic linker's path.
  run -0 dpkg-deb --contents "$PACKAGES"/fo-simcuda_*.deb
  [[ "$output" == *" ./usr/lib/fo/sim/fo-sim-memory"*" ./usr/lib/fo/sim/libcuda.so.1"* ]]
}

@test "the packages are installed, serve, fail over, and leave nothing behind" {
  if [ "$(id -u)" -ne 0 ]; then skip_because root "only root can install packages"; fi
  local reason root=$T/root
  reason=$(make_base) || skip_because mmdebstrap "$reason"
  mkdir "$root"
  tar -xf "$BASE" -C "$root"
  cp "$PACKAGES"/*.deb "$root/tmp"
  # shellcheck disable=SC2016  # for the shell in there
  run timeout 300 unshare --mount --pid --fork --kill-child sh -ec '
    mount -t proc proc "$1/proc"
    mount -t tmpfs tmpfs "$1/dev/shm"
    exec env -i FO_TEST_MARK="$FO_TEST_MARK" PATH=/usr/sbin:/usr/bin chroot "$1" sh -exs <"$2"' - "$root" "$FO_ROOT/bats/deb-inside"
  echo "$output"
  [ "$status" -eq 0 ]
  grep -qx 'all is well' <<<"$output"
}
