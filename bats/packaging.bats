#!/usr/bin/env bats
# The scripts that install, build and test. Stubs replace the programs that they call, so nothing is
# installed or built here.

load test_helper

setup() {
  T=$(mktemp -d /tmp/fo.XXXXXX)
  mkdir "$T/bin"
  PATH=$T/bin:$PATH
}
teardown() { command -p rm -rf "$T"; }

# stub NAME SCRIPT: creates a program that logs its arguments and runs SCRIPT.
stub() {
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$T" "$2" >"$T/bin/$1"
  chmod +x "$T/bin/$1"
}

# stub_missing PACKAGE...: makes all packages look installed except these.
stub_missing() {
  stub node
  stub npm
  stub dpkg-query "case \" $* \" in *\" \${!#} \"*) exit 1 ;; esac; echo installed"
}

# stub_root: leaves the system's folders unchanged.
stub_root() {
  stub id 'echo 0'
  stub install
  stub rm
}

@test "install-deps does nothing when nothing is missing" {
  stub_missing
  stub apt-get 'exit 1'
  stub sudo 'exit 1'
  answers 0 "" "$FO_ROOT/packaging/install-deps"
  run -1 grep -E '^(apt-get|sudo)' "$T/calls"
}

@test "install-deps installs only what is missing" {
  stub_missing socat jq
  stub_root
  stub apt-get 'case $* in *--assume-no*) echo "0 upgraded, 2 newly installed"; echo "Need to get 9 kB"; exit 1 ;; esac'
  ends_with 0 "$FO_ROOT/packaging/install-deps"
  [ "${lines[0]}" = "installing: jq socat" ]
  [ "${lines[1]}" = "0 upgraded, 2 newly installed" ]
  [ "${lines[2]}" = "Need to get 9 kB" ]
  [[ "${lines[3]}" == "Building takes about "* ]]
  run -0 grep '^apt-get -q' "$T/calls"
  [ "${lines[0]}" = "apt-get -q -y update" ]
  [ "${lines[1]}" = "apt-get -q -y install --no-install-recommends jq socat" ]
}

@test "install-deps installs for the demo only what the demo needs" {
  stub_missing socat jq etcd-server nodejs libgtest-dev
  stub_root
  stub apt-get
  ends_with 0 "$FO_ROOT/packaging/install-deps" --demo
  run -0 grep '^apt-get.* install' "$T/calls"
  [ "${lines[-1]}" = "apt-get -q -y install --no-install-recommends jq" ]
  run -0 "$FO_ROOT/packaging/install-deps" --demo --list
  [[ " ${lines[*]} " == *" g++ "* && " ${lines[*]} " != *" etcd-server "* ]]
}

@test "install-deps lets no package start a service, and disables new ones" {
  # After the installation, there is one more service that starts at boot.
  stub_missing etcd-server
  stub_root
  stub apt-get
  stub find "echo /etc/rc2.d/S01cron
    if grep -q '^apt-get -q -y install' '$T/calls'; then
      echo /etc/rc2.d/S01etcd
      echo /etc/systemd/system/multi-user.target.wants/etcd.service
    fi"
  stub deb-systemd-helper
  stub update-rc.d
  run -0 "$FO_ROOT/packaging/install-deps"
  # A machine with its own policy for services keeps it.
  [ -e /usr/sbin/policy-rc.d ] || grep -qx "install -m 755 /dev/stdin /usr/sbin/policy-rc.d" "$T/calls"
  run -0 grep -E '^(deb-systemd-helper|update-rc.d|apt-get -q)' "$T/calls"
  [[ "${lines[1]}" == "apt-get -q -y install "* ]]
  [ "${lines[2]}" = "update-rc.d etcd disable" ]
  [ "${lines[3]}" = "deb-systemd-helper disable etcd.service" ]
  [ "${#lines[@]}" -eq 4 ]
}

@test "install-deps accepts node and npm from any source, and else installs Debian's" {
  local program
  stub_missing nodejs npm
  stub_root
  stub apt-get
  for program in comm env find grep sort; do ln -s "$(command -v "$program")" "$T/bin"; done
  answers 0 "" env PATH="$T/bin" "$FO_ROOT/packaging/install-deps"
  command -p rm "$T/bin/node" "$T/bin/npm"
  run -0 env PATH="$T/bin" "$FO_ROOT/packaging/install-deps"
  answers 0 "apt-get -q -y install --no-install-recommends nodejs npm" grep '^apt-get -q -y install' "$T/calls"
}

@test "install-deps uses sudo when it is not root" {
  stub_missing socat
  stub apt-get
  stub id 'echo 1000'
  stub_root
  stub id 'echo 1000'
  stub sudo 'if [ "$1" = -n ]; then shift; fi; exec "$@"'
  ends_with 0 "$FO_ROOT/packaging/install-deps" </dev/null
  run -0 grep '^sudo' "$T/calls"
  [[ "${lines[1]}" == "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "*" install "*" socat" ]]
}

@test "install-deps without root or a password reports what is missing" {
  stub_missing socat jq
  stub apt-get
  stub id 'echo 1000'
  stub sudo 'exit 1'
  ends_with 69 "$FO_ROOT/packaging/install-deps" </dev/null
  [[ "${stderr_lines[0]}" == "install-deps: error: install packages: "* ]]
  [ "${stderr_lines[1]}" = "These are missing: jq socat" ]
}

@test "scripts refuse unknown arguments" {
  local script
  for script in packaging/install-deps packaging/test packaging/package tests/k8s/install; do
    ends_with 64 "$FO_ROOT/$script" --frob
    [ "${stderr_lines[1]}" = "Try '$script --help'" ] || { echo "$script: $stderr"; return 1; }
  done
  ends_with 64 "$FO_ROOT/packaging/test" --preset
  ends_with 64 "$FO_ROOT/tests/k8s/install"
}

# fake_checkout: creates a checkout with three tests and a build that succeeds. The tests report
# CTEST_REPORT, FUZZ_REPORT and BATS_REPORT.
fake_checkout() {
  mkdir -p "$T/checkout/packaging" "$T/checkout/.ci" "$T/checkout/bats" "$T"/checkout/build/{release,asan}
  touch "$T"/checkout/bats/{cli,fo-route-keys,lock-tcp}.bats "$T/checkout/bats/test_helper.bash"
  cp "$FO_ROOT/packaging/test" "$T/checkout/packaging/test"
  cp "$FO_ROOT/.ci/run" "$T/checkout/.ci/run"
  printf '#!/bin/sh\n' >"$T/checkout/packaging/install-deps"
  mkdir -p "$T/checkout/tests/k8s"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\necho "types $*"; exit "${TYPES_STATUS:-0}"\n' >"$T/checkout/tests/k8s/install"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nprintf "%%s\\t%%s\\n" tests/lock/all Lock.Waits bats "a lock" fuzz Fuzz.session\n' \
    >"$T/checkout/tests/names"
  chmod +x "$T/checkout/packaging/install-deps" "$T/checkout/tests/k8s/install" "$T/checkout/tests/names"
  stub cmake
  stub ctest 'if [ "$2" = build/fuzz ]; then CTEST_REPORT=$FUZZ_REPORT CTEST_STATUS=$FUZZ_STATUS; fi
    while [ "$1" != --output-junit ]; do shift; done
    if [ -n "$CTEST_REPORT" ]; then printf "<?xml?>\n<testsuite name=\"x\"\n\t%s\n>\n" "$CTEST_REPORT" >"$2"; fi
    exit "${CTEST_STATUS:-0}"'
  stub bats 'while [ "$1" != --output ]; do shift; done
    if [ -n "$BATS_REPORT" ]; then printf "$BATS_REPORT" >"$2/report.tap"; fi
    exit "${BATS_STATUS:-0}"'
  stub parallel 'exit 1'
  export CTEST_REPORT='tests="10" failures="0" disabled="0" skipped="1"'
  export FUZZ_REPORT='tests="4" failures="0" disabled="0" skipped="0"'
  export BATS_REPORT='1..3\nok 1 a\nok 2 b # skip no\nok 3 c\n'
}

@test "test counts GoogleTest, fuzzers and Bats together" {
  fake_checkout
  cd /
  ends_with 0 "$T/checkout/packaging/test"
  [ "${lines[-1]}" = "15 passed, 0 failed, 2 skipped" ]
  run -0 cat "$T/calls"
  [ "${lines[0]}" = "cmake --preset release" ]
  [ "${lines[1]}" = "cmake --build --preset release" ]
  [[ "${lines[2]}" == "ctest --test-dir build/release "* ]]
  [ "${lines[3]}" = "cmake --preset fuzz -DCMAKE_CXX_FLAGS_DEBUG=-O0 -gline-tables-only" ]
  [ "${lines[4]}" = "cmake --build --preset fuzz" ]
  [[ "${lines[5]}" == "ctest --test-dir build/fuzz "* ]]
}

@test "test installs the checks of manifests, and runs without them if that fails" {
  fake_checkout
  TYPES_STATUS=69 ends_with 0 "$T/checkout/packaging/test" --preset asan
  [ "${lines[0]}" = "types build/asan" ]
  # Only status 69 is ignored.
  TYPES_STATUS=64 ends_with 64 "$T/checkout/packaging/test"
}

@test "Kubernetes' types are fetched once" {
  stub npm 'exit "${NPM_STATUS:-0}"'
  NPM_STATUS=1 ends_with 69 "$FO_ROOT/tests/k8s/install" "$T/build"
  [ "$stderr" = "install: error: install Kubernetes' types: npm ci failed" ]
  run -0 "$FO_ROOT/tests/k8s/install" "$T/build"
  answers 0 "" "$FO_ROOT/tests/k8s/install" "$T/build"
  answers 0 2 grep -c '^npm ci ' "$T/calls"
  # The list of packages has changed.
  echo >>"$T/build/k8s/installed.json"
  run -0 "$FO_ROOT/tests/k8s/install" "$T/build"
  answers 0 3 grep -c '^npm ci ' "$T/calls"
}

@test "CI runs test" {
  fake_checkout
  ends_with 0 "$T/checkout/.ci/run"
  [ "${lines[-1]}" = "15 passed, 0 failed, 2 skipped" ]
}

@test "test takes a preset and a filter, and builds what that needs" {
  fake_checkout
  ends_with 0 "$T/checkout/packaging/test" --preset asan --only 'Lock.*'
  [ "${lines[-1]}" = "9 passed, 0 failed, 1 skipped" ]
  run -0 cat "$T/calls"
  [ "${#lines[@]}" -eq 3 ]
  [ "${lines[0]}" = "cmake --preset asan" ]
  [ "${lines[1]}" = "cmake --build --preset asan --target tests/lock/all" ]
  [[ "${lines[2]}" == "ctest --test-dir build/asan "*" -R Lock.* -E _NOT_BUILT$" ]]
}

@test "test builds the programs for a filter that matches Bats tests" {
  fake_checkout
  ends_with 0 "$T/checkout/packaging/test" --only 'a lock'
  [ "${lines[-1]}" = "2 passed, 0 failed, 1 skipped" ]
  run -0 grep -v '^parallel' "$T/calls"
  [ "${#lines[@]}" -eq 3 ]
  [[ "${lines[1]}" == "cmake --build --preset release --target cmd/all "* ]]
  [[ "${lines[2]}" == "bats "*" --filter a lock bats/cli.bats bats/fo-route-keys.bats bats/lock-tcp.bats" ]]
}

@test "test builds fuzzers for a filter that matches one" {
  fake_checkout
  ends_with 0 "$T/checkout/packaging/test" --only 'Fuzz.s'
  run -0 cat "$T/calls"
  [ "${#lines[@]}" -eq 3 ]
  [ "${lines[1]}" = "cmake --build --preset fuzz" ]
  [[ "${lines[2]}" == "ctest --test-dir build/fuzz "*" -R Fuzz.s -E _NOT_BUILT$" ]]
}

@test "test --quick skips what takes long" {
  fake_checkout
  ends_with 0 "$T/checkout/packaging/test" --quick
  [ "${lines[-1]}" = "11 passed, 0 failed, 2 skipped" ]
  run -0 grep -E '^(cmake|ctest|bats)' "$T/calls"
  [ "${#lines[@]}" -eq 4 ]
  [[ "${lines[2]}" == "ctest --test-dir build/release "*" -E ^(Quirks|"* ]]
  [[ "${lines[3]}" == "bats "*" --filter-tags !slow bats/cli.bats bats/fo-route-keys.bats bats/lock-tcp.bats" ]]
}

# quick_again [OPTION...]: runs test --quick once more. Sets CTEST and BATS to what these were called with.
quick_again() {
  : >"$T/calls"
  "$T/checkout/packaging/test" --quick "$@"
  CTEST=$(grep '^ctest' "$T/calls")
  BATS=$(grep '^bats' "$T/calls")
}

@test "test --quick leaves out what has passed and not changed" {
  fake_checkout
  local build=$T/checkout/build/release
  mkdir "$build/tests" "$build/bin"
  touch "$build"/tests/{lock,route}_test{,.o} "$build"/bin/{fo-route,gms-lock}{,.o}
  chmod +x "$build"/bin/*
  stub ninja 'echo build_info.cc.o; echo "${!#}.o"'
  touch -d '1 minute ago' "$build"/*/* "$T"/checkout/bats/*
  CTEST_REPORT='tests="10" failures="1" disabled="0" skipped="0"' run -1 "$T/checkout/packaging/test" --quick
  quick_again
  [[ $CTEST != *-LE* && $BATS == *" bats/cli.bats bats/fo-route-keys.bats bats/lock-tcp.bats" ]]
  quick_again
  [[ $CTEST == *' -LE ^(lock|route)$' && $BATS == *"!slow bats/cli.bats" ]]
  # Named tests run, and all others without --quick.
  quick_again --only '[Ll]ock'
  [[ $CTEST != *-LE* && $BATS == *" bats/lock-tcp.bats" ]]
  "$T/checkout/packaging/test"
  [[ $(grep '^bats' "$T/calls" | tail -n 1) == *" bats/lock-tcp.bats" ]]
  # All programs were linked again, but only two for another reason than a new version.
  touch -d '1 minute' "$build"/tests/*_test "$build"/bin/{fo-route,gms-lock} "$build/build_info.cc.o"
  touch -d '1 minute' "$build/tests/lock_test.o" "$build/bin/gms-lock.o"
  quick_again
  [[ $CTEST == *' -LE ^(route)$' && $BATS == *" bats/cli.bats bats/lock-tcp.bats" ]]
  touch -d '1 minute' "$T/checkout/bats/test_helper.bash"
  quick_again
  [[ $BATS == *" bats/cli.bats bats/fo-route-keys.bats bats/lock-tcp.bats" ]]
}

@test "test reports that no name matches, and lists the names" {
  fake_checkout
  ends_with 1 "$T/checkout/packaging/test" --only xyzzy
  [ "$output" = "" ]
  [ "$stderr" = "test: error: --only 'xyzzy': no test has such a name; packaging/test --list prints them" ]
  answers 0 $'Lock.Waits\na lock\nFuzz.session' "$T/checkout/packaging/test" --list
  answers 0 "a lock" "$T/checkout/packaging/test" --list --only lock
  [ ! -e "$T/calls" ]
}

# bats test_tags=slow
@test "tests/names prints the names in ctest and Bats" {
  if [ ! -f "$FO_BUILD/CTestTestfile.cmake" ]; then skip_because ctest "nothing is built in $FO_BUILD"; fi
  "$FO_ROOT/tests/names" >"$T/all"
  cut -f 2 "$T/all" | sort -u >"$T/names"
  # Removes prefixes and parameters from ctest's names.
  ctest --test-dir "$FO_BUILD" -N | sed -nE 's/^ *Test *#[0-9]+: //p' | grep -v '_NOT_BUILT$' |
    sed -E 's/^(gpu|unmarked)\.//; s/^(Quirks\.[a-z]*|LockTorture\.).*/\1/
      s/^([A-Za-z0-9_]+\/)?([A-Za-z0-9_]+\.[A-Za-z0-9_]+)(\/.*)?$/\1\2/' | sort -u >"$T/ctest"
  [ -s "$T/ctest" ]
  answers 0 "" comm -13 "$T/names" "$T/ctest"
  [ "$(grep -c '^bats' "$T/all")" -eq "$(bats --count "$FO_ROOT/bats")" ]
}

@test "test fails when a test failed" {
  fake_checkout
  BATS_STATUS=1 BATS_REPORT='1..2\nok 1 a\nnot ok 2 b\n' ends_with 1 "$T/checkout/packaging/test"
  [ "${lines[-1]}" = "14 passed, 1 failed, 1 skipped" ]
  CTEST_STATUS=8 CTEST_REPORT='tests="10" failures="2" disabled="0" skipped="0"' \
    ends_with 1 "$T/checkout/packaging/test"
  [ "${lines[-1]}" = "14 passed, 2 failed, 1 skipped" ]
  FUZZ_STATUS=8 FUZZ_REPORT='tests="4" failures="1" disabled="0" skipped="0"' \
    ends_with 1 "$T/checkout/packaging/test"
  [ "${lines[-1]}" = "14 passed, 1 failed, 2 skipped" ]
  [ "$stderr" = "" ]
}

@test "test fails when no test ran" {
  fake_checkout
  CTEST_REPORT='' FUZZ_REPORT='' BATS_REPORT='1..0\n' ends_with 1 "$T/checkout/packaging/test"
  [ "${lines[-1]}" = "0 passed, 0 failed, 0 skipped" ]
}

@test "test fails when a runner was aborted" {
  fake_checkout
  CTEST_STATUS=1 CTEST_REPORT='' ends_with 1 "$T/checkout/packaging/test"
  [ "$stderr" = "test: error: did not run to the end: ctest" ]
  FUZZ_STATUS=1 FUZZ_REPORT='' ends_with 1 "$T/checkout/packaging/test"
  [ "$stderr" = "test: error: did not run to the end: fuzz" ]
  BATS_STATUS=1 BATS_REPORT='' ends_with 1 "$T/checkout/packaging/test"
  [ "$stderr" = "test: error: did not run to the end: bats" ]
}

@test "test stops when the build fails" {
  fake_checkout
  stub cmake 'exit 3'
  ends_with 3 "$T/checkout/packaging/test"
  run -1 grep -E '^(ctest|bats)' "$T/calls"
}
